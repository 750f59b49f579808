"""Provider `local`: rents out the machine we run on, for owners of GPU workstations.

An instance is a folder `<state>/local/<provider id>/` with `instance.json`. The folder `<state>/local` has
one lock; who rents holds it, and the launcher inherits it until `instance.json` is written: so a rent that is
killed anywhere leaves either nothing (a folder without that file, swept by the next rent) or an instance that
is listed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.market.providers import base
from jobs.market.providers.base import AccountFacts, ChargeFacts, Listing, OfferFacts, Order, ProviderInstance
from jobs.market.providers.local_launcher import INSTANCE_FILE, LOG_FILE
from jobs.market.providers.local_offers import LocalOffer, all_offers
from jobs.market.providers.local_processes import StillAlive, end_all, is_alive
from jobs.market.providers.local_start import short_name, start_agent
from jobs.settings import Settings

LOCK_WAIT_S = 15.0
POLITE_S = 3.0
HARD_S = 10.0
_PROVIDER_ID = re.compile(r"[0-9a-f]{16}")
_ENV_NAME = re.compile(r"PROVEFLEET_[A-Z0-9_]{1,60}")
_AGENT = (sys.executable, "-P", "-m", "gpu.agent")


class LocalProvider:
    """See `base.Provider`. Any number of processes may use one state folder at the same time."""

    name = "local"
    remote = False
    bills = False

    def __init__(self, settings: Settings, agent_command: tuple[str, ...] = _AGENT):
        self._settings = settings
        self._root = settings.state_dir.resolve() / "local"
        self._agent_command = agent_command

    def scan(self) -> list[OfferFacts]:
        """Offers of this machine that nobody rents."""
        with self._locked(), _translated("look at this machine"):
            taken = self._taken()
            return [o.offer for o in all_offers(self._settings, self._root) if not o.overlaps(*taken)]

    def rent(self, order: Order) -> str:
        """Start an agent on that offer, in no image."""
        offer_id, label, env = order.offer_id, order.label, order.env
        bad = [name for name, value in env.items() if not _ENV_NAME.fullmatch(name) or "\0" in value]
        if bad or "\0" in label:
            raise base.RentalRefused(f"{bad or 'this label'} is no environment for an agent: only PROVEFLEET_*, no NUL")
        with self._locked() as lock_fd, _translated("start a local instance"):
            self._sweep()
            offer = self._free_offer(offer_id)
            provider_id = secrets.token_hex(8)
            folder = self._root / provider_id
            folder.mkdir(mode=0o700)
            start_agent(self._settings, folder, offer, label, env, self._agent_command, lock_fd)
            return provider_id

    def list(self) -> Listing:
        """Everything that runs, ended, or can't be read here; always complete, or an error."""
        with self._locked(), _translated("list local instances"):
            return Listing(True, [self._instance(folder) for folder in self._folders()])

    def request_logs(self, provider_id: str) -> dict[str, Any]:
        """They lie in the instance's folder."""
        if self._folder(provider_id) is None:
            raise base.NoSuchInstance(f"local instance {provider_id} is not there (any more)")
        return {"provider_id": provider_id}

    def fetch_logs(self, ticket: dict[str, Any], max_bytes: int) -> dict[str, bytes]:
        """What the agent printed to stdout and stderr."""
        return {"provider.log": self._log(ticket["provider_id"], max_bytes)}

    def account(self) -> AccountFacts | None:
        """Nobody charges for one's own machine."""
        return None

    def charges(self, begin_ms: int, end_ms: int) -> Sequence[ChargeFacts]:
        """None, see `account`."""
        return ()

    def _log(self, provider_id: str, max_bytes: int) -> bytes:
        folder = self._folder(provider_id)
        if folder is None:
            raise base.NoSuchInstance(f"local instance {provider_id} is not there (any more)")
        try:
            with open(folder / LOG_FILE, "rb", opener=lambda p, f: os.open(p, f | os.O_NOFOLLOW)) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - max_bytes))
                return file.read(max_bytes)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise base.ProviderUnavailable(f"the log of {provider_id} can't be read: {error}") from error

    def destroy(self, provider_id: str) -> None:
        """End every process of the instance, then remove its folder: until then it stays listed."""
        folder = self._folder(provider_id)
        if folder is None:
            return
        record = _read_record(folder)
        try:
            end_all(record.get("label", ""), _identity(record), POLITE_S, HARD_S)
        except (StillAlive, PermissionError) as error:
            raise base.ProviderUnavailable(f"{provider_id} does not end: {error}; try again") from error
        gone = self._root / f".gone-{provider_id}"
        with self._locked(), _translated("remove a local instance"):
            try:
                folder.rename(gone)
            except FileNotFoundError:
                return
            short_name(self._settings, folder).unlink(missing_ok=True)
        shutil.rmtree(gone, ignore_errors=True)  # what is left is swept by the next rent

    @contextmanager
    def _locked(self) -> Iterator[int]:
        with _translated("open the folder of local instances"):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_fd = os.open(self._root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            deadline = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise base.ProviderUnavailable("the local market is locked; try again") from error
                    time.sleep(0.02)
            yield lock_fd
        finally:
            os.close(lock_fd)

    def _folders(self) -> Sequence[Path]:
        named = (f for f in self._root.iterdir() if _PROVIDER_ID.fullmatch(f.name))
        return sorted(f for f in named if (f / INSTANCE_FILE).exists())

    def _folder(self, provider_id: str) -> Path | None:
        if not _PROVIDER_ID.fullmatch(provider_id):
            return None
        folder = self._root / provider_id
        return folder if folder.is_dir() else None

    def _sweep(self) -> None:
        """Remove what a killed rent or destroy left. Under the lock nobody is between folder and file."""
        for folder in self._root.iterdir():
            unborn = _PROVIDER_ID.fullmatch(folder.name) and not (folder / INSTANCE_FILE).exists()
            if unborn or folder.name.startswith(".gone-"):
                shutil.rmtree(folder, ignore_errors=True)

    def _taken(self) -> tuple[set[int], set[str]]:
        cores: set[int] = set()
        gpus: set[str] = set()
        for folder in self._folders():
            record = _read_record(folder)
            cores.update(record.get("cores", ()))
            gpus.update(filter(None, [record.get("gpu_uuid", "")]))
        return cores, gpus

    def _free_offer(self, offer_id: str) -> LocalOffer:
        for offer in all_offers(self._settings, self._root):
            if offer.offer.offer_id == offer_id:
                if offer.overlaps(*self._taken()):
                    raise base.OfferGone(f"local offer {offer_id} is rented; take another, or wait")
                return offer
        raise base.OfferGone(f"this machine has no offer {offer_id} (any more); scan again")

    def _instance(self, folder: Path) -> ProviderInstance:
        record = _read_record(folder)
        identity = _identity(record)
        if identity is None:
            status, detail = base.UNKNOWN, f"{INSTANCE_FILE} can't be read"
        elif is_alive(*identity):
            status, detail = base.RUNNING, f"pid {identity[0]}"
        else:
            status, detail = base.EXITED, f"agent process {identity[0]} is gone"
        return ProviderInstance(
            provider_id=folder.name,
            label=str(record.get("label", "")),
            status=status,
            machine_id=str(record.get("machine_id", "")),
            dollars_per_hour=float(record.get("dollars_per_hour", 0.0)),
            detail=detail,
        )


def _read_record(folder: Path) -> dict[str, Any]:
    try:
        record = json.loads((folder / INSTANCE_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _identity(record: dict[str, Any]) -> tuple[int, int, str] | None:
    try:
        return int(record["pid"]), int(record["start_ticks"]), str(record["boot_id"])
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turns trouble with files and processes into the errors of `base`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise base.RentalRefused(f"can't {what}: the disk is full; free some space") from error
        raise base.ProviderUnavailable(f"can't {what}: {error}") from error
