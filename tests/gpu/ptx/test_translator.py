"""The translator itself: what it computes, and that it sees what a GPU would punish."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.gpu.ptx import LaunchError, Module, Unsupported, ascending, shuffled
from tests.gpu.ptx.machine import Order

pytestmark = pytest.mark.prover

HEADER = ".version 9.0\n.target sm_86\n.address_size 64\n"

# Each thread puts its number into shared memory, waits, and reads that of its neighbour.
ROTATE = (
    HEADER
    + """
.visible .entry rotate(.param .u64 rotate_param_0) .maxntid 64, 1, 1
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [rotate_param_0];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    mov.u64 %rd3, tile;
    add.s64 %rd4, %rd3, %rd2;
    mad.lo.s32 %r2, %r1, 7, 3;
    st.shared.u32 [%rd4], %r2;
    bar.sync 0;
    add.s32 %r3, %r1, 1;
    and.b32 %r4, %r3, 63;
    mul.wide.u32 %rd5, %r4, 4;
    add.s64 %rd6, %rd3, %rd5;
    ld.shared.u32 %r5, [%rd6];
    add.s64 %rd7, %rd1, %rd2;
    st.global.u32 [%rd7], %r5;
    ret;
}
"""
)


def kernel(body: str, registers: str = ".reg .pred %p<9>; .reg .b32 %r<30>; .reg .b64 %rd<30>;") -> str:
    return (
        f"{HEADER}.visible .entry k(.param .u64 k_param_0)\n{{ {registers}\n ld.param.u64 %rd1, [k_param_0];\n{body} }}"
    )


def run(text: str, n_words: int, threads: int = 1, order: Order = ascending, symbol: str = "k") -> list[int]:
    out = np.zeros(n_words, np.uint32)
    Module(text).launch(symbol, 1, threads, [out.ctypes.data], order, [(out.ctypes.data, out.nbytes)])
    return out.tolist()


def test_with_its_barrier_a_kernel_gives_the_same_for_every_order() -> None:
    wanted = [7 * ((i + 1) % 64) + 3 for i in range(64)]
    for order in (ascending, shuffled(1), shuffled(2), lambda threads: threads[::-1]):
        assert run(ROTATE, 64, 64, order, "rotate") == wanted


def test_a_missing_barrier_shows_in_another_order() -> None:
    broken = ROTATE.replace("bar.sync 0;", "")
    results = [run(broken, 64, 64, order, "rotate") for order in (ascending, shuffled(1))]
    assert results[0] != results[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[%rd7], %r5", "[%rd7+4], %r5"), "thread 63: st.global.u32 .*4 bytes at .* outside of every buffer"),
        (("[%rd7], %r5", "[%rd7+2], %r5"), "not aligned to 4 bytes"),
        (("%r5, [%rd6]", "%r5, [%rd6+252]"), "ld.shared.u32 .* outside of every buffer"),
        (("ret;", "trap;"), "trap was reached"),
        (("bar.sync 0;", "setp.eq.s32 %p1, %r1, 5; @%p1 bra $L1; bar.sync 0; $L1: bar.sync 0;"), "different barriers"),
    ],
    ids=["outside", "unaligned", "shared", "trap", "divergent"],
)
def test_what_a_gpu_punishes_is_an_error_with_its_place(change: tuple[str, str], message: str) -> None:
    assert change[0] in ROTATE
    with pytest.raises(LaunchError, match=message):
        run(ROTATE.replace(*change), 64, 64, symbol="rotate")


def test_a_launch_that_does_not_fit_is_refused() -> None:
    module, out = Module(ROTATE), np.zeros(1, np.uint32)
    with pytest.raises(LaunchError, match="at most 64"):
        module.launch("rotate", 1, 65, [out.ctypes.data])
    with pytest.raises(LaunchError, match="2 arguments, 1 parameters"):
        module.launch("rotate", 1, 1, [out.ctypes.data, 1])


@pytest.mark.parametrize(
    "text",
    ["sin.approx.u32 %r1, %r2;", "bar.sync 1;", "add.f64 %rd1, %rd2, %rd3;", "vote.sync.any.pred %p1, %p2, -1;"],
)
def test_unknown_instructions_are_named(text: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(text.rstrip(";"))):
        Module(kernel(f"{text} ret;"))


def test_floating_point_registers_are_refused() -> None:
    with pytest.raises(Unsupported, match="f64"):
        Module(kernel("ret;", ".reg .b64 %rd<2>; .reg .f64 %fd<2>;"))


def test_a_warp_barrier_waits_for_its_warp_only() -> None:
    """The second warp ends at once; the first goes on without it, past a barrier that only its own threads reach."""
    body = """
    mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra $L_end;
    bar.warp.sync -1; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;
    $L_end: ret;"""
    assert run(kernel(body), 32, 64) == list(range(32))


X, Y, Z = 0x89ABCDEF, 0x76543210, 0x0000001D
INSTRUCTIONS = {
    "mul.hi.u32 %r9, %r1, %r2": X * Y >> 32,
    "mul.hi.s32 %r9, %r1, %r2": (X - (1 << 32)) * Y >> 32,
    "mad.lo.s32 %r9, %r1, %r2, %r3": X * Y + Z,
    "sub.s32 %r9, %r3, %r1": Z - X,
    "shl.b32 %r9, %r1, %r3": X << 29,
    "shl.b32 %r9, %r1, 32": 0,
    "shr.u32 %r9, %r1, 40": 0,
    "shr.s32 %r9, %r1, 40": -1,
    "shr.s32 %r9, %r1, 4": (X - (1 << 32)) >> 4,
    "shf.l.wrap.b32 %r9, %r1, %r2, 8": Y << 8 | X >> 24,
    "shf.r.wrap.b32 %r9, %r1, %r2, 40": (Y << 32 | X) >> 8,
    "brev.b32 %r9, %r1": int(f"{X:032b}"[::-1], 2),
    "clz.b32 %r9, %r3": 27,
    "popc.b32 %r9, %r1": X.bit_count(),
    "bfe.u32 %r9, %r1, 4, 12": X >> 4 & 0xFFF,
    "bfe.u32 %r9, %r1, 28, 12": X >> 28,
    "bfi.b32 %r9, %r1, %r2, 8, 12": Y & ~0xFFF00 | (X & 0xFFF) << 8,
    "prmt.b32 %r9, %r1, %r2, 0x7531": 0x76_32_89_CD,
    "prmt.b32 %r9, %r1, %r2, 0xb8f4": 0xFF_FF_00_10,
    "lop3.b32 %r9, %r1, %r2, %r3, 0x96": X ^ Y ^ Z,
    "min.s32 %r9, %r1, %r2": X,
    "max.u32 %r9, %r1, %r2": X,
    "div.u32 %r9, %r1, %r3": X // Z,
    "rem.u32 %r9, %r1, %r3": X % Z,
    "not.b32 %r9, %r1": ~X,
    "neg.s32 %r9, %r3": -Z,
    "abs.s32 %r9, %r1": (1 << 32) - X,
    "cvt.u32.u8 %r9, %r1": X & 0xFF,
    "cvt.s32.s16 %r9, %r1": (X & 0xFFFF) - (1 << 16),
    "setp.lt.s32 %p1, %r1, %r2; selp.b32 %r9, 1, 2, %p1": 1,
    "setp.lt.u32 %p1, %r1, %r2; selp.b32 %r9, 1, 2, %p1": 2,
    "mov.u32 %r9, 5; setp.eq.s32 %p1, %r1, %r2; @!%p1 mov.u32 %r9, 6": 6,
    "mov.b64 %rd9, {%r1, %r2}; shr.u64 %rd9, %rd9, 16; cvt.u32.u64 %r9, %rd9": (Y << 32 | X) >> 16,
    "sub.cc.u32 %r9, %r3, %r1; subc.u32 %r9, 0, 0": -1,
    "mad.lo.cc.u32 %r8, %r1, %r2, %r1; madc.hi.u32 %r9, %r1, %r2, 0": (X * Y + X) >> 32,
    "add.cc.u32 %r8, %r1, %r2; addc.u32 %r9, %r3, %r3": 2 * Z,
    "add.cc.u32 %r8, %r1, %r1; addc.u32 %r9, %r3, %r3": 2 * Z + 1,
    "st.global.u32 [%rd1], %r1; atom.global.add.u32 %r8, [%rd1], %r3; ld.global.u32 %r9, [%rd1]": X + Z,
    "st.global.u32 [%rd1], %r1; atom.global.max.u32 %r9, [%rd1], %r3": X,
    "st.global.u32 [%rd1], %r1; atom.global.cas.b32 %r8, [%rd1], %r1, %r3; ld.global.u32 %r9, [%rd1]": Z,
}


@pytest.mark.parametrize("text", INSTRUCTIONS)
def test_instructions(text: str) -> None:
    body = f"mov.u32 %r1, {X}; mov.u32 %r2, {Y}; mov.u32 %r3, {Z}; {text}; st.global.u32 [%rd1], %r9; ret;"
    assert run(kernel(body), 1) == [INSTRUCTIONS[text] & 0xFFFFFFFF]
