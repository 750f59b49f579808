"""Joules of proofs, from samples of power: integrated, shared by those in flight, and never made up."""

from __future__ import annotations

import random

import pytest

from jobs.domain.models import Instance, Run
from jobs.receipts.receipt import body_of
from jobs.story.energy import Energy, energies
from jobs.story.joules import keep_joules
from logs.chunks import ChunkCutter
from tests.jobs.scene import Scene

HEADER = "time_ms,index,name,power_w"


def stream(seconds: range, watts: list[float], gap: range = range(0)) -> list[str]:
    """A sample a second of each GPU."""
    rows = [f"{1000 * s},{i},RTX,{w}" for s in seconds if s not in gap for i, w in enumerate(watts)]
    return [HEADER, *rows]


def test_steady_power_over_the_time_of_each_proof() -> None:
    found = energies(stream(range(100), [300.0]), [(10_000, 20_000), (30_500, 31_250)])
    assert [energy.joules for energy in found] == [3000.0, 225.0]


def test_a_ramp_is_integrated_between_the_samples() -> None:
    lines = [HEADER, "0,0,RTX,100", "2000,0,RTX,300"]
    (found,) = energies(lines, [(500, 1500)])
    assert found.joules == pytest.approx(200.0)


def test_proofs_at_once_share_the_power_of_all_gpus() -> None:
    times = [(0, 10_000), (5000, 15_000)]
    alone_and_shared = energies(stream(range(20), [200.0, 100.0]), times)
    assert [energy.joules for energy in alone_and_shared] == [1500 + 750, 750 + 1500]


def test_the_sum_over_proofs_is_the_energy_of_the_time_in_which_any_was_made() -> None:
    dice = random.Random(5)
    for _ in range(50):
        times = []
        for _ in range(dice.randrange(1, 9)):
            begin = dice.randrange(0, 50_000)
            times.append((begin, begin + dice.randrange(1, 40_000)))
        covered = len({ms for begin, end in times for ms in range(begin, end)})
        found = energies(stream(range(100), [250.0]), times)
        assert sum(energy.joules or 0 for energy in found) == pytest.approx(250 * covered / 1000, abs=0.01)


def test_what_is_unknown_says_why() -> None:
    no_gpu = ["no GPU telemetry on this machine (libnvidia-ml.so.1 is missing)"]
    assert energies(no_gpu, [(0, 1000)]) == [Energy(None, no_gpu[0])]
    assert energies([], [(0, 1000)]) == [Energy(None, "there is no GPU telemetry")]
    assert energies([HEADER, "0,0,RTX,", "1000,0,RTX,"], [(0, 1000)])[0].why == "the GPU's driver tells no power"
    holes = energies(stream(range(100), [300.0], gap=range(20, 60)), [(10_000, 50_000), (0, 9000), None, (5, 5)])
    assert [energy.joules for energy in holes] == [None, 2700.0, None, None]
    assert "22 % of the time" in holes[0].why
    assert holes[2].why == holes[3].why == "the machine did not say how long the proof took"
    one_silent = [*stream(range(10), [300.0]), "0,1,RTX,50", "1000,1,RTX,50"]
    assert energies(one_silent, [(0, 9000)])[0].joules is None


def test_nonsense_in_the_stream_is_left_out() -> None:
    good = stream(range(20), [300.0])
    bad = ["5000,0,RTX,nan", "x,0,RTX,1", "6000,0,RTX,-3", "7000,0,RTX,1e9", '"', "\x00,,", "3000,0,RTX,9", HEADER]
    mixed = [*good[:12], *bad, *good[12:]]
    assert energies(mixed, [(0, 19_000)]) == energies(good, [(0, 19_000)])


def test_sealing_keeps_the_joules_of_each_proof_and_the_receipt_tells_them(scene: Scene) -> None:
    agent = scene.working(proofs=2)
    began = scene.clock()
    agent.ship("gpu", "\n".join([HEADER, *(f"{began + 1000 * s},0,RTX,300" for s in range(-5, 20))]) + "\n")
    scene.clock.advance(10)
    agent.prove(0)  # which took 900 ms, as it says
    scene.clock.advance(20)
    agent.prove(1)
    scene.tick_until(lambda: scene.instance(agent.instance_id).state == "sealing")
    agent.seal()
    scene.tick_until(lambda: scene.instance(agent.instance_id).evidence != "")
    first, second = scene.proofs(agent.run_id)
    assert first.joules == pytest.approx(270)
    assert second.joules is None
    assert "0 % of the time" in second.joules_why
    with scene.context.sessions() as session:
        run, instance = session.get_one(Run, agent.run_id), session.get_one(Instance, agent.instance_id)
        told = [body_of("c", run, instance, proof)["energy"] for proof in (first, second)]
    assert told == [{"joules": first.joules, "unknown": ""}, {"joules": None, "unknown": second.joules_why}]


@pytest.mark.parametrize(("behind_s", "joules"), [(0, 270), (-3600, 270), (3600, None)])
def test_a_machine_whose_clock_is_wrong(scene: Scene, behind_s: int, joules: float | None) -> None:
    """Ahead of ours it is found out by what came before it was sent; behind it may as well be a slow network."""
    agent = scene.working(proofs=1)
    theirs = scene.clock() - 1000 * behind_s
    lines = "\n".join([HEADER, *(f"{theirs + 1000 * s},0,RTX,300" for s in range(-5, 20))]) + "\n"
    cutter = ChunkCutter("gpu")
    cutter.feed(lines.encode(), theirs)
    cut = cutter.cut(theirs)
    assert cut is not None
    agent.send("gpu", *cut)
    scene.clock.advance(10)
    agent.prove(0)
    scene.tick_until(lambda: scene.proofs(agent.run_id)[0].verdict == "valid")
    keep_joules(scene.context, scene.instance(agent.instance_id))
    (proof,) = scene.proofs(agent.run_id)
    assert proof.joules == (None if joules is None else pytest.approx(joules))
    assert ("clock" in proof.joules_why) == (joules is None)
