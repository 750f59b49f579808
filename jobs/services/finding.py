"""One line of `provefleet doctor`, and how a check is kept from spoiling the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from jobs.settings import Settings

Level = Literal["ok", "warn", "FAIL"]
Check = Callable[[Settings], Iterator["Finding"]]


@dataclass(frozen=True)
class Finding:
    """`fix` says what to do; empty when all is well."""

    level: Level
    name: str
    detail: str
    fix: str = ""

    def lines(self) -> str:
        text = f"{self.level:<4}  {self.name:<16}  {self.detail}"
        return text + (f"\n      {'':<16}  -> {self.fix}" if self.fix else "")


def ok(name: str, detail: str) -> Finding:
    return Finding("ok", name, detail)


def warn(name: str, detail: str, fix: str) -> Finding:
    return Finding("warn", name, detail, fix)


def fail(name: str, detail: str, fix: str) -> Finding:
    return Finding("FAIL", name, detail, fix)


def findings(checks: dict[str, Check], settings: Settings, timeout_s: float) -> Iterator[Finding]:
    """The findings of all checks, one after the other; one that raises or takes longer than `timeout_s` is a finding
    itself. Each has a thread for that, but never two at a time: SQLAlchemy can't be imported by two at once."""
    for name, check in checks.items():
        pool = ThreadPoolExecutor(max_workers=1)
        future = pool.submit(_listed, check, settings)
        try:
            error = future.exception(timeout=timeout_s)
        except TimeoutError:
            yield fail(
                name, f"the check is not done after {timeout_s:.0f} s", "Is this machine overloaded, or a disk gone?"
            )
            continue
        finally:
            pool.shutdown(wait=False)
        if error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
            yield fail(name, f"the check itself failed: {why}", "Please report this as a bug, with this line")
        else:
            yield from future.result()


def _listed(check: Check, settings: Settings) -> list[Finding]:
    return list(check(settings))


def masked(text: str, settings: Settings) -> str:
    """`text` without any secret of the settings: error messages of libraries may quote a URL with its password."""
    secrets = set()
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, SecretStr) and value.get_secret_value():
            secrets |= {value.get_secret_value()} - _harmless(settings)
            secrets.add(_password(value.get_secret_value()))
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _harmless(settings: Settings) -> set[str]:
    """URLs without a password are kept: a path to a socket or a file helps."""
    urls = (settings.redis_url.get_secret_value(), settings.database_url.get_secret_value())
    return {url for url in urls if not _password(url)}


def _password(url: str) -> str:
    try:
        return urlsplit(url).password or ""
    except ValueError:
        return ""
