"""What machines wrote, harmless to look at: control characters become signs, colours become names of styles.

Only SGR sequences (ECMA-48, 8.3.117) mean anything here: `ESC [ ... m`. Every other escape, links (OSC 8) included, is
text with a visible sign for ESC. Colours are few and named, so that a page can show each with enough contrast; text can
be neither hidden nor blink. Each line starts afresh.
"""

from __future__ import annotations

import colorsys
import re
from dataclasses import dataclass, replace

# Characters that change how the text around them is shown, or are not shown at all: C0 (but tab and
# newline) and C1 controls, zero-width and bidirectional marks, line separators, tags, a lone surrogate.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
_SGR = re.compile("\x1b\\[([0-9;:]{0,64})m")
MAX_PARTS = 64
"""Of one line: what comes after keeps the last style."""

HUES = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan")
_BASIC = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "")  # white is the page's own colour
_CUBE = (0, 95, 135, 175, 215, 255)  # xterm's 6 x 6 x 6 colours

Part = tuple[str, str]
"""(text, names of styles with spaces between)."""


def _seen(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)  # the control picture, e.g. ␛
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def visible(text: str) -> str:
    """`text` with every control and bidirectional character replaced by a sign that can be seen."""
    return _UNSEEN.sub(_seen, text)


@dataclass(frozen=True)
class _Style:
    ink: str = ""
    paper: str = ""
    marks: frozenset[str] = frozenset()

    @property
    def names(self) -> str:
        ink, paper, marks = self.ink, self.paper, self.marks
        if "reverse" in marks and (ink or paper):
            ink, paper, marks = paper, ink, marks - {"reverse"}
        named = [f"ink-{ink}"] if ink else []
        named += [f"paper-{paper}"] if paper else []
        return " ".join([*named, *sorted(f"sgr-{mark}" for mark in marks)])


_MARKS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike", 21: "underline"}
_UNMARKS = {22: {"bold", "dim"}, 23: {"italic"}, 24: {"underline"}, 27: {"reverse"}, 29: {"strike"}}


def parts(text: str) -> list[Part]:
    """The line in pieces of one style each; the pieces' text, joined, is the visible text without its colour codes."""
    if "\x1b" not in text:
        return [(visible(text), "")] if text else []  # nearly every line
    found: list[Part] = []
    style, at = _Style(), 0
    for match in _SGR.finditer(text):
        _add(found, visible(text[at : match.start()]), style.names)
        style, at = _after(style, match[1]), match.end()
    _add(found, visible(text[at:]), style.names)
    return found


def plain(text: str) -> str:
    """The line's visible text, without its colour codes."""
    return visible(_SGR.sub("", text))


def _add(found: list[Part], text: str, names: str) -> None:
    if not text:
        return
    if found and (found[-1][1] == names or len(found) >= MAX_PARTS):
        found[-1] = (found[-1][0] + text, found[-1][1])
    else:
        found.append((text, names))


def _after(style: _Style, given: str) -> _Style:
    """The style after the codes `given`; codes that are unknown, hide or blink change nothing."""
    codes = [int(code or 0) for code in given.replace(":", ";").split(";")]
    at = 0
    while at < len(codes):
        code = codes[at]
        at += 1
        if code == 0:
            style = _Style()
        elif code in _MARKS:
            style = replace(style, marks=style.marks | {_MARKS[code]})
        elif code in _UNMARKS:
            style = replace(style, marks=style.marks - _UNMARKS[code])
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style = replace(style, ink=_BASIC[code % 10])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style = replace(style, paper=_BASIC[code % 10])
        elif code in (39, 49):
            style = replace(style, ink="") if code == 39 else replace(style, paper="")
        elif code in (38, 48):
            hue, at = _extended(codes, at, colons=":" in given)
            style = replace(style, ink=hue) if code == 38 else replace(style, paper=hue)
    return style


def _extended(codes: list[int], at: int, *, colons: bool) -> tuple[str, int]:
    """The hue of `5;n` or `2;r;g;b` (with colons, a colour space before r), and where the codes go on."""
    kind = codes[at] if at < len(codes) else 0
    if kind == 5 and at + 1 < len(codes):
        return _indexed(codes[at + 1]), at + 2
    if kind == 2:
        first = at + 2 if colons and len(codes) - at >= 5 else at + 1
        if first + 3 <= len(codes):
            return _hue(codes[first], codes[first + 1], codes[first + 2]), first + 3
    return "", len(codes)


def _indexed(n: int) -> str:
    if n < 16:
        return _BASIC[n % 8]
    if n < 232:
        n -= 16
        return _hue(_CUBE[n // 36], _CUBE[n // 6 % 6], _CUBE[n % 6])
    return "grey" if n < 248 else ""


def _hue(red: int, green: int, blue: int) -> str:
    """The nearest of the named colours; '' for what is near white."""
    r, g, b = (min(value, 255) / 255 for value in (red, green, blue))
    hue, lightness, _ = colorsys.rgb_to_hls(r, g, b)
    if max(r, g, b) - min(r, g, b) < 0.16:
        return "grey" if lightness < 0.7 else ""
    bounds = ((20, "red"), (75, "yellow"), (165, "green"), (200, "cyan"), (262, "blue"), (335, "magenta"))
    return next((name for until, name in bounds if hue * 360 < until), "red")
