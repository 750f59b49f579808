"""How long a machine is paid for before its first proof: booting (image, container, agent), then fetching the key.

A guess from the line that the offer advertises, corrected by the mean logarithm of measured over guessed: of this
machine where it was rented before, of the whole market otherwise, with pseudo-counts between.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from jobs.domain.market_models import Measurement
from jobs.market.prices import ALLOWED_DOWN_BYTES

UNTOLD_MBPS = 300.0
CONTAINER_S, HERE_S, PARAMS_S = 25.0, 3.0, 4.0
"""Starting a container; starting the agent on this host; loading a key that needs no time to arrive."""
MARKET_COUNTS, MACHINE_COUNTS = 3.0, 1.0

Machine = tuple[str, str]


def _seconds(n_bytes: float, facts: Mapping[str, Any]) -> float:
    told = facts.get("inet_down_mbps")
    mbps = float(told) if isinstance(told, int | float) and told > 0 else UNTOLD_MBPS
    return n_bytes * 8 / 1e6 / mbps


def _boot_guess_s(facts: Mapping[str, Any], provider: str) -> float:
    return HERE_S if provider == "local" else CONTAINER_S + _seconds(ALLOWED_DOWN_BYTES, facts)


def _params_guess_s(facts: Mapping[str, Any], provider: str, key_bytes: float) -> float:
    return PARAMS_S + (0.0 if provider == "local" else _seconds(key_bytes, facts))


class _Correction:
    """The factor on a guess."""

    def __init__(self) -> None:
        self._sums: dict[object, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(self, machine: Machine, measured_s: float | None, guess_s: float) -> None:
        if measured_s is None or measured_s <= 0:
            return
        ratio = math.log(max(measured_s, 0.5) / guess_s)
        for key in (machine, machine[0]):
            self._sums[key][0] += ratio
            self._sums[key][1] += 1

    def of(self, machine: Machine) -> float:
        total, n = self._sums.get(machine[0], (0.0, 0.0))
        mean = total / (n + MARKET_COUNTS)
        total, n = self._sums.get(machine, (0.0, 0.0))
        return math.exp((total + MACHINE_COUNTS * mean) / (n + MACHINE_COUNTS))


class Stages:
    """Seconds to boot and to fetch, as measured so far."""

    def __init__(self, measurements: Sequence[Measurement]):
        self._boot, self._params = _Correction(), _Correction()
        for m in measurements:
            machine, specs = (m.provider, m.machine_id), m.specs or {}
            self._boot.add(machine, m.boot_s, _boot_guess_s(specs, m.provider))
            guess = _params_guess_s(specs, m.provider, specs.get("key_bytes", 0))
            self._params.add(machine, m.params_s, guess)

    def seconds(self, machine: Machine, facts: Mapping[str, Any], key_bytes: int) -> float:
        """From the rental to the first proof's beginning."""
        boot_s = _boot_guess_s(facts, machine[0]) * self._boot.of(machine)
        return boot_s + _params_guess_s(facts, machine[0], key_bytes) * self._params.of(machine)
