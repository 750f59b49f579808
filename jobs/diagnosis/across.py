"""Clues that only several lines give together: who else failed, what the machine showed, what two lines say."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.diagnosis.cards import card_without_code
from jobs.diagnosis.case import Case, plain
from jobs.diagnosis.clues import Clue, cite
from jobs.diagnosis.report import Evidence

_SHOWN = 300
_READ = 20_000
"""Lines of a file's head that are read; such lines come early or the log is short."""
_HEADS = 2_000
"""Lines within which a program says which build it is."""
_TROUBLE = re.compile(
    r"fail|could ?n.t|unable|timed? ?out|timeout|unreachable|refused|reset|error|lost|no route", re.IGNORECASE
)
_HOST = re.compile(
    r"(?:https?://|connect(?:ion)? to |connecting to |host[: ]+|ping (?:-\S+ )*|"
    r"resolve:? |lookup )['\"]?([a-z0-9.-]+\.[a-z0-9-]{2,})",
    re.IGNORECASE,
)
_LOCAL = re.compile(
    r"^(?:127\.|10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|localhost|0\.0)|\.(?:so|rs|go|"
    r"py|json|log|toml|bin|params|zkey|service|local|internal)$"
)
_DIED = re.compile(
    r"\b([a-z][\w.-]{1,24})\[\d+\]:? (?:segfault|general protection|trap invalid opcode)|traps: ([a-z][\w.-]{1,24})\[",
    re.IGNORECASE,
)
_PROVER = re.compile(
    r"prov|cuz|snark|daemon|worker|bench|zk|stone|stark|halo|miden|plonk|groth|bellp|"
    r"curio|lotus|bb$|tokio|rayon|msm|ntt",
    re.IGNORECASE,
)
_CARD = re.compile(
    r"\b(?:RTX|GTX|Tesla|Quadro|GeForce|NVIDIA|GPU ?\d*:?)[ -]+((?:(?:NVIDIA|GeForce|RTX|"
    r"GTX|Tesla|PRO) ?)*[ABHLPTV]?\d{2,4}\w{0,2}(?: (?:Ti|SUPER|PRO|Ada|D|PCIe|"
    r"SXM\d?))*)\b",
    re.IGNORECASE,
)
_POWER_LIMIT = re.compile(
    r"\b(?:(current|enforced|requested|default|max) )?power limit\W{1,40}(\d+(?:\.\d+)?) ?W\b", re.IGNORECASE
)
_WANTED_REV = re.compile(
    r"\b(?:meant|wanted|wants|expect\w*|deployed|ordered|requested|target|pinned|"
    r"should (?:be|run))\b[^\n]{0,24}?\b(?:rev|commit|build|version|git|tag|"
    r"sha)\w*[ :=v]+([0-9a-f]{6,40}|\d+\.\d+\.\d+\S*)",
    re.IGNORECASE,
)
_RAN_REV = re.compile(r"\b(?:rev|commit|build|git|revision)\w*[ :=v(]+([0-9a-f]{6,40})\b", re.IGNORECASE)
_SMI_CUDA = re.compile(
    r"(?:Driver Version[^\n]{0,40}CUDA Version|driver[^\n]{0,30}(?:supports|up to|"
    r"api)[^\n]{0,10} CUDA)[ :]+(\d{1,2}\.\d)",
    re.IGNORECASE,
)
_OWN_CUDA = re.compile(
    r"CUDA (?:runtime|toolkit|compiler|\(?built)\w*(?: version)?[ :=v]+(\d{1,2}\.\d)|"
    r"(?:built|compiled) (?:with|for|against) CUDA[ v]*(\d{1,2}\.\d)",
    re.IGNORECASE,
)
_ON_CPU = re.compile(
    r"\b(?:synth\w*|witness\w*|trace ?gen\w*|preprocess\w*|cpu)\b[ :=]*(\d+(?:\.\d+)?) ?(ms|s)\b", re.IGNORECASE
)
_ON_GPU = re.compile(
    r"\b(?:gpu|msm|ntt|prove|proving|compute|kernels?)\b[ :=]*(\d+(?:\.\d+)?) ?(ms|s)\b", re.IGNORECASE
)
_GENERIC = re.compile(r"nvidia|geforce|rtx|gtx|tesla|\W", re.IGNORECASE)


def across(case: Case) -> Iterator[Clue]:
    """Every such clue."""
    yield from _many_hosts(case)
    yield from _unrelated_deaths(case)
    yield from _other_card(case)
    yield from _other_revision(case)
    yield from _older_driver(case)
    yield from _power_limit(case)
    yield from _phases(case)
    yield from card_without_code(case.text(r"gpu_model", r"gpu_name", r"hardware\.gpu"), _lines(case))


def _lines(case: Case, *, kernel: bool = False) -> Iterator[Evidence]:
    for name, lines in case.streams.items():
        if ("kernel" in name or "dmesg" in name) == kernel:
            for number, line in enumerate(lines[:_READ], 1):
                yield Evidence(name, number, line[:_SHOWN])


