"""The agent's life: register, lease, stages, orders, seal, end."""

from __future__ import annotations

import dataclasses
import signal
import threading
import time
import traceback
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from gpu.agent.blackbox import BlackBox
from gpu.agent.client import Client, Refused, Unreachable, delays
from gpu.agent.environment import Environment
from gpu.agent.facts import machine_facts
from gpu.agent.last_will import LastWill, Warden
from gpu.agent.lease import LEASE_THREAD, LeaseKeeper
from gpu.agent.orders import Orders, Status
from gpu.agent.sealing import Sealer, emergency_zip, put_emergency
from gpu.agent.shipper import Shipper, wall_clock_ms
from gpu.agent.stages import Stages
from gpu.protocol import Register, Registered, Spec

T = TypeVar("T")

REGISTER_FOR_S = 900.0
LAST_WORDS_S = 1.5
SEALED, UNREGISTERED, ABANDONED, TERMINATED = 0, 1, 3, 143


class Agent:
    """One instance's agent; `run` is called once, from the main thread."""

    def __init__(self, environment: Environment, shipper: Shipper, warden: Warden):
        self._environment = environment
        self._shipper = shipper
        self._warden = warden
        self._orders = Orders()
        self._status = Status(wall_clock_ms)
        self._blackbox: BlackBox

    def run(self) -> int:
        """The exit code: 0 told to exit, 1 never registered, 3 ended without its controller, 143 SIGTERM."""
        signal.signal(signal.SIGTERM, lambda *_: self._orders.terminate())
        threading.excepthook = self._thread_failed
        bootstrap = Client(self._environment.url, self._environment.bootstrap_token)
        registered = self._register(bootstrap)
        if registered is None:
            return TERMINATED if self._orders.terminated else UNREGISTERED
        client = bootstrap.with_token(registered.token)
        self._shipper.start(client, registered.token)
        spec = registered.spec
        stages = Stages(self._environment, spec, client, self._shipper, self._status, self._orders)
        keeper = LeaseKeeper(client, self._status, self._orders, registered.lease_s, self._shipper.log)
        self._blackbox = BlackBox(self._environment.work, spec, self._shipper, keeper.clock_offset_ms)
        keeper.telemetry = self._blackbox.telemetry
        keeper.renewed = lambda: self._warden.tell(self._will(spec, keeper, stages))
        keeper.renewed()
        sealer = Sealer(client, self._shipper, self._orders, stages.account)
        self._blackbox.start()
        keeper.start()
        self._run_stages(spec, stages, sealer)
        self._obey(spec, stages, sealer)
        stages.delete_witnesses()
        return self._end(spec, keeper, sealer, stages)

    def _will(self, spec: Spec, keeper: LeaseKeeper, stages: Stages) -> LastWill:
        stages.account.driver, stages.account.cuda = self._blackbox.driver, self._blackbox.cuda
        return LastWill(
            run=spec.run,
            instance=spec.instance,
            work=str(self._environment.work),
            ends=keeper.ends,
            emergency=keeper.emergency,
            emergency_until=keeper.emergency_until,
            acknowledged=self._shipper.acknowledged(),
            **stages.account.told(),
        )

    def _report(self, error: str) -> None:
        """An error of the agent itself: in `setup`, and in the next lease."""
        self._shipper.log(error)
        self._status.end(error=error)

    def _thread_failed(self, args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread else "?"
        text = "".join(traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback))
        self._report(f"the agent failed in its thread {name}:\n{text}")
        if name == LEASE_THREAD:
            self._orders.expire("the agent can't renew its lease any more")

    def _register(self, client: Client) -> Registered | None:
        message = Register(machine_facts(self._environment.work), _version(), self._environment.image_digest)
        cpu, cores = message.facts["cpu_model"], message.facts["cpu_cores"]
        self._shipper.log(f"agent {message.agent_version} on {cpu}, {cores} cores")
        if self._warden:
            self._shipper.log("a warden ends this instance when the lease is over, or when the agent has ended")
        waits, deadline = delays(), time.monotonic() + REGISTER_FOR_S
        while time.monotonic() < deadline and not self._orders.terminated:
            try:
                registered = client.register(message)
                self._shipper.log(f"registered as instance {registered.spec.instance} of run {registered.spec.run}")
                return registered
            except Refused as error:
                self._shipper.log(f"the controller refuses the registration: {error}")
                return None
            except Unreachable as error:
                self._shipper.log(f"can't register yet: {error}")
            time.sleep(next(waits))
        self._shipper.log("gave up: the controller could not be reached in time")
        return None

    def _run_stages(self, spec: Spec, stages: Stages, sealer: Sealer) -> None:
        for stage in spec.stages:
            if self._orders.stop_work() or not self._run_stage(stage, spec.first_round, stages, sealer):
                break

    def _run_stage(self, stage: str, round_number: int, stages: Stages, sealer: Sealer) -> bool:
        went_well = self._guarded(f"stage {stage}", lambda: stages.run(stage, round_number))
        stages.follower.drain()
        if stage != "params":
            folder = stages.rounds_folder(round_number)
            self._guarded("the artifacts", lambda: sealer.upload_artifacts(folder, round_number))
        return bool(went_well)

    def _guarded(self, what: str, call: Callable[[], T]) -> T | None:
        """A bug of ours is reported, and then sealed with the rest: never lost with the machine."""
        try:
            return call()
        except Exception:  # noqa: BLE001 - the one guard, see above
            self._report(f"the agent failed in {what}:\n{traceback.format_exc()}")
            return None

    def _obey(self, spec: Spec, stages: Stages, sealer: Sealer) -> None:
        """Until told to end: seal once, run the rounds asked for."""
        done_round = spec.first_round
        while not self._orders.is_over():
            if self._orders.seal_reason:
                if not sealer.sealed:
                    self._status.sealing()
                    self._stop_recording(stages)
                    self._guarded("sealing", lambda: sealer.seal(self._orders.seal_reason))
            elif self._orders.round_wanted() > done_round:
                done_round = self._orders.round_wanted()
                self._run_stage("benchmark", done_round, stages, sealer)
                continue
            self._orders.wait(0.2)

    def _stop_recording(self, stages: Stages) -> None:
        """The last seconds of all streams: an end is told only of what is whole."""
        stages.follower.drain()
        stages.follower.stop()
        self._blackbox.stop()
        stages.account.driver, stages.account.cuda = self._blackbox.driver, self._blackbox.cuda

    def _end(self, spec: Spec, keeper: LeaseKeeper, sealer: Sealer, stages: Stages) -> int:
        code = SEALED
        if not sealer.sealed:
            self._guarded("its last look", lambda: self._stop_recording(stages))
        if self._orders.terminated:
            self._last_words()
            code = TERMINATED
        elif self._orders.expired and not self._orders.exit:
            code = ABANDONED
            if not sealer.sealed:
                self._warden.tell(dataclasses.replace(self._will(spec, keeper, stages), packs=True))
                self._abandon(spec, keeper, sealer)
        keeper.stop()
        self._shipper.stop()
        return code

    def _abandon(self, spec: Spec, keeper: LeaseKeeper, sealer: Sealer) -> None:
        """No controller: put the evidence where the last renewal said."""
        self._shipper.log(f"{self._orders.expired}: packs the evidence")
        self._shipper.close_setup()
        self._shipper.stop()
        data, packed = emergency_zip(spec, sealer.manifest(self._orders.expired), self._shipper)
        trouble = "no URL was ever issued"
        if keeper.emergency is not None:
            trouble = put_emergency(keeper.emergency, keeper.emergency_until, data, self._orders.is_terminated)
        if trouble:
            self._shipper.log(f"the emergency upload failed, {packed} chunks are lost with this machine: {trouble}")
        else:
            self._shipper.log(f"emergency upload: {packed} chunks, {len(data)} bytes")

    def _last_words(self) -> None:
        """SIGTERM leaves a moment to ship what is there."""
        self._shipper.log("ends: SIGTERM")
        self._shipper.flush()
        deadline = time.monotonic() + LAST_WORDS_S
        while not self._shipper.drained() and time.monotonic() < deadline:
            time.sleep(0.05)


def _version() -> str:
    try:
        return version("provefleet")
    except PackageNotFoundError:
        return "unknown"
