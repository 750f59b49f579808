"""Montgomery products of one element as x86-64 assembly: MULX with the two carry chains of ADCX and ADOX.

LLVM makes one carry chain of an i128 product and moves every carry into a register and back; the two flags of ADX let
the low and the high halves of a row be added at once (Ozturk, Guilford, Gopal, Feghali, "New instructions supporting
large integer arithmetic on Intel architecture processors", 2012). The rows are those of `limbs`: CIOS, no carry limb.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from gpu.field.params import Field

_I64 = ir.IntType(64)


def montgomery(b: ir.IRBuilder, field: Field, x: Any, y: Any) -> list[Any]:
    """The limbs of x*y/R mod p, below x*y/R + p, for elements in memory at x and y, aligned anyhow. Sums on
    the way are below x + p, which must fit the limbs.
    """
    n = field.limbs
    text, order = _text(n)
    registers = n + 4
    returns = ir.LiteralStructType([_I64] * registers)
    kind = ir.FunctionType(returns, [_I64.as_pointer()] * 3)
    constraints = ["=&r"] * registers + ["r"] * 3 + ["~{rdx}", "~{cc}", "~{memory}"]
    assembly = ir.InlineAsm(kind, text, ",".join(constraints), side_effect=True)
    out = b.call(assembly, [x, y, b.bitcast(_constants(b.module, field), _I64.as_pointer())])
    return [b.extract_value(out, register) for register in order]


def _text(n: int) -> tuple[str, list[int]]:
    """The instructions, and which outputs hold the result. Operands $0..$n: the sum; then a low half, a high half and
    zero; then the pointers to x, y and the constants, which are p and -p^-1 mod 2^64.
    """
    total = list(range(n + 1))
    low, high, zero, x, y, constants = (f"${n + k}" for k in range(1, 7))
    clear = f"xorl ${{{n + 3}:k}}, ${{{n + 3}:k}}"  # zero, and both carry flags

    def row(source: str) -> list[str]:
        """The sum plus the factor in rdx times the number at `source`."""
        lines = [clear]
        for j in range(n):
            lines.append(f"mulxq {8 * j}({source}), {low}, {high}")
            lines.append(f"adcxq {low}, ${total[j]}")
            lines.append(f"adoxq {high}, ${total[j + 1]}")
        return [*lines, f"adcxq {zero}, ${total[n]}"]

    lines = []
    for i in range(n):
        lines.append(f"movq {8 * i}({y}), %rdx")
        if i:
            lines += row(x)
        else:
            lines += [clear, f"mulxq ({x}), ${total[0]}, ${total[1]}"]
            for j in range(1, n):
                lines += [f"mulxq {8 * j}({x}), {low}, ${total[j + 1]}", f"adcxq {low}, ${total[j]}"]
            lines.append(f"adcxq {zero}, ${total[n]}")
        lines += [f"movq {8 * n}({constants}), %rdx", f"imulq ${total[0]}, %rdx", *row(constants)]
        # The lowest limb is zero now, and becomes the highest one of the next row.
        total = [*total[1:], total[0]]
    return "\n".join(lines), total[:n]


def _constants(module: ir.Module, field: Field) -> Any:
    name = f"provefleet_modulus_{field.name}"
    existing = module.globals.get(name)
    if existing is not None:
        return existing
    words = [field.modulus >> (64 * i) & (2**64 - 1) for i in range(field.limbs)] + [field.n0]
    kind = ir.ArrayType(_I64, len(words))
    table = ir.GlobalVariable(module, kind, name)
    table.initializer = ir.Constant(kind, words)
    table.global_constant = True
    table.linkage = "private"
    return table
