"""What was decided without a person: rule, figures, what it saved; and other rules tried on the same history."""

from __future__ import annotations

import math

from flask import Blueprint, render_template

from jobs.story.decisions import RULES, Changed, decisions
from web import paging, queries, scope
from web.access import viewer

blueprint = Blueprint("decisions", __name__)

DAYS = 30
SHOWN = 100


@blueprint.get("/decisions")
@viewer
def page() -> str:
    """`rule` filters; `min_rate`, `silent_s` and `deadline_s` try other rules than today's."""
    given = {name: paging.arg(name, 16) for name in ("min_rate", "silent_s", "deadline_s")}
    problems = {name: "a number above 0" for name, text in given.items() if text and _number(text) is None}
    changed = Changed(*(_number(text) for text in given.values()))
    rule = paging.arg("rule", 32)
    since_ms = scope.now_ms() - DAYS * queries.DAY_MS
    found = decisions(scope.db(), since_ms, scope.now_ms(), changed, rule if rule in RULES else "", SHOWN)
    return render_template(
        "decisions.html",
        decisions=found,
        differing=sum(decision.differs for decision in found),
        rules=RULES,
        rule=rule,
        given=given,
        problems=problems,
        trying=changed != Changed(),
        days=DAYS,
        shown=SHOWN,
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None
