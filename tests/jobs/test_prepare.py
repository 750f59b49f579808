"""What a run needs before a machine is paid for: its key, its witnesses, the values that its proofs must be for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from types import ModuleType

import pytest
from pydantic import SecretStr
from sqlalchemy import func, select

from gpu.circuits import chain, merkle
from gpu.groth16.verify import verify_independent
from jobs.context import Context, use
from jobs.domain.models import Input, Run
from jobs.domain.runs import cancel_run
from jobs.domain.work import take
from jobs.prepare import prepare
from tests.fakes.market import lost
from tests.jobs.proofs import snarkjs
from tests.jobs.scene import Scene


def test_each_proof_gets_a_witness_of_its_own(scene: Scene) -> None:
    run_id, _ = scene.placed(proofs=4)
    proofs = scene.proofs(run_id)
    assert [p.index for p in proofs] == [0, 1, 2, 3]
    assert len({p.witness_sha256 for p in proofs}) == len({p.expected_public[0] for p in proofs}) == 4
    for proof in proofs:
        data = scene.context.store.get(proof.witness_key, 1 << 20)
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (proof.witness_sha256, proof.witness_bytes)
        # The first value of a chain's witness is its public output.
        assert int.from_bytes(data[-10 * 32 + 32 : -10 * 32 + 64], "little") == int(proof.expected_public[0])
    assert scene.run(run_id).zkey_id is not None


def test_delivered_twice_it_makes_and_places_once(scene: Scene) -> None:
    run_id, _ = scene.placed()
    before = [p.witness_sha256 for p in scene.proofs(run_id)]
    prepare(run_id, 1)
    prepare(run_id, 2)
    assert [p.witness_sha256 for p in scene.proofs(run_id)] == before
    assert len(scene.instances()) == 1
    assert scene.run(run_id).claim_token is None


def test_uploaded_witnesses_say_what_their_proofs_must_be_for(scene: Scene) -> None:
    key, witness = scene.upload_fixture()
    run_id, _ = scene.placed(circuit=None, zkey_id=key, witness_ids=[witness], proofs=3)
    proofs = scene.proofs(run_id)
    assert [p.expected_public for p in proofs] == [snarkjs("public")] * 3
    with scene.context.sessions() as session:
        vkey = session.get_one(Input, key).vkey
    assert vkey is not None
    verify_independent(vkey, proofs[0].expected_public, snarkjs("proof"))


def test_no_offer_within_the_limits_ends_the_run(scene: Scene) -> None:
    scene.market.offer("o1", 0.72)
    run_id = scene.request(max_dollars_per_hour=0.5)
    prepare(run_id, 1)
    assert scene.run(run_id).state == "failed"
    assert "over the limit" in scene.run(run_id).reason
    assert scene.market.sold == []


def test_an_unknown_provider_ends_the_run(scene: Scene) -> None:
    run_id = scene.request(provider="mars")
    prepare(run_id, 1)
    assert scene.run(run_id).state == "failed"
    assert "no provider is called 'mars'" in scene.run(run_id).reason


def test_a_provider_that_is_down_is_waited_for(scene: Scene) -> None:
    scene.market.offer("o1")
    run_id = scene.request()
    scene.market.on("scan", "before", lost)
    prepare(run_id, 1)
    run = scene.run(run_id)
    assert (run.state, run.claim_token, run.wake_at_ms) == ("queued", None, scene.clock() + 5000)
    assert run.stage.startswith("waiting")
    assert len(scene.events("offers.scan_failed")) == 1
    scene.clock.advance(5)
    prepare(run_id, 2)
    assert scene.run(run_id).state == "active"


def test_an_archive_that_is_down_is_waited_for(scene: Scene, make_context: Callable[..., Context]) -> None:
    scene.market.offer("o1")
    run_id = scene.request()
    use(make_context(s3_endpoint="http://127.0.0.1:1", s3_secret_access_key=SecretStr("x")))
    prepare(run_id, 1)
    assert scene.run(run_id).state == "queued"
    assert scene.proofs(run_id) == []
    use(scene.context)
    prepare(run_id, 2)
    assert scene.run(run_id).state == "active"


def test_cancelled_meanwhile_it_places_nothing(scene: Scene) -> None:
    scene.market.offer("o1")
    run_id = scene.request()
    scene.market.on("scan", "after", lambda: cancel_run(scene.context, run_id, "anna", "no") and None)
    prepare(run_id, 1)
    assert scene.run(run_id).state == "cancelled"
    assert scene.instances() == []


def test_a_worker_that_dies_is_followed_by_another(scene: Scene) -> None:
    scene.market.offer("o1")
    run_id = scene.request()
    assert take(scene.context, Run, run_id, ("queued",)) is not None  # and then SIGKILL
    prepare(run_id, 1)
    assert scene.run(run_id).state == "queued"
    scene.clock.advance(13)
    prepare(run_id, 2)
    assert scene.run(run_id).state == "active"


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("circuit", "built_in"), [("chain/4/bls12381", chain), ("merkle/4/bls12381", merkle)])
def test_the_key_of_a_built_in_circuit_is_made_once(scene: Scene, circuit: str, built_in: ModuleType) -> None:
    """By our own commands, for real."""
    scene.market.offer("o1")
    scene.market.offer("o2")
    runs = [scene.request(circuit=circuit, proofs=1) for _ in range(2)]
    for run_id in runs:
        prepare(run_id, 1)
        assert scene.run(run_id).state == "active", scene.told()
    with scene.context.sessions() as session:
        made = session.scalars(select(Input).where(Input.circuit == circuit)).one()
        assert session.scalar(select(func.count()).select_from(Input)) == 2
    assert made.facts["n_vars"] == len(built_in.witness(4, "bls12381", 3))
    assert made.facts["n_public"] == len(built_in.public(4, "bls12381", 3))
    assert made.vkey is not None
    assert scene.context.store.head(made.object_key).bytes == made.size_bytes
