"""On a CPU without AVX-512 IFMA, tests of the vector back end run its emulation. The cache of kernels is named after
that, so it must be known before any kernel is imported. Nothing uses the emulation unasked.
"""

import os

from gpu.field import isa

if isa.host_missing():
    os.environ["PROVEFLEET_IFMA_EMULATED"] = "1"
    for answer in (isa.emulated, isa.host_missing, isa.vector_missing):
        answer.cache_clear()
