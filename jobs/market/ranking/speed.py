"""How fast a machine will be, from what was measured of it, of its like, and of nothing at all.

The model. The logarithm of a rate is normal with a mean by what the offer advertises, and a deviation at each level:

    log rate = x'beta + u[model] + u[class] + u[machine] + e      u, e ~ N(0, sigma_level^2), e besides its own noise

(random effects: Searle, Casella & McCulloch, Variance Components, 1992). Given the sigmas, everything is exact and in
closed form: means are gathered up the tree by precision and shrunk on the way down (best linear unbiased prediction:
Robinson, Statistical Science 6, 1991), `beta` has a normal prior, so that a market where nothing was measured has
forecasts too, wide ones. The sigmas are not known: they are averaged over by their posterior (restricted likelihood
times a wide prior), with points placed by adaptive importance sampling (Cappe et al., J. Comp. Graph. Stat. 13, 2004).
With a point estimate instead, intervals from few data would be too narrow (Laird & Louis, JASA 82, 1987).

Cost: linear in the measurements and in the offers. Nothing here knows SQL, offers or money.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from jobs.market.ranking.normal import cdf

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVELS = ("rental", "machine", "class", "model")
TYPICAL_SIGMA = np.array([0.07, 0.22, 0.14, 0.40])
"""The prior's median of each sigma: of two rentals of one machine, two machines of a class, and so on, in log rate."""
SIGMA_DOUBT = np.array([0.6, 0.8, 0.9, 0.7])
"""The prior's spread of log sigma: the middle 95 % of it spans a factor of ten or more."""
POINTS, ROUNDS, KEPT = 64, 4, 24
Z90 = 1.6448536269514722
UNKNOWN = -1
SHAPE_COUNTS = 20
"""Machines that the assumption of normal deviations is worth."""
TYPICAL_NOISE = 0.03**2
"""The variance of a benchmark's log rate by its own finite number of proofs."""


@dataclass(frozen=True)
class Tree:
    """What was measured: `y` logarithms of rates, `x` their predictors, `noise` the variance of each by itself.

    `machine[i]` is the machine of row i, `klass[m]` the class of machine m, `model[c]` the model of class c; each
    ascends from 0, so that what belongs together stands together.
    """

    y: Floats
    x: Floats
    noise: Floats
    machine: Ints
    klass: Ints
    model: Ints


@dataclass(frozen=True)
class Prior:
    """What is believed of `beta` before anything is measured: independent normals."""

    mean: Floats
    sd: Floats


@dataclass(frozen=True)
class Places:
    """Where offers stand: their predictors `x`, and the machine, class and model in the tree, `UNKNOWN` where new."""

    x: Floats
    machine: Ints
    klass: Ints
    model: Ints


@dataclass(frozen=True)
class Forecast:
    """A mixture of normals for each offer: `mean[k, i]` and `sd[k, i]` of log rate, with the weight of point k."""

    mean: Floats
    sd: Floats
    weight: Floats
    moves: Floats
    """The variance of the mean's move when the machine is measured once more."""
    z90: Floats
    """So many standard deviations hold 90 %: `Z90` for normal deviations, other than that where machines differ so."""

    @cached_property
    def center(self) -> Floats:
        """The mean of log rate: half of what is expected lies on either side."""
        center: Floats = self.weight @ self.mean
        return center

    @cached_property
    def spread(self) -> Floats:
        """The standard deviation of log rate."""
        spread: Floats = np.sqrt(self.weight @ (self.sd**2 + (self.mean - self.center) ** 2))
        return spread

    @property
    def low(self) -> Floats:
        """The 5th percentile of the rate."""
        low: Floats = np.exp(self.center - self.z90 * self.spread)
        return low

    @property
    def high(self) -> Floats:
        """The 95th percentile of the rate."""
        high: Floats = np.exp(self.center + self.z90 * self.spread)
        return high

    def chance(self, minimum: float) -> Floats:
        """The probability of at least this rate."""
        chance: Floats = self.weight @ cdf((self.mean - np.log(minimum)) / self.sd)
        return chance

    def hours(self, minimum: float | None) -> Floats:
        """The expectation of 1 / rate; with a `minimum`, of those that reach it."""
        variance = self.sd**2
        each = np.exp(np.minimum(variance / 2 - self.mean, 50.0))
        if minimum is None:
            hours: Floats = self.weight @ each
            return hours
        reached = self.weight @ (each * cdf((self.mean - variance - np.log(minimum)) / self.sd))
        of_those: Floats = np.minimum(reached / np.maximum(self.chance(minimum), 1e-12), 1 / minimum)
        return of_those

    @cached_property
    def moved(self) -> Floats:
        """How far one measurement of the machine is expected to move `center`, as a standard deviation."""
        moved: Floats = np.sqrt(self.weight @ self.moves)
        return moved


