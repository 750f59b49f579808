"""The stages: fetching the parameters, then commands that prove. Each returns whether the next may follow."""

from __future__ import annotations

import re
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

from gpu.agent.account import Account
from gpu.agent.client import Client, Refused, Unreachable, delays
from gpu.agent.environment import Environment, child_environment, own_command
from gpu.agent.fetch import FetchFailed, FetchStopped, fetch, fetch_cached
from gpu.agent.follower import Follower
from gpu.agent.orders import Orders, Status
from gpu.agent.proofs import ProgressFile, ProofFolders, ResultPoster
from gpu.agent.runner import CannotStart, Ended, Program
from gpu.agent.shipper import Shipper
from gpu.protocol import Pull, Spec, StageCommand, Task

POLL_S = 0.1
DAEMON_WAIT_S = 300.0
DEFAULT_STAGE_S = 3600.0
FETCHES_AT_ONCE = 4
DRAIN_S = 20.0
_PLACEHOLDER = re.compile(r"\{(work|params|witnesses|proofs|progress)\}")


class StageFailed(Exception):
    """The stage can't go on; the text is what the operator reads."""


class Stages:
    """Runs stages, one at a time, from the main thread."""

    def __init__(
        self, environment: Environment, spec: Spec, client: Client, shipper: Shipper, status: Status, orders: Orders
    ):
        self.account = Account(environment.image_digest)
        self.follower = Follower(shipper.log)
        self.follower.start()
        self._environment, self._spec, self._client = environment, spec, client
        self._shipper, self._status, self._orders = shipper, status, orders
        self._params = environment.work / "params"
        self._witnesses = environment.work / "witnesses"
        self._at = ("", 1)  # the stage that runs, and its round

    def run(self, stage: str, round_number: int) -> bool:
        """Run `stage` to its end, or until an order stops it. False: it failed or was stopped, nothing may follow."""
        began = time.monotonic()
        deadline = began + self._spec.deadlines_s.get(stage, DEFAULT_STAGE_S)
        self._shipper.log(f"stage {stage}, round {round_number}: begins")
        ended, trouble = Ended(None), ""
        try:
            if stage == "params":
                self._fetch_params(deadline)
            elif stage in self._spec.commands:
                ended = self._run_command(stage, round_number, deadline)
            else:
                raise StageFailed(f"the spec has no command for stage {stage}")
        except (StageFailed, FetchFailed, CannotStart) as error:
            trouble = str(error)
        except FetchStopped as error:
            trouble = f"stopped: {error}"
        self.account.stage_ended(stage, (time.monotonic() - began) * 1000, ended)
        self._shipper.log(f"stage {stage}, round {round_number}: {trouble or _words(stage, ended)}")
        self._status.end(ended.exit_code, ended.signal, trouble)
        return not trouble and not ended.signal and ended.exit_code in (0, None)

    def delete_witnesses(self) -> None:
        """They are the customer's secret and no evidence."""
        shutil.rmtree(self._witnesses, ignore_errors=True)

    def rounds_folder(self, round_number: int) -> Path:
        return self._environment.work / "rounds" / str(round_number)

    def _fetch_params(self, deadline: float) -> None:
        total = sum(item.size_bytes for item in self._spec.params)
        self._status.begin("params", 1, total)
        self._params.mkdir(mode=0o700, exist_ok=True)
        before = 0
        for item in self._spec.params:
            self._status.update(note=f"fetching {item.name}")
            cached, was_there = fetch_cached(
                item, self._environment.cache, deadline, self._orders.stop_work, partial(self._fetched, before)
            )
            before += item.size_bytes
            link = self._params / item.name
            link.unlink(missing_ok=True)
            link.symlink_to(cached)
            how = "was in the cache" if was_there else "fetched"
            self._shipper.log(f"{item.name}: {how}, {item.size_bytes} bytes, sha256 {item.sha256}")

    def _fetched(self, before: int, have: int) -> None:
        self._status.update(done=before + have)

    def _run_command(self, stage: str, round_number: int, deadline: float) -> Ended:
        command = self._spec.commands[stage]
        self._status.begin(stage, round_number, self._spec.proofs)
        rounds = self.rounds_folder(round_number)
        (rounds / "proofs").mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, relative in command.files.items():
            self.follower.follow(self._environment.work, _inside(relative), self._shipper.stream(name))
        self._at = (stage, round_number)
        daemon = self._start_daemon(command, round_number) if command.daemon else None
        try:
            if daemon is not None:
                self._wait_for_daemon(daemon, self._address(command.daemon_socket), deadline)
            if command.warm_up:
                self._warm_up(self._arguments(command.warm_up, round_number, []), deadline)
            tasks = self._pull(stage, round_number)
            self._fetch_witnesses(tasks, deadline)
            ended = self._prove(self._arguments(command.command, round_number, tasks), round_number, tasks, daemon)
            return _with_the_daemon(ended, daemon.ended() if daemon is not None else None)
        finally:
            if daemon is not None:
                self._shipper.log(f"the daemon {daemon.ended() or daemon.stop()}")
            self.delete_witnesses()

    def _start_daemon(self, command: StageCommand, round_number: int) -> Program:
        argv = own_command([self._expand(argument, round_number) for argument in command.daemon])
        self._shipper.log(f"starts the daemon: {' '.join(argv)}")
        return self._program(argv, "daemon", "daemon")

    def _program(self, argv: list[str], stream: str, name: str) -> Program:
        environment = child_environment(self._environment.work, self._spec.env)
        tell = partial(self.account.program_ended, name, *self._at)
        return Program(argv, self._environment.work, environment, self._shipper.stream(stream), tell)

    def _wait_for_daemon(self, daemon: Program, address: str, deadline: float) -> None:
        """The clock of a round starts at the pull: a daemon that still warms up must not cost the machine time."""
        deadline = min(deadline, time.monotonic() + DAEMON_WAIT_S)
        while address and not _answers(address):
            if (ended := daemon.ended()) is not None:
                raise StageFailed(f"the daemon {ended} before it answered")
            if reason := self._orders.stop_work():
                raise FetchStopped(reason)
            if time.monotonic() > deadline:
                raise StageFailed(f"the daemon did not answer at {address} in time")
            time.sleep(POLL_S)

    def _warm_up(self, argv: list[str], deadline: float) -> None:
        """One proof before the clock starts: loading the key and compiling is not what is measured.

        It may fail: then the round's own proofs fail for the same reason, and say so one by one.
        """
        self._status.update(note="warming up")
        self._shipper.log(f"warms up: {' '.join(argv)}")
        program = self._program(argv, "bench", "warm-up")
        while (ended := program.ended()) is None:
            if reason := self._orders.stop_work():
                program.stop()
                raise FetchStopped(reason)
            if time.monotonic() > deadline:
                program.stop()
                raise StageFailed("the warm-up did not end in time")
            time.sleep(POLL_S)
        self._shipper.log(f"the warm-up {ended}")

    def _address(self, given: str) -> str:
        """host:port as it is; a socket's path, if relative, inside the work directory."""
        if not given or re.fullmatch(r"[^/]*:\d+", given):
            return given
        return str(self._environment.work / given.replace("{work}", str(self._environment.work)))

    def _pull(self, stage: str, round_number: int) -> list[Task]:
        waits = delays()
        while True:
            try:
                tasks = self._client.pull(Pull(stage, round_number)).tasks
                break
            except Refused as error:
                raise StageFailed(f"the controller gives no tasks: {error}") from error
            except Unreachable as error:
                self._shipper.log(f"no tasks yet: {error}")
            if reason := self._orders.stop_work():
                raise FetchStopped(reason)
            time.sleep(next(waits))
        tasks = sorted(tasks, key=lambda task: task.index)
        self._shipper.log(f"has {len(tasks)} tasks of round {round_number}")
        return tasks

    def _fetch_witnesses(self, tasks: list[Task], deadline: float) -> None:
        self._status.update(note="fetching witnesses")
        self._witnesses.mkdir(mode=0o700, exist_ok=True)

        def bring(task: Task) -> None:
            target = self._witnesses / f"{task.index}.wtns"
            if not target.exists():
                fetch(task.witness, target, deadline, self._orders.stop_work, lambda _: None)

        with ThreadPoolExecutor(FETCHES_AT_ONCE, thread_name_prefix="witness") as pool:
            for _ in pool.map(bring, tasks):
                pass

    def _prove(self, argv: list[str], round_number: int, tasks: list[Task], daemon: Program | None) -> Ended:
        rounds = self.rounds_folder(round_number)
        progress = ProgressFile(rounds / "progress.jsonl", self._status)
        folders = ProofFolders(rounds / "proofs", [task.index for task in tasks], round_number)
        poster = ResultPoster(self._client, self._status, self._shipper.log)
        poster.start()
        self._shipper.log(f"runs: {' '.join(argv[:60])}")
        program, missed = self._program(argv, "bench", "bench"), False
        while (ended := program.ended()) is None:
            if daemon is not None and not missed and (missed := daemon.ended() is not None):
                self._shipper.log(f"the daemon {daemon.ended()} while the stage goes on")
            progress.poll()
            for result in folders.new():
                poster.post(result)
            if reason := self._orders.stop_work():
                self._shipper.log(f"stops the stage: {reason}")
                ended = program.stop()
                break
            time.sleep(POLL_S)
        progress.poll()
        for result in folders.new():
            poster.post(result)
        self._wait_for_results(poster)
        return ended

    def _wait_for_results(self, poster: ResultPoster) -> None:
        """The end of a stage is told after its last result. Sealing waits a little only: evidence has a deadline."""
        patience = None
        while not poster.drained() and not self._orders.is_over():
            if patience is None and self._orders.seal_reason:
                patience = time.monotonic() + DRAIN_S
            if patience is not None and time.monotonic() > patience:
                self._shipper.log("results are left that the controller did not take in time")
                break
            time.sleep(POLL_S)
        poster.stop()

    def _arguments(self, command: list[str], round_number: int, tasks: list[Task]) -> list[str]:
        arguments: list[str] = []
        for argument in command:
            if argument == "{wtns...}":
                for task in tasks:
                    arguments += ["--wtns", str(self._witnesses / f"{task.index}.wtns")]
            else:
                arguments.append(self._expand(argument, round_number))
        return own_command(arguments)

    def _expand(self, argument: str, round_number: int) -> str:
        rounds = self.rounds_folder(round_number)
        values = {
            "work": self._environment.work,
            "params": self._params,
            "witnesses": self._witnesses,
            "proofs": rounds / "proofs",
            "progress": rounds / "progress.jsonl",
        }
        return _PLACEHOLDER.sub(lambda match: str(values[match[1]]), argument)


def _with_the_daemon(ended: Ended, daemon: Ended | None) -> Ended:
    """A bench whose daemon was killed saw only a connection break off: the signal is what the verdict must name."""
    if daemon is None or not daemon.signal or ended.signal:
        return ended
    return replace(ended, signal=daemon.signal, stopped=False)


def _words(stage: str, ended: Ended) -> str:
    return "done" if stage == "params" else str(ended)


def _inside(relative: str) -> str:
    path = Path(relative.removeprefix("{work}/"))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise StageFailed(f"the spec names a log file outside of the work directory: {relative[:100]!r}")
    return str(path)


def _answers(address: str) -> bool:
    """True if somebody accepts at a socket path, or at host:port."""
    try:
        if "/" in address:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1.0)
                connection.connect(address)
                return True
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=1.0):
            return True
    except (OSError, ValueError):
        return False
