"""What may happen to a controller, drawn by Hypothesis: work in any order, cuts at any call, a market and hosts that
misbehave, people who change their mind. A schedule begins at a stage of a run's life, and ends with the promises."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.crash.cuts import KINDS
from tests.crash.forked import Forked
from tests.crash.ground import Ground
from tests.crash.world import EVENTS, World

STAGES = ("queued", "renting", "loading", "benchmarking", "sealing", "destroying")
REST_EVERY = 25  # one schedule in so many goes on until all is over: it takes as long as all the others together
MOST_TICKS = 60
WORK = ("jobs", "jobs", "reconcile", "prepare", "again")
CALL = st.integers(1, 6)
DUE_AFTER_S = 6.0


@cache
def ground() -> Ground:
    return Ground()


@cache
def at_stage(stage: str) -> World:
    """A run whose machine has come to this stage, in calm weather."""
    world = World(ground(), seed=STAGES.index(stage))
    world.ask()
    for _ in range(MOST_TICKS):
        if stage == "queued" or any(row.state == stage for row in world.rows()):
            return world
        world.prepare()
        if stage != "renting":
            world.jobs()
        world.reconcile()
        world.pass_time(2.0)
    raise AssertionError(f"no machine ever came to {stage}")


class Tally:
    """What this process has run."""

    schedules = 0
    rested = 0
    cuts = 0
    broken: list[str] = []  # noqa: RUF012 - one of each for the process


class Schedule(RuleBasedStateMachine):
    """One controller, from a stage of its life to the end."""

    def __init__(self) -> None:
        super().__init__()
        self._world: Forked | None = None

    @initialize(stage=st.sampled_from(STAGES), kind=st.sampled_from(KINDS), call=CALL, rests=st.integers(1, REST_EVERY))
    def begin(self, stage: str, kind: str, call: int, rests: int) -> None:
        """Each schedule has a cut at least, wherever its other steps lead."""
        self._to_rest = rests == REST_EVERY
        self._world = Forked(ground(), at_stage(stage))
        self._bad_minute([kind], call)

    def _do(self, what: str, *arguments: Any) -> Any:
        assert self._world is not None
        return self._world.do(what, *arguments)

    @rule(work=st.sampled_from(WORK), kind=st.sampled_from(("", *KINDS)), call=CALL)
    def work(self, work: str, kind: str, call: int) -> None:
        """Jobs are due again after some seconds, and lists are read anew."""
        self._do("pass_time", DUE_AFTER_S)
        if kind:
            self._do("cuts.arm", call, kind)
        self._do(work)

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=2), call=CALL)
    def a_bad_minute(self, kinds: list[str], call: int) -> None:
        """One cut after the other, and the controller works on."""
        self._bad_minute(kinds, call)

    def _bad_minute(self, kinds: list[str], call: int) -> None:
        for kind in kinds:
            self._do("cuts.arm", call, kind)
            self._do("pass_time", DUE_AFTER_S)
            self._do("tick")

    @rule(seconds=st.sampled_from((1.0, 4.0, 7.0, 20.0, 70.0)))
    def time(self, seconds: float) -> None:
        self._do("pass_time", seconds)

    @rule(seconds=st.sampled_from((60.0, 400.0, 1500.0)))
    def the_controller_is_away(self, seconds: float) -> None:
        self._do("away", seconds)

    @rule(what=st.sampled_from(EVENTS))
    def trouble(self, what: str) -> None:
        self._do("trouble", what)

    @rule(what=st.sampled_from(("cancels", "forces", "asks")))
    def the_operator(self, what: str) -> None:
        self._do("operator", what)

    def teardown(self) -> None:
        if self._world is None:
            return
        try:
            Tally.schedules += 1
            Tally.rested += self._to_rest
            broken = self._do("finish", self._to_rest)
            Tally.cuts += len(self._do("cuts.done"))
            Tally.broken += broken
            assert not broken, "\n".join([*broken, "after these cuts:", *self._do("cuts.done")])
        finally:
            self._world.close()