@dataclass(frozen=True)
class _Gathered:
    """One level seen from below, for each point: `rows` the weighted means [y, x], `doubt` their variances."""

    rows: Floats
    doubt: Floats


@dataclass(frozen=True)
class _Fits:
    """All that a prediction needs, given the sigmas of each point."""

    sigma2: Floats
    machines: _Gathered
    classes: _Gathered
    models: _Gathered
    beta: Floats
    covariance: Floats
    log_likelihood: Floats


def _gather(rows: Floats, variance: Floats, parent: Ints) -> tuple[_Gathered, Floats, Floats]:
    """Children gathered into their parents; with the scatter inside them and its part of log |V|."""
    starts = np.flatnonzero(np.diff(parent, prepend=-1))
    w = 1 / variance
    total = np.add.reduceat(w, starts, axis=1)
    means = np.add.reduceat(w[:, :, None] * rows, starts, axis=1) / total[:, :, None]
    off = rows - means[:, parent]
    scatter = np.matmul((off * w[:, :, None]).transpose(0, 2, 1), off)
    return _Gathered(means, 1 / total), scatter, np.log(variance).sum(axis=1) + np.log(total).sum(axis=1)


def _fit(tree: Tree, prior: Prior, log_sigma: Floats) -> _Fits:
    """The model at each row of `log_sigma`, all at once."""
    sigma2 = np.exp(2 * log_sigma)
    rows = np.column_stack([tree.y, tree.x])
    machines, scatter, det = _gather(rows, tree.noise + sigma2[:, :1], tree.machine)
    classes, between, more = _gather(machines.rows, machines.doubt + sigma2[:, 1:2], tree.klass)
    scatter, det = scatter + between, det + more
    models, between, more = _gather(classes.rows, classes.doubt + sigma2[:, 2:3], tree.model)
    top = models.doubt + sigma2[:, 3:]
    scatter = scatter + between + np.matmul((models.rows / top[:, :, None]).transpose(0, 2, 1), models.rows)
    det = det + more + np.log(top).sum(axis=1)
    believed = 1 / prior.sd**2
    normal = scatter[:, 1:, 1:] + np.diag(believed)
    right = scatter[:, 1:, 0] + believed * prior.mean
    covariance = np.linalg.inv(normal)
    beta = np.einsum("kij,kj->ki", covariance, right)
    misfit = scatter[:, 0, 0] + believed @ prior.mean**2 - np.einsum("ki,ki->k", right, beta)
    likelihood = -0.5 * (det + np.linalg.slogdet(normal)[1] + misfit)
    return _Fits(sigma2, machines, classes, models, beta, covariance, likelihood)


def _unmeasured(prior: Prior) -> _Fits:
    """What is believed where nothing was measured."""
    none = _Gathered(np.zeros((1, 0, 1 + len(prior.mean))), np.zeros((1, 0)))
    covariance = np.diag(prior.sd**2)[None]
    return _Fits(TYPICAL_SIGMA[None] ** 2, none, none, none, prior.mean[None], covariance, np.zeros(1))


