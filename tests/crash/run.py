"""`python -m tests.crash.run N SEED`: N schedules, then one line of JSON; exit code 1 where a promise was broken."""

from __future__ import annotations

import json
import sys

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import get_state_machine_test

from tests.crash.schedules import Schedule, Tally, ground

STEPS = 3


def run(schedules: int, seed_: int) -> str:
    """What broke, with the schedule that breaks it; '' for nothing."""
    broken = ""
    while not broken and Tally.schedules < schedules:
        # Some that Hypothesis does not count, as it meets them twice, run all the same: with other cuts, most often.
        broken = _run(max(10, (schedules - Tally.schedules) * 2 // 3), seed_ * 1000 + Tally.schedules)
    ground().close()
    return broken


def _run(examples: int, seed_: int) -> str:
    drawn = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        print_blob=False,
    )
    test = seed(seed_)(get_state_machine_test(Schedule, settings=drawn))
    try:
        test()
    except AssertionError as error:
        return "\n".join([str(error), *getattr(error, "__notes__", [])])
    return ""


if __name__ == "__main__":
    broken = run(int(sys.argv[1]), int(sys.argv[2]))
    told = {"schedules": Tally.schedules, "to_rest": Tally.rested, "cuts": Tally.cuts, "broken": broken}
    print(json.dumps(told))
    sys.exit(bool(broken))
