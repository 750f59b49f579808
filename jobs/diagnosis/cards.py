"""What the names of cards tell: their compute capability, beside the code that a program says it holds.

Source: NVIDIA's tables of CUDA GPUs. Machine code for X.y runs on X.z where z >= y (CUDA C++ Programming Guide, binary
compatibility); a program that holds PTX may be compiled for any newer card, so nothing is said of those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jobs.diagnosis.clues import Clue
from jobs.diagnosis.report import Evidence

_CAPABILITY = (
    (r"RTX ?50[5-9]0|RTX PRO \d{4}|GB20\d", (12, 0)),
    (r"\bG?B300\b", (10, 3)),
    (r"\bG?B[12]00\b", (10, 0)),
    (r"\bG?H(?:100|200|800|20)\b", (9, 0)),
    (r"RTX ?40[5-9]0|\bL4(?:0S?)?\b|RTX \d{4} Ada", (8, 9)),
    (r"RTX ?30[5-9]0|RTX A\d{4}|\bA(?:10G?|16|40|2)\b", (8, 6)),
    (r"\bA(?:100|30|800)\b", (8, 0)),
    (r"RTX ?20[6-8]0|GTX ?16[5-6]0|\bT4\b|Quadro RTX", (7, 5)),
    (r"\bV100\b|Titan V\b", (7, 0)),
    (r"GTX ?10[5-8]0|\bP(?:40|4)\b", (6, 1)),
    (r"\bP100\b", (6, 0)),
)
_CARD = re.compile("|".join(f"(?P<c{i}>{names})" for i, (names, _) in enumerate(_CAPABILITY)))
_CODE = re.compile(r"\bsm_?(\d{1,2})(\d)[af]?\b", re.IGNORECASE)
_HOLDS = re.compile(
    r"modules?|arch|built|compiled|fat ?bin|cubin|targets?\b|kernels?|gencode|sass|code for|device code", re.IGNORECASE
)


def capability(text: str) -> tuple[int, int] | None:
    """The compute capability of the card that `text` names; None where it names none that is known."""
    found = _CARD.search(text)
    return _CAPABILITY[int(str(found.lastgroup)[1:])][1] if found else None


def card_without_code(card: str, lines: Iterable[Evidence]) -> Iterator[Clue]:
    """A program's list of the cards that it has code for, without the card at hand. `card`: as the facts name it."""
    has, named = capability(card), None
    for line in lines:
        if has is None and (has := capability(line.text)):
            named = line
        code = [(int(major), int(minor)) for major, minor in _CODE.findall(line.text)]
        if not has or not code or not _HOLDS.search(line.text) or re.search(r"ptx|compute_", line.text, re.IGNORECASE):
            continue
        if not any(major == has[0] and minor <= has[1] for major, minor in code):
            words = f"the card has compute capability {has[0]}.{has[1]}, the program's code is for others"
            test = "Code for that capability, or PTX, in the program (cuobjdump --list-elf --list-ptx)."
            yield Clue("no_kernel_image_for_gpu", 0.6, words, [line, *([named] if named else [])], test)
            return
