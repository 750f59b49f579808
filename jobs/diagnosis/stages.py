"""Which stage failed, what a stage uses, and which file belongs to whom."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jobs.diagnosis.case import Case
from jobs.diagnosis.facts import rates

ORDER = ("loading", "tunnels", "params", "benchmark", "serve", "sealing")
_WORDS = (
    ("loading", r"load|creat|rent|pull|schedul|pending|boot|start"),
    ("tunnels", r"tunnel|regist|ssh|connect"),
    ("params", r"param|fetch|srs|download|key"),
    ("benchmark", r"bench|measur|rate"),
    ("serve", r"serv|prov|running|curio|worker|work|job|production"),
    ("sealing", r"seal|upload|collect|archiv|evidence|destroy"),
)
# What the stages of payloads that declare nothing depend on: a benchmark starts its own daemon and needs nobody else.
_USES: Mapping[str, frozenset[str]] = {
    "loading": frozenset({"registry", "network"}),
    "tunnels": frozenset({"tunnel", "network"}),
    "params": frozenset({"network", "disk"}),
    "benchmark": frozenset({"params", "gpu", "disk"}),
    "serve": frozenset({"tunnel", "params", "gpu", "network", "disk"}),
    "sealing": frozenset({"network", "archive", "disk"}),
}
_LOG_STAGE = re.compile(
    r"\b(?:"
    r"(?P<benchmark>(?:start\w*|begin\w*|run\w*) (?:the )?bench\w*|benchmark[^\n]{0,20}(?:start|begin|round|:)"
    r"|stage benchmark)"
    r"|(?P<params>(?:fetch|download)\w* (?:the )?(?:\w+ )?(?:param|srs|key|zkey)\w*|stage params)"
    r"|(?P<serve>(?:start\w*|launch\w*) (?:curio|serving|the service|worker|prover service)"
    r"|serving (?:on|requests)|stage (?:serve|prove))"
    r"|(?P<tunnels>(?:open|start|set)\w* (?:up )?(?:the )?(?:ssh )?tunnel\w*|stage tunnels|registration|/register)"
    r"|(?P<sealing>stage sealing|sealing|upload\w* (?:of )?(?:evidence|logs|the bundle)|PutObject"
    r"|CreateMultipartUpload)"
    r")",
    re.IGNORECASE,
)
_FILES = (
    ("service", "serve"),
    ("bench", "benchmark"),
    ("daemon", "benchmark"),
    ("gpu", "benchmark"),
    ("kernel", "benchmark"),
)


def stage_of(text: str) -> str:
    """The stage that a word of an author's means; "" for none."""
    lowered = text.lower().strip()
    if lowered in ORDER:
        return lowered
    return next((stage for stage, words in reversed(_WORDS) if re.search(words, lowered)), "")


def failed_stage(case: Case, natural: str = "loading") -> str:
    """The stage that the run had reached, as the facts say or the logs tell; `natural` where neither does: the stage in
    which what was found belongs."""
    said = case.text(r"run\.stage", r"stage_reached", r"\bstage\b", r"\bstate\b", table="run")
    if said and stage_of(said):
        return stage_of(said)
    seen = ""
    for name in case.streams:
        if "kernel" in name:
            continue
        for line in case.streams[name][:20000]:
            if found := _LOG_STAGE.search(line):
                stage = str(found.lastgroup)
                seen = stage if not seen or ORDER.index(stage) > ORDER.index(seen) else seen
    if seen:
        return seen
    written = {name for name, lines in case.streams.items() if lines} | ({"gpu"} if case.gpu else set())
    if any(rate is not None for rate in rates(case)):
        return "benchmark"
    return next((stage for word, stage in _FILES if any(name.startswith(word) for name in written)), natural)


def uses(case: Case, stage: str) -> frozenset[str]:
    """What a stage depends on: as the payload declared it, else what such a stage usually does."""
    stages = case.facts.get("stages")
    declared = (
        stages.get(stage, {}).get("depends_on")
        if isinstance(stages, Mapping) and isinstance(stages.get(stage), Mapping)
        else None
    )
    if isinstance(declared, list):
        return frozenset(str(item).split(":")[0] for item in declared)
    return _USES[stage]
