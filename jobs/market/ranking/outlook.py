"""From measurements and offers to forecasts: the tree that `speed` works on, and where each offer stands in it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from jobs.domain.market_models import Measurement
from jobs.market.ranking import likeness
from jobs.market.ranking.speed import UNKNOWN, Forecast, Places, Prior, Tree, forecast
from jobs.market.ranking.work import Advertised

Floats = npt.NDArray[np.float64]

OTHER_WORKS = 5
"""As many other works of the payload are drawn on, the most measured first."""
OTHER_WORK_SIGMA = 0.2
"""How far models differ between works. Each model's measurements of another work weigh no more than one such doubt in
all (a power prior: Ibrahim & Chen, Statistical Science 15, 2000): a thousand of them say nothing new of this work."""
SAME_COST_SD, OTHER_COST_SD = 0.5, 2.5
"""What an unmeasured ratio between two works may be off, as a logarithm; much, where a size is not known."""
LEAST_NOISE, UNTOLD_NOISE = 0.01, 0.12
DRIFT_A_YEAR = 0.15
"""Machines change (dust, drivers, neighbours): a measurement is as much less certain for each year of age."""
YEAR_MS = 365 * 86_400_000


@dataclass(frozen=True)
class Outlook:
    """The forecast of each offer's rate, and what it rests on: how often this machine, its class, its model were
    measured at this very work."""

    forecast: Forecast
    on_machine: npt.NDArray[np.int64]
    in_class: npt.NDArray[np.int64]
    of_model: npt.NDArray[np.int64]


def _noise(m: Measurement, now_ms: int) -> float:
    """The variance of a measurement's log rate, by its interval and its age."""
    if m.low is not None and m.high is not None and m.high > 0:
        low = max(m.low, m.proofs_per_hour * 0.05)
        sd = (math.log(max(m.high, low)) - math.log(low)) / (2 * 1.645)
    else:
        sd = UNTOLD_NOISE
    age = DRIFT_A_YEAR * max(now_ms - m.at_ms, 0) / YEAR_MS
    return float(max(sd, LEAST_NOISE) ** 2 + age**2)


class _Nodes:
    """Numbers for the keys of one level, in order of appearance, and the parent of each."""

    def __init__(self) -> None:
        self.number: dict[object, int] = {}
        self.parent: list[int] = []

    def of(self, key: object, parent: int) -> int:
        if key not in self.number:
            self.number[key] = len(self.number)
            self.parent.append(parent)
        return self.number[key]


def _specs_of(m: Measurement) -> tuple[float, ...]:
    specs = m.specs or {}
    return likeness.predictors(m, specs, specs.get("gpu_ram_bytes", 0))


def outlook(measurements: Sequence[Measurement], work: str, offers: Sequence[Advertised], now_ms: int) -> Outlook:
    """Forecasts of `work` on `offers`, in their order."""
    others = Counter(m.work for m in measurements if m.work != work and m.proofs_per_hour > 0)
    columns = {name: i for i, (name, _) in enumerate(others.most_common(OTHER_WORKS))}
    rows = [m for m in measurements if m.proofs_per_hour > 0 and (m.work == work or m.work in columns)]
    rows.sort(key=lambda m: (likeness.class_of(m), m.provider, m.machine_id))
    machines, classes, models = _Nodes(), _Nodes(), _Nodes()
    y, x, noise, at, group = [], np.zeros((len(rows), len(likeness.PREDICTORS) + len(columns))), [], [], []
    for i, m in enumerate(rows):
        kind = likeness.class_of(m)
        model = models.of(kind[0], 0)
        machine = machines.of((m.provider, m.machine_id, kind), classes.of(kind, model))
        y.append(math.log(m.proofs_per_hour) + likeness.log_cost(m.work, m.num_gpus > 0))
        x[i, : len(likeness.PREDICTORS)] = _specs_of(m)
        if m.work != work:
            x[i, len(likeness.PREDICTORS) + columns[m.work]] = 1.0
        noise.append(_noise(m, now_ms))
        at.append(machine)
        group.append((model, m.work))
    tree = Tree(
        np.array(y),
        x,
        _discounted(np.array(noise), group, [m.work != work for m in rows]),
        np.array(at, dtype=np.int64),
        np.array(machines.parent, dtype=np.int64),
        np.array(classes.parent, dtype=np.int64),
    )
    return _placed(tree, _prior(work, list(columns)), machines, classes, models, rows, work, offers)


def _discounted(noise: Floats, group: list[tuple[int, str]], other: list[bool]) -> Floats:
    """Other works' noise, made so large that no model's rows of such a work outweigh `OTHER_WORK_SIGMA`."""
    weight: dict[tuple[int, str], float] = defaultdict(float)
    for variance, key in zip(noise, group, strict=True):
        weight[key] += float(1 / variance)
    doubt = OTHER_WORK_SIGMA**2
    factor = [max(1.0, weight[key] * doubt) if is_other else 1.0 for key, is_other in zip(group, other, strict=True)]
    return noise * np.array(factor) if len(noise) else noise


def _prior(work: str, others: list[str]) -> Prior:
    known = [likeness.log_cost(name, False) > 0 and likeness.log_cost(work, False) > 0 for name in others]
    doubts = [SAME_COST_SD if both else OTHER_COST_SD for both in known]
    mean = [*likeness.PRIOR_MEAN, *(0.0 for _ in others)]
    return Prior(np.array(mean), np.array([*likeness.PRIOR_SD, *doubts]))


def _placed(
    tree: Tree,
    prior: Prior,
    machines: _Nodes,
    classes: _Nodes,
    models: _Nodes,
    rows: list[Measurement],
    work: str,
    offers: Sequence[Advertised],
) -> Outlook:
    seen: Counter[object] = Counter()
    for m in rows:
        if m.work == work:
            kind = likeness.class_of(m)
            seen.update(((m.provider, m.machine_id, kind), kind, kind[0]))
    kinds = [likeness.class_of(offer) for offer in offers]
    keys = [[(o.provider, o.machine_id, kind), kind, kind[0]] for o, kind in zip(offers, kinds, strict=True)]
    nodes = (machines.number, classes.number, models.number)
    at = np.array([[numbers.get(key, UNKNOWN) for numbers, key in zip(nodes, row, strict=True)] for row in keys]).T
    counts = np.array([[seen[key] for key in row] for row in keys]).T
    x = np.zeros((len(offers), tree.x.shape[1]))
    x[:, : len(likeness.PREDICTORS)] = [likeness.predictors(o, o.facts, o.gpu_ram_bytes) for o in offers]
    cost = np.array([likeness.log_cost(work, o.num_gpus > 0) for o in offers])
    found = forecast(tree, prior, Places(x, *at))
    return Outlook(replace(found, mean=found.mean - cost), *counts)
