"""No text is ever ruled out where it is, and hardly any is let through where it is not."""

from __future__ import annotations

import random

import numpy as np

from logs.grams import BYTES, bitmap, may_hold, needed


def log(seed: int, lines: int = 700) -> bytes:
    rng = random.Random(seed)
    return b"".join(
        b"2026-03-12T11:%02d INFO partition %d job %08x\n" % (i % 60, rng.randrange(99), rng.getrandbits(32))
        for i in range(lines)
    )


def test_every_part_of_a_chunk_is_found_in_it_in_any_case() -> None:
    raw = log(1) + "Ünïcode \x00 \xff".encode() + b"\xff\xfe"
    table = np.frombuffer(bitmap(raw), dtype=np.uint8)[None]
    rng = random.Random(2)
    for _ in range(500):
        at = rng.randrange(len(raw))
        part = raw[at : at + rng.randrange(1, 40)]
        for said in (part, part.upper(), part.lower()):
            assert may_hold(table, needed(said)).all(), said


def test_what_is_not_there_is_ruled_out() -> None:
    table = np.stack([np.frombuffer(bitmap(log(seed)), dtype=np.uint8) for seed in range(40)])
    assert table.shape == (40, BYTES)
    assert may_hold(table, needed(b"CUDA_ERROR_OUT_OF_MEMORY")).sum() == 0
    assert may_hold(table, needed(b"partition")).all()


def test_short_texts_rule_out_nothing() -> None:
    table = np.frombuffer(bitmap(b""), dtype=np.uint8)[None]
    assert may_hold(table, needed(b"ab")).all()
    assert not may_hold(table, needed(b"abc")).any()
