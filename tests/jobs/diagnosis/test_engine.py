"""What the diagnosis concludes, on small cases of one question each."""

from __future__ import annotations

from pathlib import Path

from jobs.diagnosis.engine import diagnose
from jobs.diagnosis.load import load_case
from jobs.diagnosis.report import Report

SETUP = """[setup][entrypoint] 11:16:59 tunnels up: 1235 (controller), 1234 (lotus)
[setup][entrypoint] 11:20:48 Starting benchmark: 12 proofs, concurrency 3, partition-workers 16
[setup][entrypoint] 11:31:08 benchmark.sh exited with error
[setup][entrypoint] 11:31:08 Benchmark result: 0 proofs/hour
[setup][entrypoint] 11:31:09 Benchmark FAILED: 0 proofs/hour < min_rate 29.0
[setup][entrypoint] 11:31:09 Instance will be destroyed by manager.
"""
FACTS = """
[run]
stage_reached = "benchmark"
payload = "cuzk"
[hardware]
gpu_model = "RTX PRO 4000"
[telemetry]
proofs_reported = 0
rate_reported = 0.0
min_rate = 29.0
[fleet]
recent = "a few hours before, workers failed because the tunnel lacked port 1234"
"""


def report(folder: Path, **files: str) -> Report:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return diagnose(load_case(folder))


def causes_of(said: Report, *, refuted: bool = False) -> list[str]:
    return [h.cause for h in said.hypotheses if h.refuted == refuted]


def test_the_incident_with_the_daemons_log(tmp_path: Path) -> None:
    daemon = (
        "loading srs\n" * 30 + "CUDA error: no kernel image is available for execution on the device\n" + "idle\n" * 200
    )
    said = report(tmp_path, setup_log=SETUP, daemon_log=daemon, case_toml=FACTS)
    assert (said.stage, said.outcome) == ("benchmark", "failed")
    assert said.top is not None
    assert said.top.cause == "no_kernel_image_for_gpu"
    assert said.top.likelihood > 0.8
    assert (said.top.evidence[0].file, said.top.evidence[0].line) == ("daemon.log", 31)
    tunnel = next(h for h in said.hypotheses if h.cause == "tunnel_down")
    assert tunnel.refuted
    assert "does not use a tunnel" in tunnel.why
    assert "neither the digest that was meant nor the one that ran" in said.image


def test_the_incident_as_it_was_without_the_decisive_log(tmp_path: Path) -> None:
    said = report(tmp_path, setup_log=SETUP, case_toml=FACTS)
    assert all(h.likelihood < 0.3 for h in said.hypotheses)
    assert said.missing == ["daemon.log", "bench.log"]
    assert "daemon.log" in said.next_step


def test_a_fix_of_yesterday_counts_for_nothing(tmp_path: Path) -> None:
    facts = FACTS.replace("a few hours before", "FIXED TODAY, minutes ago")
    lately = report(tmp_path / "a", setup_log=SETUP, case_toml=facts)
    before = report(tmp_path / "b", setup_log=SETUP, case_toml=FACTS)
    assert [(h.cause, h.likelihood) for h in lately.hypotheses] == [(h.cause, h.likelihood) for h in before.hypotheses]


def test_another_digest_than_the_one_meant(tmp_path: Path) -> None:
    facts = FACTS + '[image]\nexpected_digest = "sha256:aa"\ndigest = "sha256:bb"\n'
    said = report(tmp_path, daemon_log="error: unexpected argument '--workers' found\n", case_toml=facts)
    assert causes_of(said)[0] == "stale_image"
    assert "sha256:aa was meant, sha256:bb ran" in said.image
    same = report(tmp_path, case_toml=facts.replace("bb", "aa"))
    assert "stale_image" in causes_of(same, refuted=True)


def test_a_payload_that_declares_its_tunnel_can_fail_by_it(tmp_path: Path) -> None:
    setup = "Warning: remote port forwarding failed for listen port 1234\n"
    facts = '[run]\nstage_reached = "benchmark"\n'
    assert "tunnel_down" in causes_of(report(tmp_path, setup_log=setup, case_toml=facts), refuted=True)
    declared = facts + '[stages.benchmark]\ndepends_on = ["gpu", "tunnel:1234"]\n'
    assert causes_of(report(tmp_path, setup_log=setup, case_toml=declared))[0] == "tunnel_down"


