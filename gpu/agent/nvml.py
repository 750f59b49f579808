"""The NVIDIA GPUs of this machine through NVML, the library behind nvidia-smi (`pynvml`; see NVIDIA's NVML API)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml

# What holds the clocks down, as nvidia-smi calls it.
_REASONS = {
    pynvml.nvmlClocksEventReasonGpuIdle: "gpu_idle",
    pynvml.nvmlClocksEventReasonApplicationsClocksSetting: "applications_clocks_setting",
    pynvml.nvmlClocksEventReasonSwPowerCap: "sw_power_cap",
    pynvml.nvmlClocksThrottleReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync_boost",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "sw_thermal_slowdown",
    pynvml.nvmlClocksThrottleReasonHwThermalSlowdown: "hw_thermal_slowdown",
    pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "hw_power_brake_slowdown",
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display_clock_setting",
}
_NEVER = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION)


class NoGpus(Exception):
    """NVML shows no GPU here; the text says why."""


class GpuLost(Exception):
    """The GPU does not answer any more: it has fallen off the bus, or must be reset."""


class Gpu:
    """One GPU. What its driver does not know is None, and not asked for again."""

    def __init__(self, index: int):
        self.index = index
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self._unknown: set[str] = set()
        self.number = ctypes.cast(self._handle, ctypes.c_void_p).value
        self.name = str(self.ask(pynvml.nvmlDeviceGetName) or f"GPU {index}")
        self.clock_sm_max_mhz = self.ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
        self.pcie_gen_max = self.ask(pynvml.nvmlDeviceGetMaxPcieLinkGeneration)
        self.pcie_width_max = self.ask(pynvml.nvmlDeviceGetMaxPcieLinkWidth)
        self.power_default_limit_w = _watts(self.ask(pynvml.nvmlDeviceGetPowerManagementDefaultLimit))
        self._ecc_before = self._ecc() or 0

    def sample(self) -> dict[str, Any]:
        """What it does now, by column of the `gpu` stream. ECC errors are those since we began. Raises `GpuLost`."""
        ask, gpu = self.ask, pynvml
        use, memory = ask(gpu.nvmlDeviceGetUtilizationRates), ask(gpu.nvmlDeviceGetMemoryInfo)
        ecc = self._ecc()
        return {
            "utilization_gpu_percent": use.gpu if use else None,
            "utilization_memory_percent": use.memory if use else None,
            "memory_used_mib": memory.used >> 20 if memory else None,
            "memory_total_mib": memory.total >> 20 if memory else None,
            "temperature_c": ask(gpu.nvmlDeviceGetTemperature, gpu.NVML_TEMPERATURE_GPU),
            "power_w": _watts(ask(gpu.nvmlDeviceGetPowerUsage)),
            "power_limit_w": _watts(ask(gpu.nvmlDeviceGetEnforcedPowerLimit)),
            "clock_sm_mhz": ask(gpu.nvmlDeviceGetClockInfo, gpu.NVML_CLOCK_SM),
            "clock_mem_mhz": ask(gpu.nvmlDeviceGetClockInfo, gpu.NVML_CLOCK_MEM),
            "clock_sm_max_mhz": self.clock_sm_max_mhz,
            "pcie_gen": ask(gpu.nvmlDeviceGetCurrPcieLinkGeneration),
            "pcie_gen_max": self.pcie_gen_max,
            "pcie_width": ask(gpu.nvmlDeviceGetCurrPcieLinkWidth),
            "pcie_width_max": self.pcie_width_max,
            "throttle_reasons": self._throttled(),
            "ecc_uncorrected": None if ecc is None else max(0, ecc - self._ecc_before),
            "power_default_limit_w": self.power_default_limit_w,
        }

    def energy_j(self) -> float | None:
        """What it used since its driver was loaded, in joules; None before Volta. Raises `GpuLost`."""
        used = self.ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if used is None else used / 1000

    def register_xid(self, events: Any) -> None:
        """Have its Xid errors told to this event set. Raises `GpuLost`."""
        self.ask(lambda handle: pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events))

    def ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """One question; None where the driver, or this moment, has no answer. Raises `GpuLost`."""
        name = f"{function.__name__}{arguments}"
        if name in self._unknown:
            return None
        try:
            return function(self._handle, *arguments)
        except pynvml.NVMLError as error:
            if error.value in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED):
                raise GpuLost(str(error)) from error
            if error.value in _NEVER:
                self._unknown.add(name)
            return None

    def _ecc(self) -> int | None:
        return self.ask(
            pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        )

    def _throttled(self) -> str | None:
        reasons = self.ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:  # the name it had before driver 535
            reasons = self.ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if reasons is None else "|".join(name for bit, name in _REASONS.items() if reasons & bit)


class Nvml:
    """All GPUs, and what they tell of themselves. Not thread-safe."""

    def __init__(self) -> None:
        """Raises `NoGpus`."""
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NoGpus(f"NVML: {error}") from error
        try:
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
            self.gpus = [Gpu(i) for i in range(pynvml.nvmlDeviceGetCount())]
        except (pynvml.NVMLError, GpuLost) as error:
            raise NoGpus(f"NVML: {error}") from error
        if not self.gpus:
            raise NoGpus(f"NVML shows none, driver {self.driver}")
        self.cuda = _cuda()
        self._events = _events(self.gpus)

    def xids(self) -> list[tuple[int | None, int]]:
        """(index of the GPU, Xid) of each error since the last call; none where the driver does not tell."""
        told: list[tuple[int | None, int]] = []
        while self._events is not None and len(told) < 100:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError:  # a timeout: there is no more; anything else: there will be none
                break
            number = ctypes.cast(event.device, ctypes.c_void_p).value
            told.append((next((gpu.index for gpu in self.gpus if gpu.number == number), None), int(event.eventData)))
        return told


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _cuda() -> str:
    try:
        version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
    except pynvml.NVMLError:
        return ""
    return f"{version // 1000}.{version % 1000 // 10}"


def _events(gpus: list[Gpu]) -> Any:
    try:
        events = pynvml.nvmlEventSetCreate()
        for gpu in gpus:
            gpu.register_xid(events)
    except (pynvml.NVMLError, GpuLost):
        return None
    return events
