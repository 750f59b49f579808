"""What all shards did together, printed at the end of the session whichever worker they ran on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_FILE = "crash-tally.jsonl"
_folder: list[Path] = []


def note(told: dict[str, Any]) -> None:
    with (_folder[0] / _FILE).open("a") as file:
        file.write(json.dumps({**told, "broken": int(bool(told["broken"]))}) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Workers get the folder of the session that started them."""
    given = getattr(config, "workerinput", {}).get("crash_tally")
    folder = Path(given) if given else Path(config.rootpath) / ".pytest_cache"
    folder.mkdir(exist_ok=True)
    if not given:
        (folder / _FILE).unlink(missing_ok=True)
    _folder[:] = [folder]


def pytest_configure_node(node: Any) -> None:
    """xdist's own hook."""
    node.workerinput["crash_tally"] = str(_folder[0])


def pytest_terminal_summary(terminalreporter: Any) -> None:
    file = _folder[0] / _FILE
    if hasattr(terminalreporter.config, "workerinput") or not file.exists():
        return
    shards = [json.loads(line) for line in file.read_text().splitlines()]
    total = {name: sum(shard[name] for shard in shards) for name in ("schedules", "cuts", "to_rest", "broken")}
    terminalreporter.write_line(
        f"crash: schedules={total['schedules']:,} violations={total['broken']} "
        f"cuts={total['cuts']:,} driven_to_rest={total['to_rest']:,}"
    )
