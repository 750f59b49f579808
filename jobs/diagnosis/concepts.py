"""What a line may mean by its words, when no signature knows its wording: `concepts/*.toml`.

`lexicon.toml` holds words that mean the same. A concept is a table like a signature's, whose expressions may name a
lexicon in braces, `'(?:{storage})[^\\n]{0,50}\\b(?:{lack})'`, and it is matched on the words of a line: identifiers are
taken apart, so that `hipErrorOutOfMemory` reads "hip Error Out Of Memory". Its weight is moderate, and a line that a
signature of another cause knows counts little for it (`engine`). Lines that deny, or tell of what passed or of somebody
else (`[neutral]`), are no concept's.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from jobs.diagnosis.signatures import Signature, expression, signature_of

FOLDER = Path(__file__).parent / "concepts"
_NAMED = re.compile(r"\{([a-z_]+)\}")
_HUMP = re.compile(r"[A-Z](?<=[a-z].)")  # begins with what is rare: that is quick


def words_of(text: str) -> str:
    """`text` with its identifiers taken apart; as many lines as before."""
    return _HUMP.sub(r" \g<0>", text.replace("_", " "))


@cache
def _lexicon() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "lexicon.toml").read_text(encoding="utf-8"))


@cache
def neutral() -> Any:
    """The expression of lines that tell of no trouble of this run."""
    return expression(_lexicon()["neutral"]["any"])


@cache
def load_concepts() -> tuple[Signature, ...]:
    """All concepts as signatures, in the order of files and tables. Raises KeyError for a lexicon that is not there."""
    return tuple(
        signature_of({**table, **{key: [_spelled(p) for p in table.get(key, [])] for key in ("any", "not")}})
        for path in sorted(FOLDER.glob("*.toml"))
        for table in tomllib.loads(path.read_text(encoding="utf-8")).get("concept", [])
    )


def _spelled(pattern: str) -> str:
    words = _lexicon()["lexicon"]
    return _NAMED.sub(lambda named: words[named[1]], pattern)
