"""Keep what energy each valid proof of a machine took, once its logs are complete and before they are sealed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from jobs.domain import archive
from jobs.domain.models import Chunk, Instance, Proof
from jobs.domain.work import transaction
from jobs.story.energy import Energy, energies
from logs.reader import StreamReader
from logs.wire import ChunkRecord

if TYPE_CHECKING:
    from jobs.context import Context

STREAM = "gpu"
LATE_MS = 10_000
"""A chunk leaves within 2 s and arrives: where all came later than this, the two clocks or the network are off."""
MAX_BYTES = 256 << 20


def keep_joules(context: Context, instance: Instance) -> None:
    """Write the joules of each valid proof that `instance` made, or why they are not known.

    Doing it again gives the same. Raises `logs.errors.StoreError` while the stream can't be read.
    """
    with context.sessions() as session:
        made = (Proof.instance_id == instance.id, Proof.verdict == "valid")
        columns = (Proof.id, Proof.pulled_ms, Proof.received_ms, Proof.machine_ms)
        proofs = session.execute(select(*columns).where(*made).order_by(Proof.id)).all()
        shift = _clock_shift_ms(session, instance.id) if proofs else 0
        reader = _reader(context, session, instance) if proofs else None
    times = [_time(pulled, received, took, shift or 0) for _, pulled, received, took in proofs]
    if shift is None:
        found = [Energy(None, "the machine's clock could not be set against ours") for _ in proofs]
    else:
        found = energies(_lines(reader) if reader else (), times)
    with transaction(context) as session:
        for (proof_id, *_), energy in zip(proofs, found, strict=True):
            proof = session.get_one(Proof, proof_id)
            proof.joules, proof.joules_why = energy.joules, energy.why[:200]


def _time(
    pulled_ms: int | None, received_ms: int | None, took_ms: float | None, shift_ms: int
) -> tuple[float, float] | None:
    """When the proof was made, by the machine's clock; never before its task was handed out."""
    if pulled_ms is None or received_ms is None or not took_ms or took_ms <= 0:
        return None
    return max(float(pulled_ms), received_ms - took_ms) - shift_ms, float(received_ms - shift_ms)


def _clock_shift_ms(session: Session, instance_id: str) -> int | None:
    """Milliseconds by which our clock is ahead of the machine's, as its quickest chunk shows; None where it can't tell.

    What came soon after it was stamped shows two clocks that agree. What came before it was stamped shows one that is
    ahead. What came late may be either a slow clock or a slow network.
    """
    lag = func.min(Chunk.received_ms - Chunk.t_last_ms)
    least = session.scalar(select(lag).where(Chunk.instance_id == instance_id, Chunk.stream == STREAM))
    if least is None or 0 <= least <= LATE_MS:
        return 0
    return int(least) if least < 0 else None


def _reader(context: Context, session: Session, instance: Instance) -> StreamReader | None:
    mine = (Chunk.instance_id == instance.id, Chunk.stream == STREAM)
    records = [ChunkRecord(*row) for row in session.execute(select(*archive.RECORD).where(*mine).order_by(Chunk.seq))]
    places = archive.places_of(session, instance.id)[STREAM]
    run = instance.run_id or "none"
    return StreamReader(context.store, run, instance.id, STREAM, records, places) if records else None


def _lines(reader: StreamReader) -> Iterator[str]:
    """The lines of the stream as they come; what is over the limit is not read."""
    rest, size = b"", 0
    for piece in reader.raw():
        size += len(piece)
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
        rest = rest[-4096:]
        if size > MAX_BYTES:
            return
    yield rest.decode("utf-8", "replace")
