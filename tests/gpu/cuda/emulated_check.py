"""The check of `gpu.cuda.check` on an emulated device, at toy sizes."""

from __future__ import annotations

import os
import sys

from gpu.cuda.check.__main__ import main
from gpu.cuda.check.setting import Setting, Sizes
from tests.gpu.ptx.device import EmulatedDevice

TOY = Sizes(
    launches=3,
    elements=256,
    rounds=2,
    transforms=(1, 4),
    distinct=8,
    sums_g1=(3, 5),
    sums_g2=(3,),
    bad=(0, 1, 6),
    proofs=(4,),
    verified=4,
)


class WrongDevice(EmulatedDevice):
    """One bit of what comes back is flipped."""

    def download(self, buffer, n_bytes=None, offset=0):  # type: ignore[no-untyped-def]
        out = super().download(buffer, n_bytes, offset)
        out[len(out) // 2] ^= 1
        return out


def setting(sizes: Sizes) -> Setting:
    """EMULATED_CHECK says what kind of GPU; GPU processes are those of `emulated_server`, without faults."""
    device = WrongDevice if os.environ.get("EMULATED_CHECK") == "wrong" else EmulatedDevice
    return Setting(device, (sys.executable, "-m", "tests.gpu.cuda.emulated_server", os.devnull), sizes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], (sys.executable, "-m", "tests.gpu.cuda.emulated_check"), setting, lambda: None, TOY))
