"""What the facts say by themselves: hardware, image, provider, exit codes, figures of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jobs.diagnosis.case import Case, as_number
from jobs.diagnosis.clues import Clue, cite
from jobs.diagnosis.facts import bids, credit, cuda_versions, digests, ends, oom_kills, promises, rates, time_limit

# The first CUDA toolkit that compiles for a compute capability (NVIDIA's release notes).
_FIRST_CUDA = ((12.0, 12.8), (10.0, 12.8), (9.0, 11.8), (8.9, 11.8), (8.6, 11.1), (8.0, 11.0))
LONG_LOADING_MIN, LONG_PARAMS_MIN = 20.0, 45.0
IDLE_PERCENT, BUSY_PERCENT = 12.0, 55.0


def figures(case: Case, stage: str) -> Iterator[Clue]:
    """Every clue that the tables of the facts hold."""
    yield from _image(case)
    yield from _driver(case)
    yield from _architecture(case)
    yield from _ends(case)
    yield from _provider(case)
    yield from _minutes(case, stage)
    yield from _rates(case)
    yield from _offered(case)
    yield from _account(case)
    yield from _memory(case)
    yield from _market(case)
    yield from _limit(case)


def image_words(case: Case) -> str:
    """Whether the image that ran was the one meant, in one line."""
    expected, ran = digests(case)
    if expected and ran:
        if _bare(expected) == _bare(ran):
            return f"as expected: {ran} ran"
        return f"another one ran: {expected} was meant, {ran} ran"
    if ran or expected:
        known = (
            f"{ran} ran, what was meant is not recorded" if ran else f"{expected} was meant, what ran is not recorded"
        )
        return f"unknown: {known}"
    return "unknown: neither the digest that was meant nor the one that ran is recorded"


def _bare(digest: str) -> str:
    return digest.lower().rpartition("@")[2].removeprefix("sha256:")


def _image(case: Case) -> Iterator[Clue]:
    expected, ran = digests(case)
    if expected and ran:
        where = cite(case, "expected", "digest")
        if _bare(expected) == _bare(ran):
            yield Clue("stale_image", -0.9, "the digest that ran is the one that was meant", where)
        else:
            yield Clue(
                "stale_image", 0.72, image_words(case), where, "The digest that ran being the one that was deployed."
            )


def _version(text: str) -> tuple[int, int] | None:
    found = re.search(r"(\d+)\.(\d+)", text) or re.fullmatch(r"\s*(\d+)()\s*", text)
    return (int(found[1]), int(found[2] or 0)) if found else None


def _driver(case: Case) -> Iterator[Clue]:
    has, needs = (_version(text) for text in cuda_versions(case))
    if has is None or needs is None:
        return
    where = cite(case, "driver_cuda", "cuda_max", "image_cuda", "cuda")
    words = f"the driver supports CUDA {has[0]}.{has[1]}, the image needs {needs[0]}.{needs[1]}"
    if has >= needs:
        yield Clue("driver_too_old", -0.8, words, where)
    else:
        # Within one major release most binaries run on an older driver; PTX does not.
        weight = 0.7 if has[0] < needs[0] else 0.3
        yield Clue("driver_too_old", weight, words, where, "The driver's CUDA version being at least the image's.")


def _architecture(case: Case) -> Iterator[Clue]:
    capability = case.number(r"compute_?cap|\bcc\b|sm_version")
    if capability is None:
        return
    capability = capability / 10 if capability > 20 else capability
    where = cite(case, "compute", "arch")
    built = case.text(r"arch(?:s|es|itectures|_list)?\b", r"sm_list|built_for|cuda_arch|gencode|targets")
    listed = {int(n) / 10 for n in re.findall(r"(?:sm_?|compute_?)?(\d{2,3})[af]?\b", built)} if built else set()
    needs = _version(case.text(r"image_?cuda|cuda_?image|cuda_?runtime"))
    first = next((cuda for cc, cuda in _FIRST_CUDA if capability >= cc), None)
    if listed and capability not in listed and "ptx" not in built.lower():
        holds = ", ".join(f"sm_{round(n * 10)}" for n in sorted(listed))
        words = f"the GPU is sm_{round(capability * 10)}, the build holds {holds}"
        yield Clue("no_kernel_image_for_gpu", 0.5, words, where)
    elif first and needs and needs[0] + needs[1] / 10 < first - 1e-9:
        words = f"the GPU is sm_{round(capability * 10)}: CUDA {needs[0]}.{needs[1]} can't compile for it, {first} can"
        yield Clue("no_kernel_image_for_gpu", 0.35, words, where)
    elif listed and capability in listed:
        yield Clue("no_kernel_image_for_gpu", -0.5, f"the build holds code for sm_{round(capability * 10)}", where)


_SIGNALS = (
    (r"\b(?:sigkill|9)\b", (("host_oom_cgroup", 0.3), ("host_oom_global", 0.15), ("daemon_crash", 0.15))),
    (r"\b(?:sigill|4)\b", (("illegal_instruction_cpu", 0.75),)),
    (r"\b(?:sigsegv|11)\b", (("daemon_crash", 0.5),)),
    (r"\b(?:sigabrt|6)\b", (("daemon_crash", 0.4), ("own_bug", 0.2))),
    (r"\b(?:sigbus|7)\b", (("daemon_crash", 0.35), ("disk_full", 0.15), ("bad_host_ram", 0.15))),
    (r"\b(?:sigterm|15)\b", (("preempted_by_us", 0.15), ("measured_timeout", 0.15), ("preempted", 0.1))),
)
_CODES = {137: "sigkill", 132: "sigill", 139: "sigsegv", 134: "sigabrt", 135: "sigbus", 143: "sigterm"}


def _ends(case: Case) -> Iterator[Clue]:
    for name, code, signal in ends(case):
        word = signal.lower() if signal and signal not in ("0", "none") else _CODES.get(code or 0, "")
        if code is not None and -32 < code < 0 and not signal:
            word = str(-code)
        where = cite(case, "signal" if signal else "exit")
        for pattern, causes in _SIGNALS:
            if word and re.search(pattern, word):
                for cause, weight in causes:
                    yield Clue(cause, weight, f"{name} ended by {word.upper()}", where)
        if code == 124:
            yield Clue("measured_timeout", 0.4, f"{name} ended with 124, the code of `timeout`", where)
        if code == 126:
            yield Clue("bad_binary", 0.3, f"{name} ended with 126: it could not be executed", where)


def _provider(case: Case) -> Iterator[Clue]:
    told = case.told("provider")
    if re.search(r"\boffline\b", told) and "not offline" not in told:
        where = cite(case, "stat", "messag", "actual", "history")
        yield Clue("host_vanished", 0.62, "the provider lists the machine as offline", where,
                   "The machine heard from after that, or listed as running.")  # fmt: skip


def _minutes(case: Case, stage: str) -> Iterator[Clue]:
    loading = case.number(r"minutes\.(?:load|boot|creat|pull)")
    if stage == "loading" and loading is not None and loading >= LONG_LOADING_MIN:
        yield Clue("image_pull_stuck", 0.5, f"it was loading for {loading:g} min", cite(case, "load", "pull"))
    params = case.number(r"minutes\.(?:param|fetch|download)")
    if stage == "params" and params is not None and params >= LONG_PARAMS_MIN:
        yield Clue(
            "param_fetch_network", 0.35, f"fetching took {params:g} min and did not end", cite(case, "param", "fetch")
        )


def _rates(case: Case) -> Iterator[Clue]:
    rate, least, proofs = rates(case)
    use = case.number(r"gpu_util\w*mean|mean_gpu_util|gpu_util\w*|util\w*gpu\w*")
    cpu = case.number(r"cpu_util\w*|cpu_percent\w*|mean_cpu\w*")
    where = cite(case, "gpu_util", "util")
    works = (rate or 0) > 0 or (proofs or 0) > 0
    if use is not None and use < IDLE_PERCENT and not works:
        yield Clue("daemon_hang", 0.25, f"the GPU was {use:g} % busy and nothing came out", where)
        if cpu is not None and cpu < IDLE_PERCENT:
            yield Clue("daemon_hang", 0.3, f"the CPU was {cpu:g} % busy", where)
    if use is not None and works and use < BUSY_PERCENT and rate is not None and least is not None and rate < least:
        weight = 0.55 if cpu is not None and cpu > 85 else 0.4
        yield Clue("slow_cpu", weight, f"{rate:g} of {least:g} proofs/h with the GPU only {use:g} % busy", where)
    if use is not None and use >= 80:
        yield Clue("slow_cpu", -0.5, f"the GPU was {use:g} % busy", where)


def _offered(case: Case) -> Iterator[Clue]:
    where = cite(case, "offer", "advertis", "listed", "promised", "expected")
    for what, promised, found in promises(case):
        if re.search(r"digest|hash|sha|checksum|cuda|version|driver|bytes", what):
            continue
        asked, real = as_number(promised), as_number(found)
        if what.startswith("gpu") and not what.endswith(("s", "gb")):
            if _model(promised) != _model(found):
                yield Clue("stale_offer", 0.7, f"{promised} offered, {found} found", where)
        elif asked and real is not None and real < asked * (1.0 if "gpus" in what else 0.75) - 1e-9:
            yield Clue("stale_offer", 0.6, f"{what}: {asked:g} offered, {real:g} found", where)


def _model(name: str) -> str:
    return re.sub(r"\W|nvidia|geforce", "", name.lower())


def _memory(case: Case) -> Iterator[Clue]:
    kills = oom_kills(case)
    if kills:
        yield Clue(
            "host_oom_cgroup",
            0.85,
            f"the container's memory.events count {kills:g} oom_kill",
            cite(case, "oom", "events"),
        )
    peak, most = case.number(r"memory_peak|peak_mem|mem\w*_peak"), case.number(r"memory_(?:limit|max)|mem\w*_limit")
    if peak and most and peak >= 0.98 * most:
        yield Clue("host_oom_cgroup", 0.3, f"its memory peaked at {peak:g} of {most:g}", cite(case, "peak", "limit"))


def _limit(case: Case) -> Iterator[Clue]:
    told = time_limit(case)
    if told and told[0] >= 0.97 * told[1]:
        yield Clue(
            "measured_timeout", 0.45, f"it ran {told[0]:g} s of {told[1]:g} s", cite(case, "limit", "timeout", "budget")
        )


def _market(case: Case) -> Iterator[Clue]:
    told = bids(case)
    if told and told[0] < told[1]:
        where = cite(case, "bid", "price")
        yield Clue("outbid", 0.65, f"the bid is {told[0]:g}, the price {told[1]:g}", where, "The price under the bid.")


def _account(case: Case) -> Iterator[Clue]:
    held = credit(case)
    if held is not None and held[1] <= 0:
        yield Clue("no_credit", 0.65, f"the account holds {held[1]:g}", cite(case, held[0].rpartition(".")[2]))
