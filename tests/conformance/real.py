"""Vast's own command and SDK, run against a server of ours."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.exchanges import Call, Exchange, Recorder

VENV = Path(__file__).parents[2] / ".venv-vastai"
LIMIT_S = 60
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Result:
    """What one call came to. `value`: what the SDK returned, or what the CLI printed as JSON."""

    name: str
    exchanges: list[Exchange]
    value: Any = None
    error: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    out: str = ""
    err: str = ""

    @property
    def routes(self) -> list[str]:
        return [f"{e.method} {e.path}" for e in self.exchanges]

    @property
    def sent(self) -> Any:
        """The body of its last request."""
        return self.exchanges[-1].sent


def environment(home: Path, url: str = "") -> dict[str, str]:
    """No proxy, configuration or key of whoever runs this. The CLI asks for GPU names before it reads `--url`."""
    return {
        "HOME": str(home),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "VAST_URL": url or "http://127.0.0.1:9",
        "VASTAI_NO_UPDATE_CHECK": "1",
        "NO_PROXY": "127.0.0.1",
    }


class Driver:
    """The process that holds the SDK: importing it takes a second, so there is one for all tests."""

    def __init__(self, process: subprocess.Popen[str]):
        self._process = process

    def tell(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply


@contextmanager
def running_driver(home: Path) -> Iterator[Driver]:
    command = [VENV / "bin" / "python", Path(__file__).with_name("driver.py")]
    process = subprocess.Popen(
        command, env=environment(home), cwd=home, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Driver(process)
    finally:
        process.terminate()
        process.wait(10)


class RealClient:
    """Vast's client with one account's key. It remembers its calls."""

    def __init__(self, url: str, key: str, home: Path, recorder: Recorder, driver: Driver):
        self.url, self.key = url, key
        self._home, self._recorder, self._driver = home, recorder, driver
        self.results: list[Result] = []
        self.calls: list[Call] = []

    def cli(self, *words: str, key: str = "", raw: bool = True) -> Result:
        """`vastai --url U --api-key K [--raw] WORDS`. A traceback is a failure whatever the test expects."""
        self._recorder.taken()
        command = [
            VENV / "bin" / "vastai",
            "--url",
            self.url,
            "--api-key",
            key or self.key,
            *(["--raw"] if raw else []),
        ]
        done = subprocess.run(
            [*command, *words],
            env=environment(self._home, self.url),
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        name = "vastai " + " ".join(w for w in words if not w.startswith("-"))
        out = done.stdout if raw else COLOURS.sub("", done.stdout)
        result = Result(name, self._recorder.taken(), code=done.returncode, out=out, err=done.stderr)
        self._remember(result, list(words))
        assert "Traceback" not in done.stderr, f"{name}: {done.stderr}"
        if raw and done.stdout.strip():
            result.value = json.loads(done.stdout)
        return result

    def sdk(self, call: str, *args: Any, on: str = "VastAI", key: str = "", retry: int = 3, **kwargs: Any) -> Result:
        """`VastAI(...).call(*args, **kwargs)`; `error` instead of `value` when it raised."""
        self._recorder.taken()
        order = {"url": self.url, "key": key or self.key, "retry": retry}
        reply = self._driver.tell({**order, "on": on, "call": call, "args": args, "kwargs": kwargs})
        exchanges = self._recorder.taken()
        result = Result(f"{on}.{call}", exchanges, reply.get("value"), reply.get("error", {}), out=reply["printed"])
        self._remember(result, [list(args), kwargs])
        return result

    def redacted_calls(self) -> list[Call]:
        """All calls so far, as they may be kept."""
        return [Call.of_json(self._recorder.redacted(asdict(call), self.url)) for call in self.calls]

    def _remember(self, result: Result, asked: list[Any]) -> None:
        self.results.append(result)
        understood = result.error or (result.value if result.value is not None else result.out)
        self.calls.append(Call(result.name, asked, result.exchanges, understood))