def test_a_killed_daemon_and_the_kernels_word_are_one_story(tmp_path: Path) -> None:
    kernel = "[1.0] x\n[8123.4] Memory cgroup out of memory: Killed process 1911 (cuzk-daemon) total-vm:4kB\n"
    bench = "Error: transport error: connection reset by peer\nbatch aborted after one error\n"
    facts = '[run]\nstage_reached = "benchmark"\nsignals = { daemon = "SIGKILL" }\n'
    said = report(tmp_path, kernel_log=kernel, bench_log=bench, case_toml=facts)
    assert causes_of(said)[0] == "host_oom_cgroup"
    assert {e.file for e in said.hypotheses[0].evidence} == {"kernel.log", "case.toml"}
    aborted = next(h for h in said.hypotheses if h.cause == "client_aborts_batch")
    assert "a consequence of" in aborted.why


def test_trouble_that_passed_is_refuted_by_the_line_that_says_so(tmp_path: Path) -> None:
    setup = "tunnel to the controller lost\ntunnel re-established\n"
    said = report(
        tmp_path,
        setup_log=setup,
        case_toml='[run]\nstage_reached = "serve"\n',
        service_log="thread panicked at x.rs:1: index out of bounds\n",
    )
    tunnel = next(h for h in said.hypotheses if h.cause == "tunnel_down")
    assert tunnel.refuted
    assert "it passed: tunnel re-established" in tunnel.why
    still = report(tmp_path, setup_log=setup.replace("re-established", "could not be established again"))
    assert not next(h for h in still.hypotheses if h.cause == "tunnel_down").refuted


def test_a_run_that_ended_well_says_none_first(tmp_path: Path) -> None:
    facts = "[telemetry]\nrate_reported = 31\nmin_rate = 29\nproofs_reported = 12\n[run]\nexit_codes = { bench = 0 }\n"
    said = report(
        tmp_path, daemon_log="CUDA_ERROR_OUT_OF_MEMORY\n", bench_log="12/12 proofs verified\n", case_toml=facts
    )
    assert said.outcome == "ok"
    assert said.hypotheses[0].cause == "none"
    assert all(h.refuted for h in said.hypotheses[1:])
    missed = report(tmp_path, case_toml=facts.replace("31", "3"))
    assert missed.outcome == "failed"


def test_where_nothing_speaks_what_is_common_in_the_stage_is_named_with_little_likelihood(tmp_path: Path) -> None:
    said = report(tmp_path, setup_log="working\n", case_toml='[run]\nstage_reached = "params"\n')
    common = [h for h in said.hypotheses if "nothing speaks for it" in h.why]
    assert {"param_fetch_network", "param_checksum"} <= {h.cause for h in common}
    assert all(h.likelihood <= 0.05 for h in common)


def test_words_of_no_known_wording_name_a_cause(tmp_path: Path) -> None:
    said = report(tmp_path, daemon_log="the polynomial arena does not fit into the GPU: 31 GiB of 24 GiB\n")
    assert causes_of(said)[0] == "cuda_oom"
    denied = report(
        tmp_path, daemon_log="if the arena does not fit into the GPU, lower the window (see the documentation)\n"
    )
    assert "cuda_oom" not in [h.cause for h in denied.hypotheses if h.evidence]


def test_a_client_that_stops_at_one_refusal_of_a_healthy_prover(tmp_path: Path) -> None:
    bench = "Traceback (most recent call last):\nAioRpcError: RESOURCE_EXHAUSTED, 8 of 8 slots taken, try again\n"
    said = report(tmp_path, bench_log=bench, daemon_log="statement 1 proved\nstatement 2 proved\n")
    assert causes_of(said)[0] == "client_aborts_batch"


def test_the_report_travels_as_json(tmp_path: Path) -> None:
    said = report(tmp_path, setup_log=SETUP, case_toml=FACTS)
    assert Report.from_json(said.to_json()) == said
    assert {"stage", "outcome", "hypotheses", "next_step"} <= set(said.to_json())
