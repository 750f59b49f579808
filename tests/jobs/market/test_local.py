"""Provider `local`, with real processes on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.context import Context
from jobs.market import provider
from jobs.market.providers import base
from jobs.market.providers.base import Order
from jobs.market.providers.local import LocalProvider
from jobs.market.providers.local_processes import boot_id, carriers, is_alive, start_ticks
from jobs.settings import Settings
from tests.fakes.controller import wait_for

LABEL = "provefleet:{}:0123456789abcdef"
STAY = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(300)")
TREE = (
    sys.executable,
    "-c",
    "import subprocess, time\n"
    "subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
    "print('up', flush=True)\n"
    "time.sleep(300)\n",
)


def logs(market: LocalProvider, provider_id: str, max_bytes: int) -> bytes:
    return market.fetch_logs(market.request_logs(provider_id), max_bytes)["provider.log"]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state", local_cores_per_offer=1)


@pytest.fixture
def label(tmp_path: Path) -> str:
    return LABEL.format(tmp_path.name)


@pytest.fixture
def make(settings: Settings) -> Iterator[Callable[..., LocalProvider]]:
    """Providers whose agent is a given program; whatever they rented ends with the test."""
    made: list[LocalProvider] = []

    def one(command: tuple[str, ...] = STAY, given: Settings = settings) -> LocalProvider:
        made.append(LocalProvider(given, command))
        return made[-1]

    yield one
    for market in made:
        for instance in market.list().instances:
            market.destroy(instance.provider_id)


def pid_of(market: LocalProvider, provider_id: str) -> int:
    (instance,) = (i for i in market.list().instances if i.provider_id == provider_id)
    return int(instance.detail.split()[-1])


def test_offers_describe_this_machine(make: Callable[..., LocalProvider], settings: Settings) -> None:
    offers = [o for o in make().scan() if not o.num_gpus]
    cores = os.sched_getaffinity(0)
    assert sum(o.cpu_cores for o in offers) == len(cores)
    assert [o.offer_id for o in offers] == [f"cpu-{core}" for core in sorted(cores)]
    everything = make(given=settings.model_copy(update={"local_cores_per_offer": 0, "local_dollars_per_hour": 0.5}))
    (whole,) = (o for o in everything.scan() if not o.num_gpus)
    assert whole.cpu_cores == len(cores)
    assert whole.dollars_per_hour == 0.5
    assert whole.cpu_model
    assert whole.ram_bytes > 1 << 20
    assert whole.disk_bytes > 1 << 20
    assert whole.facts["trusted"] is True
    raw = Path("/etc/machine-id").read_text().strip() if Path("/etc/machine-id").exists() else ""
    assert whole.machine_id
    assert whole.machine_id != raw
    assert make().scan()[0].machine_id == whole.machine_id


def test_rent_list_logs_destroy(make: Callable[..., LocalProvider], label: str, tmp_path: Path) -> None:
    market = make()
    offers = market.scan()
    provider_id = market.rent(Order(offers[0].offer_id, label, {"PROVEFLEET_BOOTSTRAP_TOKEN": "secret-token"}))
    listing = market.list()
    assert listing.complete
    (instance,) = listing.instances
    assert (instance.provider_id, instance.label, instance.status) == (provider_id, label, "running")
    assert instance.machine_id == offers[0].machine_id
    assert offers[0].offer_id not in [o.offer_id for o in market.scan()]
    assert len(market.scan()) == len(offers) - 1
    wait_for(lambda: logs(market, provider_id, 100) == b"up\n")
    assert logs(market, provider_id, 2) == b"p\n"
    folder = tmp_path / "state" / "local" / provider_id
    assert folder.stat().st_mode & 0o777 == 0o700
    assert "secret-token" not in (folder / "instance.json").read_text()

    pid = pid_of(market, provider_id)
    market.destroy(provider_id)
    market.destroy(provider_id)
    assert start_ticks(pid) is None
    assert market.list().instances == []
    assert [o.offer_id for o in market.scan()] == [o.offer_id for o in offers]
    assert not folder.exists()
    with pytest.raises(base.NoSuchInstance):
        logs(market, provider_id, 10)


def test_the_environment_is_clean_and_the_session_its_own(
    make: Callable[..., LocalProvider], label: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROVEFLEET_S3_SECRET_ACCESS_KEY", "the-archive-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-key")
    market = make()
    env = {"PROVEFLEET_AGENT_URL": "http://x", "PROVEFLEET_BOOTSTRAP_TOKEN": "t"}
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, env))
    pid = pid_of(market, provider_id)
    wait_for(lambda: logs(market, provider_id, 100))
    raw = Path(f"/proc/{pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    environment = dict(item.decode().split("=", 1) for item in raw)
    state = tmp_path / "state"
    assert environment == {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(state / "local" / provider_id),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "CUDA_VISIBLE_DEVICES": "",
        "NUMBA_CACHE_DIR": str(state / "cache" / "numba"),
        "PROVEFLEET_CACHE_DIR": str(state / "cache" / "params"),
        "PROVEFLEET_WORK_DIR": environment["PROVEFLEET_WORK_DIR"],
        "PROVEFLEET_AGENT_URL": "http://x",
        "PROVEFLEET_BOOTSTRAP_TOKEN": "t",
        "PROVEFLEET_LABEL": label,
    }
    assert b"PROVEFLEET_BOOTSTRAP_TOKEN" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert os.getsid(pid) == pid != os.getsid(0)
    assert os.getpgid(pid) == pid
    status = Path(f"/proc/{pid}/status").read_text()
    assert f"PPid:\t{os.getpid()}" not in status
    assert len(os.sched_getaffinity(pid)) == 1
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2"]


def test_only_our_variables_are_passed(make: Callable[..., LocalProvider], label: str) -> None:
    market = make()
    with pytest.raises(base.RentalRefused, match="LD_PRELOAD"):
        market.rent(Order(market.scan()[0].offer_id, label, {"LD_PRELOAD": "/tmp/x.so"}))
    assert market.list().instances == []


def test_two_racers_one_offer(make: Callable[..., LocalProvider], label: str) -> None:
    market = make()
    offer = market.scan()[0].offer_id
    won: list[str] = []
    lost: list[Exception] = []
    gate = threading.Barrier(4)

    def race(number: int) -> None:
        gate.wait()
        try:
            won.append(make().rent(Order(offer, f"{label}-{number}", {})))
        except base.OfferGone as error:
            lost.append(error)

    threads = [threading.Thread(target=race, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 3)
    assert len(market.list().instances) == 1


def test_an_unknown_offer_is_gone(make: Callable[..., LocalProvider], label: str) -> None:
    with pytest.raises(base.OfferGone):
        make().rent(Order("cpu-999", label, {}))


def test_an_agent_that_cant_start_leaves_nothing(make: Callable[..., LocalProvider], label: str) -> None:
    market = make(("/no/such/program",))
    with pytest.raises(base.RentalRefused, match="No such file"):
        market.rent(Order(market.scan()[0].offer_id, label, {}))
    assert market.list().instances == []
    assert make().rent(Order(market.scan()[0].offer_id, label, {}))


def test_an_ended_agent_is_listed_as_exited_and_still_holds_its_offer(
    make: Callable[..., LocalProvider], label: str
) -> None:
    market = make()
    offer = market.scan()[0].offer_id
    provider_id = market.rent(Order(offer, label, {}))
    os.kill(pid_of(market, provider_id), signal.SIGKILL)
    wait_for(lambda: market.list().instances[0].status == "exited")
    with pytest.raises(base.OfferGone):
        market.rent(Order(offer, label + "2", {}))
    market.destroy(provider_id)
    assert market.list().instances == []


def test_destroy_ends_what_the_agent_left_behind(make: Callable[..., LocalProvider], label: str) -> None:
    """The agent is dead; its child sits in another session: the label in its environment gives it away."""
    market = make(TREE)
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, {}))
    wait_for(lambda: logs(market, provider_id, 100))
    os.kill(pid_of(market, provider_id), signal.SIGKILL)
    wait_for(lambda: market.list().instances[0].status == "exited")
    assert len(carriers(label)) == 1
    market.destroy(provider_id)
    assert carriers(label) == []


def test_destroy_of_one_that_ignores_sigterm(make: Callable[..., LocalProvider], label: str) -> None:
    market = make(
        (
            sys.executable,
            "-c",
            "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(300)",
        )
    )
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, {}))
    wait_for(lambda: logs(market, provider_id, 100))
    pid = pid_of(market, provider_id)
    market.destroy(provider_id)
    assert start_ticks(pid) is None


def test_a_vanished_instance_is_not_listed(make: Callable[..., LocalProvider], label: str, tmp_path: Path) -> None:

    market = make()
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, {}))
    pid = pid_of(market, provider_id)
    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(tmp_path / "state" / "local" / provider_id)
    assert market.list().instances == []
    market.destroy(provider_id)


def test_a_pid_given_out_again_is_not_taken_for_ours(
    make: Callable[..., LocalProvider], label: str, tmp_path: Path
) -> None:
    market = make()
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, {}))
    os.kill(pid_of(market, provider_id), signal.SIGKILL)
    with subprocess.Popen(["sleep", "300"]) as stranger:
        file = tmp_path / "state" / "local" / provider_id / "instance.json"
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "pid": stranger.pid}))
        assert market.list().instances[0].status == "exited"
        market.destroy(provider_id)
        assert stranger.poll() is None
        stranger.kill()


def test_another_boot_means_exited() -> None:
    ticks = start_ticks(os.getpid())
    assert ticks is not None
    assert is_alive(os.getpid(), ticks, boot_id())
    assert not is_alive(os.getpid(), ticks, "another boot")
    assert not is_alive(os.getpid(), ticks + 1, boot_id())


def test_an_unreadable_record_is_listed_as_unknown_and_can_be_destroyed(
    make: Callable[..., LocalProvider], label: str, tmp_path: Path
) -> None:
    folder = tmp_path / "state" / "local" / ("0" * 16)
    folder.mkdir(parents=True)
    (folder / "instance.json").write_text("{half")
    market = make()
    (instance,) = market.list().instances
    assert (instance.status, instance.label) == ("unknown", "")
    market.destroy(instance.provider_id)
    assert market.list().instances == []


def test_a_long_state_path_leaves_room_for_sockets(
    make: Callable[..., LocalProvider], label: str, tmp_path: Path
) -> None:
    deep = Settings(state_dir=tmp_path / ("d" * 100) / "state")
    deep.state_dir.mkdir(parents=True)
    market = make(
        (
            sys.executable,
            "-c",
            "import os, socket, time\n"
            "socket.socket(socket.AF_UNIX).bind(os.environ['PROVEFLEET_WORK_DIR'] + '/daemon.sock')\n"
            "print('bound', flush=True); time.sleep(300)",
        ),
        deep,
    )
    provider_id = market.rent(Order(market.scan()[0].offer_id, label, {}))
    wait_for(lambda: logs(market, provider_id, 1000).endswith(b"bound\n"))
    market.destroy(provider_id)
    assert list(deep.sockets_dir.iterdir()) == []


STEPS = ("os.mkdir", "fcntl.flock", "subprocess.Popen", "os.listdir", "open", "os.rename")


def rent_in_a_fork(market: LocalProvider, offer: str, label: str, dies_before_step: int) -> int:
    """Rent in a process of its own, which SIGKILLs itself right before the n-th thing that it does to the outside
    world (0 on). Its pid."""
    if pid := os.fork():
        return pid
    left = dies_before_step

    def die(event: str, _: object) -> None:
        nonlocal left
        if event in STEPS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(die)
    try:
        market.rent(Order(offer, label, {}))
    finally:
        os._exit(0)


def test_a_rent_killed_anywhere_leaves_nothing_or_a_listed_instance(
    make: Callable[..., LocalProvider], label: str
) -> None:
    market = make()
    offer = market.scan()[0].offer_id
    outcomes = []
    for step in range(200):
        _, status = os.waitpid(rent_in_a_fork(market, offer, f"{label}-{step}", step), 0)
        listed = market.list().instances
        assert len(listed) <= 1
        outcomes.append(len(listed))
        if listed:
            assert listed[0].label == f"{label}-{step}"
            with pytest.raises(base.OfferGone):
                market.rent(Order(offer, label, {}))
            market.destroy(listed[0].provider_id)
        else:
            # Nothing may turn up later either: the offer can be had at once, and there is one instance then.
            market.destroy(market.rent(Order(offer, label, {})))
        assert carriers(f"{label}-{step}") == []
        if status == 0:
            break
    else:
        pytest.fail("rent has more steps than expected")
    assert 0 in outcomes
    assert outcomes[-1] == 1


def test_a_rent_killed_while_the_launcher_works(make: Callable[..., LocalProvider], label: str, tmp_path: Path) -> None:
    """`list` waits for a launcher whose rent was killed, so that nothing turns up after it."""
    market = make()
    offer = market.scan()[0].offer_id
    folder = tmp_path / "state" / "local"
    for step in range(6):
        pid = rent_in_a_fork(market, offer, f"{label}-{step}", 1000)
        wait_for(lambda: [f for f in folder.iterdir() if len(f.name) == 16])
        time.sleep(step * 0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        first = [i.label for i in market.list().instances]
        time.sleep(0.2)
        assert [i.label for i in market.list().instances] == first
        assert len(carriers(f"{label}-{step}")) == len(first)
        for instance in market.list().instances:
            market.destroy(instance.provider_id)
        market.destroy(market.rent(Order(offer, label, {})))  # sweeps


def test_it_is_the_provider_called_local(settings: Settings) -> None:
    assert provider(Context(settings), "local").name == "local"
    with pytest.raises(base.UnknownProvider, match="nimbus"):
        provider(Context(settings), "nimbus")