def _many_hosts(case: Case) -> Iterator[Clue]:
    """Hosts of different owners that cannot be reached: then it is the machine's own network."""
    seen: dict[str, Evidence] = {}
    for line in _lines(case):
        if "." in line.text and _TROUBLE.search(line.text):
            for host in _HOST.findall(line.text):
                if not _LOCAL.search(host.lower()):
                    seen.setdefault(".".join(host.lower().split(".")[-2:]), line)
    if len(seen) >= 2:
        words = f"{len(seen)} hosts of different owners can't be reached: {', '.join(list(seen)[:4])}"
        yield Clue("bad_host_network", 0.55, words, list(seen.values())[:4], "One of these hosts reached at that time.")
        yield Clue("param_fetch_network", -0.4, words, list(seen.values())[:2])


def _unrelated_deaths(case: Case) -> Iterator[Clue]:
    """Programs that have nothing to do with each other crash."""
    seen: dict[str, Evidence] = {}
    for line in _lines(case, kernel=True):
        if "[" in line.text and (found := _DIED.search(line.text)):
            name = (found[1] or found[2]).lower()
            if not _PROVER.search(name):
                seen.setdefault(name, line)
    if len(seen) >= 2:
        words = f"unrelated programs crash on the machine: {', '.join(list(seen)[:4])}"
        yield Clue("bad_host_ram", 0.65, words, list(seen.values())[:4], "An hour of memtester without an error.")


def _other_card(case: Case) -> Iterator[Clue]:
    """The offer's GPU against those that the machine's own tools list."""
    offered = case.text(
        r"(?:offer|advertis|listed|promised|ordered|contract|rental)\w*[._]\w*gpu(?:_model|_name)?$",
        r"gpu\w*_(?:offered|advertised|listed|ordered)",
    )
    wanted = _GENERIC.sub("", offered.lower())
    if not re.search(r"\d{2,4}", wanted):
        return
    for line in _lines(case):
        found = _CARD.search(line.text) if "GPU" in line.text or "NVIDIA" in line.text else None
        if found and (shown := _GENERIC.sub("", found[1].lower())) and shown != wanted:
            if wanted not in _GENERIC.sub("", line.text.lower()):
                words = f"{offered} offered, {found[1].strip()} found"
                yield Clue("stale_offer", 0.7, words, [line, *cite(case, "gpu_name", "gpu_model", "gpu")])
            return


def _other_revision(case: Case) -> Iterator[Clue]:
    """One line says which revision was meant, another which one runs."""
    wanted: tuple[str, Evidence] | None = None
    ran: list[tuple[str, Evidence]] = []
    for line in _lines(case):
        if line.line > _HEADS:
            continue
        if found := _WANTED_REV.search(line.text):
            wanted = wanted or (found[1].lower(), line)
        elif found := _RAN_REV.search(line.text):
            ran.append((found[1].lower(), line))
        if len(ran) > 20:
            break
    if wanted and ran and len({rev for rev, _ in ran}) == 1 and not ran[0][0].startswith(wanted[0][:6]):
        words = f"{wanted[0]} was meant, {ran[0][0]} runs"
        yield Clue(
            "stale_image", 0.6, words, [wanted[1], ran[0][1]], "The revision that ran being the one that was meant."
        )


def _older_driver(case: Case) -> Iterator[Clue]:
    """The CUDA of the driver, as nvidia-smi heads its table, against the CUDA that a program names as its own."""
    has: tuple[float, Evidence] | None = None
    needs: tuple[float, Evidence] | None = None
    for line in _lines(case):
        if "CUDA" not in line.text.upper():
            continue
        if found := _SMI_CUDA.search(line.text):
            has = has or (float(found[1]), line)
        elif found := _OWN_CUDA.search(line.text):
            needs = needs or (float(found[1] or found[2]), line)
    if has and needs and int(has[0]) < int(needs[0]):
        words = f"the driver supports CUDA {has[0]:g}, the program is built with {needs[0]:g}"
        yield Clue("driver_too_old", 0.55, words, [needs[1], has[1]], "The driver's CUDA being at least the program's.")


def _power_limit(case: Case) -> Iterator[Clue]:
    """What `nvidia-smi -q` prints on two lines: the limit that holds, and the card's own."""
    for name, lines in case.streams.items():
        found = {}
        for number, line in enumerate(lines[:20_000], 1):
            if told := _POWER_LIMIT.search(line):
                kind = (told[1] or "current").lower()
                found[kind] = (float(told[2]), Evidence(name, number, plain(line).strip()[:_SHOWN]))
        now, own = found.get("current") or found.get("enforced") or found.get("requested"), found.get("default")
        if now and own and now[0] < 0.93 * own[0]:
            words = f"power limit {now[0]:g} W, default {own[0]:g} W"
            yield Clue("power_cap", 0.75, words, [now[1], own[1]], "power.limit equal to power.default_limit.")
            return


def _phases(case: Case) -> Iterator[Clue]:
    """The parts of a proof on the processor take several times as long as those on the card."""
    told = [
        (_seconds(*cpu.groups()), _seconds(*gpu.groups()), line)
        for line in _lines(case)
        if (cpu := _ON_CPU.search(line.text)) and (gpu := _ON_GPU.search(line.text))
    ]
    if told and (on_cpu := sum(cpu for cpu, _, _ in told)) > 4 * (on_gpu := sum(gpu for _, gpu, _ in told)):
        words = f"{on_cpu:.0f} s on the processor, {on_gpu:.0f} s on the card, over {len(told)} proofs"
        yield Clue("slow_cpu", 0.55, words, [line for _, _, line in told[:3]], "The card being busy most of that time.")


def _seconds(number: str, unit: str) -> float:
    return float(number) / (1000 if unit.lower() == "ms" else 1)
