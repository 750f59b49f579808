"""The bench's own look at what the daemon answered: a daemon behind --url may be anyone's."""

from __future__ import annotations

import json
from typing import Any

from gpu.errors import ProofRejected, ProverError
from gpu.groth16.formats import Proof, parse_proof, parse_public, parse_vkey, vkey_from_zkey
from gpu.groth16.wtns import read_public
from gpu.report import Options, Outcome


def check_answers(options: Options, outcomes: list[Outcome]) -> dict[int, ProofRejected]:
    """The answers, by index, that are no proofs of what was asked for: they do not verify, are for other public
    values than the witness has, or were given before (two honest proofs are never equal).

    ProverError when the key itself can't be read.
    """
    answers = [(outcome.index, outcome.answer) for outcome in outcomes if outcome.answer is not None]
    if not answers:
        return {}
    from gpu.groth16 import own  # needs numba: only when there is something to check

    vkey = parse_vkey(vkey_from_zkey(options.zkey))
    expected = {wtns: read_public(wtns, len(vkey.ic) - 1) for wtns in dict.fromkeys(options.wtns)}
    rejected: dict[int, ProofRejected] = {}
    items: list[tuple[int, list[int], Proof]] = []
    seen: set[str] = set()
    for index, answer in sorted(answers):
        try:
            public, proof = parse_public(answer["public"], vkey), parse_proof(answer["proof"], vkey.curve)
        except ProverError as error:
            rejected[index] = error if isinstance(error, ProofRejected) else ProofRejected(str(error))
            continue
        if public != expected[options.wtns[index % len(options.wtns)]]:
            rejected[index] = ProofRejected("it is for other public values than the witness has")
        elif (text := _text(answer)) in seen:
            rejected[index] = ProofRejected("the same proof was given before")
        else:
            seen.add(text)
            items.append((index, public, proof))
    verdicts = own.check_many(vkey, [(public, proof) for _, public, proof in items])
    found = {index: verdict for (index, *_), verdict in zip(items, verdicts, strict=True) if verdict is not None}
    return rejected | found


def _text(answer: dict[str, Any]) -> str:
    return json.dumps(answer["proof"], sort_keys=True)
