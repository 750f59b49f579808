"""What a secret looks like in text: expressions as data, for `logs.redact`. Stdlib only: the agent imports this.

Every expression runs on a lower-cased line, and only where one of its needles, plain text, occurs in that line. Of many
lines at once, a few gates are looked for before that, so that ordinary output costs some memory scans. All repeats are
bounded: time is linear whatever a program prints. The group that matched is what gets masked. Sources: the formats that
the issuers document, and those that secret scanners look for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """`gates`: one of them must occur somewhere, in a word of 20 characters if `in_long_word`; `needles`: one of them
    in the line itself; `pattern`: its last group that matched is the secret."""

    gates: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    needles: tuple[bytes, ...] = ()
    in_long_word: bool = False


# What stands between a name and its value: a closing quote (escaped, where JSON holds JSON), then = or : or =>.
_SIGN = rb"""(?:\\{0,4}["'`])?\]?[ \t]{0,8}+(?:=>|:?=|:(?!:)|%3d|%3a)[ \t]{0,8}+"""
# Words that stand where a value would, and say that there is none.
_NO_VALUE = (
    rb"""(?!["']?(?:null|none|nil|true|false|undefined|missing|invalid|expired|expected|required|unexpected|empty|unset|"""
    rb"""denied|failed|not|no|is|was)\b|\[redacted\]|[\w-]{1,32}=(?:["']|\[redacted)|\$\{|\$\()"""
)
# A quoted value up to its quote, an escaped quote's up to the next one, a bare one up to where the next pair begins.
_VALUE = (
    rb"(?:(?:some|ok|secret|secretstring|string)\(|(?:b|r|u|f)(?=[\"']))?+(?!\[redacted\])"
    rb"""("(?:[^"\\\n]|\\[^\n]){1,2048}"|'(?:[^'\\\n]|\\[^\n]){1,2048}'|\\{1,4}["'][^"'\n]{1,2048}|["'`][^"'`\n]{3,2048}"""
    rb"""|(?:[^\s"'&,;<\x00]|[&,;](?![\w.-]{0,48}[=:]|\s|$)){3,4096})"""
)
_ASSIGNED = _SIGN + _NO_VALUE + _VALUE

# A token begins where a word does, or right after a colour.
_BEGINS = rb"(?:(?<![a-z0-9_])|(?<=[0-9;\[]m))"
# Tokens that say what they are: (gate, expression).
_PREFIXED: tuple[tuple[bytes, bytes], ...] = (
    (b"akia", rb"akia[a-z0-9]{16}\b"),
    (b"asia", rb"asia[a-z0-9]{16}\b"),
    (b"ghp_", rb"ghp_[a-z0-9]{20,255}"),
    (b"gho_", rb"gho_[a-z0-9]{20,255}"),
    (b"ghu_", rb"ghu_[a-z0-9]{20,255}"),
    (b"ghs_", rb"ghs_[a-z0-9_.-]{20,1024}"),
    (b"ghr_", rb"ghr_[a-z0-9]{20,255}"),
    (b"_pat_", rb"(?:github|dckr)_pat_[a-z0-9_-]{20,255}"),
    (b"dckr_oat_", rb"dckr_oat_[a-z0-9_-]{20,255}"),
    (b"glpat-", rb"glpat-[a-z0-9_.-]{20,255}"),
    (b"gldt-", rb"gldt-[a-z0-9_-]{20,255}"),
    (b"glrt-", rb"glrt-[a-z0-9_.-]{20,255}"),
    (b"xox", rb"xox[abeoprs]-[a-z0-9-]{15,512}"),
    (b"xapp-", rb"xapp-[0-9]-[a-z0-9-]{13,512}"),
    (b"k_live_", rb"[prs]k_live_[a-z0-9]{16,255}"),
    (b"k_test_", rb"[prs]k_test_[a-z0-9]{16,255}"),
    (b"whsec_", rb"whsec_[a-z0-9+/=]{16,255}"),
    (b"sk-", rb"sk-[a-z0-9_-]{20,255}"),
    (b"aiza", rb"aiza[a-z0-9_-]{35}"),
    (b"ya29.", rb"ya29\.[a-z0-9_-]{20,2048}"),
    (b"gocspx-", rb"gocspx-[a-z0-9_-]{20,64}"),
    (b"hf_", rb"(?:hf|api_org)_[a-z0-9]{30,64}\b"),
    (b"npm_", rb"npm_[a-z0-9]{36}\b"),
    (b"pypi-", rb"pypi-[a-z0-9_-]{50,512}"),
    (b"_v1_", rb"do[opr]_v1_[a-f0-9]{64}\b"),
    (b"sg.", rb"sg\.[a-z0-9_-]{16,64}\.[a-z0-9_-]{16,128}"),
    (b"shp", rb"shp(?:at|ca|pa|ss)_[a-f0-9]{32}\b"),
    (b"sq0", rb"sq0(?:atp|csp)-[a-z0-9_-]{20,64}"),
    (b"dapi", rb"dapi[a-f0-9]{32}(?:-[0-9])?\b"),
    (b"hvs.", rb"hvs\.[a-z0-9_-]{24,255}"),
    (b"hvb.", rb"hvb\.[a-z0-9_-]{24,255}"),
    (b"tskey-", rb"tskey-[a-z]{2,12}-[a-z0-9-]{11,255}"),
    (b"glsa_", rb"glsa_[a-z0-9_]{32,64}"),
    (b"glc_", rb"glc_[a-z0-9+/=]{32,512}"),
    (b"nrak-", rb"nrak-[a-z0-9]{27}\b"),
    (b"sntry", rb"sntry[su]_[a-z0-9+/=_-]{32,512}"),
    (b"lin_api_", rb"lin_api_[a-z0-9]{32,64}"),
    (b"ntn_", rb"ntn_[a-z0-9]{40,64}"),
    (b"hrku-", rb"hrku-[a-z0-9_-]{32,128}"),
    (b"fm2_", rb"fm2_[a-z0-9+/=_-]{32,2048}"),
    (b"age-secret-key-1", rb"age-secret-key-1[a-z0-9]{50,64}"),
    (b"nvapi-", rb"nvapi-[a-z0-9_-]{40,128}"),
    (b"rpa_", rb"rpa_[a-z0-9]{32,64}"),
    (b"r8_", rb"r8_[a-z0-9]{37}\b"),
    (b"gsk_", rb"gsk_[a-z0-9]{40,64}"),
    (b"xai-", rb"xai-[a-z0-9]{40,128}"),
    (b"eyj", rb"eyj[a-z0-9_-]{8,4096}\.[a-z0-9_-]{8,8192}\.[a-z0-9_-]{8,1024}"),
)

LONG_WORD = 20
# Of words of letters and digits alone (digests, numbers) only those that begin so can be secrets.
PLAIN_BEGINS = (b"ak", b"as", b"ai", b"da")


def _prefixed() -> tuple[Shape, ...]:
    return tuple(
        Shape((gate,), re.compile(_BEGINS + rb"(" + body + rb")"), in_long_word=True) for gate, body in _PREFIXED
    )


SHAPES: tuple[Shape, ...] = (
    *_prefixed(),
    # A header's value: at least one character that prose after the word "bearer" or "basic" has not.
    Shape(
        (b"bearer", b"basic"),
        re.compile(rb"\b(?:bearer|basic)(?: {1,4}|%20)((?=[^\s]{0,64}[0-9+/=_.-])[a-z0-9._~+/%=-]{6,8192})"),
    ),
    # Any scheme, and all of a header that has several parts; up to the quote that ends it in a command or in JSON.
    Shape(
        (b"auth",),
        re.compile(rb"authorization" + _SIGN + _NO_VALUE + rb"""\\{0,4}["']?([^"'\n\\]{4,8192})"""),
        (b"authorization",),
    ),
    Shape(
        (b"cookie",),
        re.compile(rb"""\b(?:set-)?cookie["']?[ ]{0,4}[:=][ ]{0,4}["']?([^"'\n=]{1,128}=[^"'\n]{1,4096})"""),
    ),
    Shape(
        (b"x-amz-", b"x-goog-", b"sig=", b"signature"),
        re.compile(
            rb"(?:x-(?:amz|goog)-(?:signature|credential|security-token)|[?&]sig(?:nature)?|\bsignature)"
            rb"(?:=|:|%3d) {0,4}([^\s&\"'<>]{4,4096})"
        ),
        in_long_word=True,
    ),
    Shape((b"x-amz-",), re.compile(rb"x-amz-security-token" + _SIGN + rb"([^\s\"'&]{8,4096})")),
    # A password in a URL; the host's port and a path are none. Then a token in the place of a user.
    Shape((b"://",), re.compile(rb"""://[^\s/@:"']{0,128}:((?!\d{1,5}/)(?:[^\s"'<>/]|/(?!/)){1,200})@(?=[\w.\[-])""")),
    Shape((b"://",), re.compile(rb"""://((?=[^\s/@:"']{0,64}\d)[^\s/@:"']{12,200})@""")),
    Shape(
        (b"/services/t", b"/webhooks/", b".org/bot"),
        re.compile(
            rb"(?:hooks\.slack\.com/services/t|discord(?:app)?\.com/api/webhooks/|api\.telegram\.org/bot)"
            rb"([a-z0-9/:_-]{16,255})"
        ),
        in_long_word=True,
    ),
    # Not plain "key": half of what a prover prints is about proving and verification keys.
    Shape(
        (b"key",),
        re.compile(
            rb"(?:api|access|secret|private|priv|auth|encryption|signing|master|account|storage|shared|preshared|license"
            rb"|deploy|session)[ _-]?key(?:[_-]?(?:id|b64|base64|hex))?[0-9]{0,2}" + _ASSIGNED
        ),
        (
            b"_key",
            b"-key",
            b"ikey",
            b"skey",
            b"tkey",
            b"ekey",
            b"dkey",
            b"gkey",
            b"i key",
            b"s key",
            b"t key",
            b"e key",
        ),
    ),
    Shape(
        (b"token", b"secret", b"pass", b"credential", b"mnemonic"),
        re.compile(
            rb"(?:token|secret|secretkey|passwd|password|passphrase|passcode|passw|credentials?|mnemonic)"
            rb"(?:[_-]?(?:value|b64|base64|hex|v))?[0-9]{0,2}" + _ASSIGNED
        ),
        (b"token", b"secret", b"passw", b"passphrase", b"passcode", b"credential", b"mnemonic"),
    ),
    Shape(
        (b"pwd", b"psk", b"pass", b"auth"), re.compile(rb"(?:[;_]pwd|\bpsk|_pass|\bpass|\b_?auth|_auth)" + _ASSIGNED)
    ),
    # Words of a wallet's recovery phrase: all of the line.
    Shape(
        (b"phrase", b"mnemonic"),
        re.compile(rb"(?:(?:seed|recovery|backup) phrase|mnemonic)" + _SIGN + rb"([^\n]{8,1024})"),
    ),
    # As an option of a command: `--password hunter2`. A lone word after it is a value; another option is none.
    Shape(
        (b" -",),
        re.compile(
            rb"--[a-z0-9-]{0,40}(?:password|passwd|passphrase|pass|token|secret|credentials?"
            rb"|(?:api|access|secret|private|account|encryption|auth|signing|shared|deploy|session|master)-?key)"
            rb"[ \t]{1,4}+(?!--?[a-z][a-z-]{0,40}(?:[ =]|$)|[\"']?\[redacted)"
            rb"""("[^"\n]{1,2048}"|'[^'\n]{1,2048}'|[^\s"'<\[{(]{3,4096})"""
        ),
        (b"pass", b"token", b"secret", b"key", b"credential"),
    ),
    Shape(
        (b" -",),
        re.compile(
            rb"""\s(?:-u|--user|--proxy-user)[ =]{0,2}["']?[^\s:"']{1,128}:((?!\d{1,9}(?:\s|$))[^\s"']{1,512})"""
        ),
        (b"curl", b"wget"),
    ),
    Shape(
        (b" -",),
        re.compile(
            rb"""\b(?:sshpass[^\n]{0,64}? -p *|(?:mysql|mysqldump|mariadb)\b[^\n]{0,128}? -p"""
            rb"""|redis-cli\b[^\n]{0,128}? -a +)["']?([^\s"']{3,512})"""
        ),
        (b"sshpass", b"mysql", b"mariadb", b"redis-cli"),
    ),
    # As a word after a word: of Redis, of .netrc, of SQL, of our marketplace's own tool, of people.
    Shape(
        (b"pass", b"token", b"secret", b"key", b"credential"),
        re.compile(
            rb"""requirepass["']? +["']?([^\s"']{3,512})|\blogin +[^\s]{1,128} +password +([^\s]{1,512})"""
            rb"""|\bpassword +["']([^"'\n]{1,512})["']|\bset +api-key +([^\s]{16,512})"""
            rb"""|\b(?:password|passphrase|token|secret|api key|credentials?) (?:is|was):? ["'`]?"""
            rb"""((?=[^\s]{0,64}[0-9])[^\s"'`]{6,512})"""
        ),
        (
            b"requirepass",
            b"password ",
            b"passphrase ",
            b"token ",
            b"secret ",
            b"api-key ",
            b"api key ",
            b"credential",
        ),
    ),
    Shape((b"identified by",), re.compile(rb"""identified by +["']([^"'\n]{1,512})["']""")),
    # In marks: <password>hunter2</password>.
    Shape(
        (b"pass", b"token", b"secret", b"key"),
        re.compile(
            rb"<[\w:.-]{0,40}(?:password|passwd|secret|token|apikey|api_key|accesskey)(?: [^<>]{0,128})?>"
            rb"([^<>]{1,2048})<"
        ),
        (b"</",),
    ),
)
GATES = frozenset(gate for shape in SHAPES if not shape.in_long_word for gate in shape.gates)
LONG_GATES = frozenset(gate for shape in SHAPES if shape.in_long_word for gate in shape.gates)

# A secret that is about to come: the end of an unfinished line that must not be given out yet.
OPENING = re.compile(
    rb"(?:pass|pwd|word|phrase|token|secret|key|credential|authorization|bearer|basic|cookie|mnemonic|login|sig|://)"
    rb"[^\n]{0,96}$"
)

# And the word in which a token stands that is not yet seen whole.
LAST_WORD = re.compile(rb"[^\s\"'<>]{4,200}$")

BLOCK_NEEDLE = b"private key"
BLOCK_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
BLOCK_END = re.compile(rb"-----END [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
