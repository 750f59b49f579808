"""An agent that is left in peace: from registration to exit."""

from __future__ import annotations

import hashlib
import json
import sys

from gpu.protocol import Command
from tests.fakes.controller import BOOTSTRAP, TOKEN, wait_for
from tests.gpu.agent.conftest import Rig


def test_from_registration_to_exit(rig: Rig) -> None:
    controller = rig.prepare("broken:1", proofs=3)
    rig.run()
    progress = rig.ended()
    assert (progress.exit_code, progress.signal, progress.error) == (0, "", "")
    assert (progress.done, progress.failed, progress.total) == (3, 1, 3)
    assert rig.seal_and_exit() == 0

    facts = controller.registered[0].facts
    assert facts["cpu_cores"] >= 1
    assert facts["ram_bytes"] > 0
    assert [controller.results[1, i].ok for i in range(3)] == [True, False, True]
    assert controller.results[1, 0].machine_ms == 10.0
    assert controller.results[1, 0].timings_ms == {"msm": 5.0}
    assert "does not satisfy" in controller.results[1, 1].error
    text = rig.bench().decode()
    assert text.startswith("payload begins, key has 200000 bytes\n")
    assert text.endswith("payload ends without a newline")
    assert "registered as instance" in controller.raw["setup"].decode()
    assert set(controller.artifacts) == {"round-1/progress.jsonl", "round-1/1/error.txt"}

    seal = controller.seals[-1]
    assert seal.exit_codes == {"params": None, "benchmark": 0, "bench": 0}
    assert set(seal.stages_ms) == {"params", "benchmark"}
    assert seal.streams["bench"].raw_bytes == len(rig.bench())
    assert seal.streams["bench"].lines == rig.bench().count(b"\n")
    assert not list((rig.work / "witnesses").glob("*")), "witnesses are deleted"


def test_results_belong_to_the_index_of_their_witness(rig: Rig) -> None:
    """Tasks come in any order; the third proof is the third witness's."""
    controller = rig.prepare(proofs=4)
    rig.run()
    rig.ended()
    for i in range(4):
        assert controller.results[1, i].public == [hashlib.sha256(f"witness 1 {i}".encode()).hexdigest()]
    rig.seal_and_exit()


def test_leases_carry_progress_and_telemetry(rig: Rig) -> None:
    controller = rig.prepare("slow", proofs=6)
    rig.run()
    rig.ended()
    counts = [lease.progress.done for _, lease in controller.leases if lease.progress.stage == "benchmark"]
    assert counts == sorted(counts)
    assert any(0 < count < 6 for count in counts)
    assert controller.last().telemetry["disk_free_bytes"] > 0
    gaps = [b - a for (a, _), (b, _) in zip(controller.leases, controller.leases[1:], strict=False)]
    assert max(gaps) < 1.5
    assert rig.seal_and_exit() == 0
    assert "seal" in controller.last().acknowledged


def test_a_second_round_runs_the_benchmark_again(rig: Rig) -> None:
    controller = rig.prepare(proofs=2, rounds=2)
    rig.run()
    rig.ended()
    controller.commands = [Command("round", "a near miss", 2)]
    rig.ended(round_number=2)
    assert controller.pulls == [1, 2]
    assert sorted(controller.results) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert rig.seal_and_exit() == 0


def test_chunks_come_while_the_stream_grows(rig: Rig) -> None:
    """At most 2 s after the prover wrote it, a line is in the archive; the tail has it sooner."""
    controller = rig.prepare("hang", proofs=1)
    rig.run()
    wait_for(lambda: len(controller.records.get("bench", [])) >= 3)
    assert all(record.t_last_ms - record.t_first_ms <= 2000 for record in controller.records["bench"])
    archived = len(rig.bench())
    wait_for(lambda: sum(len(data) for _, data in controller.tails["bench"]) >= archived)
    first_line, data = controller.tails["bench"][0]
    assert first_line == 1
    assert data.startswith(b"payload begins")
    rig.seal_and_exit()


def test_the_prover_sees_none_of_the_agents_secrets(rig: Rig) -> None:
    controller = rig.prepare("env", f"secret:{TOKEN}", f"secret:{BOOTSTRAP}", env={"DECLARED": "yes"})
    rig.run()
    rig.ended()
    rig.seal_and_exit()
    environment = json.loads(next(line for line in rig.bench().splitlines() if line.startswith(b"{")))
    assert environment["DECLARED"] == "yes"
    assert environment["HOME"] == str(rig.work)
    assert "PROVEFLEET_BOOTSTRAP_TOKEN" not in environment
    assert "PROVEFLEET_AGENT_URL" not in environment
    assert "HOST_SECRET" not in environment
    shipped = b"".join(controller.raw.values()) + b"".join(d for t in controller.tails.values() for _, d in t)
    for secret in (TOKEN, BOOTSTRAP):
        assert secret.encode() not in shipped
        assert secret not in rig.said()


def test_a_daemon_answers_before_tasks_are_pulled_and_files_are_streams(rig: Rig) -> None:
    daemon = (
        "import socket, sys, time\n"
        "time.sleep(1)\n"
        "print('daemon up', flush=True)\n"
        "open('own.log', 'a').write('a line of its own\\n')\n"
        "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n"
        "while True: s.accept()\n"
    )
    controller = rig.prepare(
        proofs=1,
        stage={
            "daemon": [sys.executable, "-c", daemon, "{work}/d.sock"],
            "daemon_socket": "d.sock",
            "files": {"service": "own.log"},
        },
    )
    pulled_early = []
    controller.answer = lambda path: pulled_early.append((rig.work / "d.sock").exists()) if "pull" in path else None
    rig.run()
    assert rig.ended().exit_code == 0
    assert rig.seal_and_exit() == 0
    assert pulled_early == [True]
    assert controller.raw["daemon"] == b"daemon up\n"
    assert controller.raw["service"] == b"a line of its own\n"
