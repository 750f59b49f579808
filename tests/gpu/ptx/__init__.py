"""Runs the PTX of our kernels on the CPU: `parse` reads it, `flow` finds its blocks, `lower` and `operations` write
LLVM, `compiled` makes machine code of that, `machine` launches it. What it can't show: ptxas, the memory model,
speed.
"""

from tests.gpu.ptx.machine import LaunchError, Module, ascending, shuffled
from tests.gpu.ptx.parse import Unsupported

__all__ = ["LaunchError", "Module", "Unsupported", "ascending", "shuffled"]
