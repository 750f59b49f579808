"""Figures asked for by meaning, whatever their names."""

from __future__ import annotations

from jobs.diagnosis.case import Case
from jobs.diagnosis.facts import (
    asked_for,
    bids,
    credit,
    cuda_versions,
    digests,
    ends,
    oom_kills,
    promises,
    rates,
    time_limit,
)


def test_how_processes_ended() -> None:
    facts = {
        "run": {"exit_codes": {"bench": 1}, "daemon_signal": "SIGKILL", "client_rc": 3},
        "fleet": {"exit_codes": {"x": 9}},
    }
    assert sorted(ends(Case(facts=facts))) == [("bench", 1, ""), ("client", 3, ""), ("daemon", None, "SIGKILL")]
    assert ends(Case(facts={"processes": {"exit": {"prover": "killed by SIGSEGV"}}}))[0][2] == "killed by SIGSEGV"


def test_rates_and_counts() -> None:
    facts = {"telemetry": {"throughput_per_hour": 31, "required_rate": 29, "receipts_ok": 7, "receipts_wanted": 8}}
    assert rates(Case(facts=facts)) == (31, 29, 7)
    assert asked_for(Case(facts=facts)) == 8
    assert rates(Case(facts={"provider": {"rate": 5}, "telemetry": {"bid_rate": 0.2}})) == (None, None, None)


def test_digests_and_versions() -> None:
    facts = {"image": {"repo_digest_wanted": "sha256:b7", "repo_digest_running": "sha256:1d"}}
    assert digests(Case(facts=facts)) == ("sha256:b7", "sha256:1d")
    assert digests(Case(facts={"image": {"ref": "x/y:stable"}})) == ("", "")
    facts = {"machine": {"cuda_max": "12.2"}, "container": {"cuda_toolkit": "12.8"}}
    assert cuda_versions(Case(facts=facts)) == ("12.2", "12.8")
    assert cuda_versions(Case(facts={"hardware": {"driver_version": "535.183.01"}})) == ("12.2", "")


def test_money_memory_and_time() -> None:
    assert credit(Case(facts={"account": {"user_credit": -0.4}})) == ("account.user_credit", -0.4)
    assert bids(Case(facts={"rental": {"our_bid": 0.21, "price_to_run_now": 0.27}})) == (0.21, 0.27)
    assert oom_kills(Case(facts={"container": {"before": {"oom_kill": 1}, "after": {"oom_kill": 3}}})) == 2
    assert time_limit(Case(facts={"run": {"limit_min": 30, "elapsed_s": 1801}})) == (1801, 1800)
    assert time_limit(Case(facts={"run": {"request_timeout_s": 30, "elapsed_s": 1801}})) is None


def test_what_was_promised_and_found() -> None:
    facts = {"offer": {"gpu_name": "RTX 4090", "cpu_cores": 32}, "hardware": {"gpu_model": "RTX 3090", "cpu_cores": 8}}
    assert sorted(promises(Case(facts=facts))) == [("cpu cores", "32", "8"), ("gpu", "RTX 4090", "RTX 3090")]