def _posterior(tree: Tree, prior: Prior) -> tuple[_Fits, Ints, Floats]:
    """Fits at points that stand for what the sigmas may be; which of them to use, and their weights."""
    if len(tree.y) == 0:
        return _unmeasured(prior), np.zeros(1, dtype=np.int64), np.ones(1)
    dice = np.random.default_rng(1)  # the same points every time: the same question has the same answer
    center, root = np.log(TYPICAL_SIGMA), np.diag(SIGMA_DOUBT)
    for _ in range(ROUNDS):
        z = dice.standard_normal((POINTS // 2, len(LEVELS)))
        z = np.concatenate([z, -z])
        points = center + z @ root.T
        fits = _fit(tree, prior, points)
        believed = -0.5 * (((points - np.log(TYPICAL_SIGMA)) / SIGMA_DOUBT) ** 2).sum(axis=1)
        log_w = fits.log_likelihood + believed + 0.5 * (z**2).sum(axis=1)
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        center = w @ points
        off = points - center
        root = np.linalg.cholesky(1.2 * (off.T * w) @ off + 1e-3 * np.eye(len(LEVELS)))
    # A comb through the weights keeps a few points that say the same (systematic resampling).
    comb = np.searchsorted(np.cumsum(w), (np.arange(KEPT) + 0.5) / KEPT)
    chosen, counts = np.unique(np.minimum(comb, POINTS - 1), return_counts=True)
    return fits, chosen, counts / counts.sum()


def _shrunk(
    above: Floats, doubt: Floats, gathered: _Gathered, k: int, at: Ints, sigma2: float
) -> tuple[Floats, Floats]:
    """One level down: the deviation known so far, its variance, and what was seen at node `at` (`UNKNOWN`: nothing)."""
    if not gathered.doubt.shape[1]:
        return above, doubt + sigma2
    share = np.where(at != UNKNOWN, sigma2 / (sigma2 + gathered.doubt[k, at]), 0.0)
    rows = (1 - share)[:, None] * above + share[:, None] * gathered.rows[k, at]
    return rows, (1 - share) ** 2 * doubt + (1 - share) * sigma2


def _predict(fits: _Fits, k: int, places: Places) -> tuple[Floats, Floats, Floats]:
    """Mean and standard deviation of log rate at point k, and the variance that one more measurement takes away."""
    sigma2 = fits.sigma2[k]
    rows, doubt = np.zeros((len(places.x), 1 + places.x.shape[1])), np.zeros(len(places.x))
    rows, doubt = _shrunk(rows, doubt, fits.models, k, places.model, sigma2[3])
    rows, doubt = _shrunk(rows, doubt, fits.classes, k, places.klass, sigma2[2])
    rows, doubt = _shrunk(rows, doubt, fits.machines, k, places.machine, sigma2[1])
    ahead = places.x - rows[:, 1:]
    mean = rows[:, 0] + ahead @ fits.beta[k]
    doubt = doubt + np.einsum("ij,ij->i", ahead @ fits.covariance[k], ahead)
    return mean, np.sqrt(doubt + sigma2[0]), doubt**2 / (doubt + sigma2[0] + TYPICAL_NOISE)


def _z90_of_machines(tree: Tree, fits: _Fits, k: int) -> float:
    """How many standard deviations hold nine of ten machines, each judged by all others of its class and model.

    The deviation of what is left out has a closed form, (r - u) / sqrt(v - var u) with u the class as it looks with
    the machine in it (Christensen, Pearson & Johnson, Technometrics 34, 1992). Few machines hardly move it off `Z90`.
    """
    sigma2 = fits.sigma2[k]
    rows, doubt = np.zeros((len(tree.model), 1 + tree.x.shape[1])), np.zeros(len(tree.model))
    rows, doubt = _shrunk(rows, doubt, fits.models, k, tree.model, sigma2[3])
    rows, doubt = _shrunk(rows, doubt, fits.classes, k, np.arange(len(tree.model)), sigma2[2])
    off = fits.machines.rows[k] - rows[tree.klass]
    left = off[:, 0] - off[:, 1:] @ fits.beta[k]
    spread = fits.machines.doubt[k] + sigma2[1] - doubt[tree.klass]
    company = np.bincount(tree.klass)[tree.klass] > 1
    z = np.abs(left[company]) / np.sqrt(np.maximum(spread[company], 1e-12))
    seen = float(np.quantile(z, 0.9)) if len(z) else Z90
    return (len(z) * seen + SHAPE_COUNTS * Z90) / (len(z) + SHAPE_COUNTS)


def forecast(tree: Tree, prior: Prior, places: Places) -> Forecast:
    """The rate that a next rental of each place will show."""
    fits, chosen, weight = _posterior(tree, prior)
    predicted = [_predict(fits, int(k), places) for k in chosen]
    mean, sd, moves = (np.stack(each) for each in zip(*predicted, strict=True))
    z90 = np.full(len(places.x), Z90)
    if len(tree.y):
        z = weight @ np.array([_z90_of_machines(tree, fits, int(k)) for k in chosen])
        # Of a place's doubt, the part that is its machine's has their shape; the rest is as normal as sums are.
        share = np.where(places.machine == UNKNOWN, weight @ (fits.sigma2[chosen, 1][:, None] / sd**2), 0.0)
        z90 += (z - Z90) * share
    return Forecast(mean, sd, weight, moves, z90)
