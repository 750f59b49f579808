"""Renting: what the create call must look like, and all the ways in which it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.fakes.vast.errors import Refused

MIN_DISK_GB = 8.0
MIN_BID, MAX_BID = 0.001, 128.0
MAX_LABEL, MAX_RELABEL = 256, 1024
MAX_SCRIPT = 4096
MAX_ENV_VALUE, MAX_ENV = 256, 32_768
_RUNTYPES = "ssh ssh_direct ssh_direc ssh_proxy jupyter jupyter_direct jupyter_direc jupyter_proxy args vm"
RUNTYPES = frozenset(_RUNTYPES.split())


@dataclass(slots=True)
class Order:
    """A create call, checked. `price` is the bid in dollars per hour, None on demand."""

    image: str
    label: str | None
    disk_gb: float
    price: float | None
    runtype: str
    target: str
    cancel_unavailable: bool
    env: dict[str, str] = field(default_factory=dict)
    onstart: str = ""
    args: list[str] = field(default_factory=list)
    template: str | None = None
    volume: dict[str, Any] | None = None


def parse(body: Any, env_value_limit: int | None = MAX_ENV_VALUE) -> Order:
    """Raises `Refused` (400). An `env` that is no object is not refused: it is not applied, as Vast does it."""
    if not isinstance(body, dict):
        raise Refused(400, "invalid_request", "Invalid json body")
    image, template = body.get("image"), body.get("template_hash_id")
    if not image and not template:
        raise Refused(400, "invalid_args", "error 400/3412: image or template_hash_id is required")
    label = body.get("label")
    if label is not None and len(str(label)) > MAX_LABEL:
        raise Refused(400, "invalid_args", f"label is longer than {MAX_LABEL} characters")
    price = _number(body.get("price"), "price")
    if price is not None and not MIN_BID <= price <= MAX_BID:
        raise Refused(400, "invalid_price", f"price must be between {MIN_BID} and {MAX_BID} $/hour per machine")
    disk = _number(body.get("disk"), "disk") or MIN_DISK_GB
    if disk < MIN_DISK_GB:
        raise Refused(400, "invalid_args", f"disk must be at least {MIN_DISK_GB:g} GB")
    runtype = str(body.get("runtype") or "ssh_proxy")
    if not set(runtype.split()) <= RUNTYPES:
        raise Refused(400, "invalid_args", f"runtype {runtype!r} is not known")
    target = body.get("target_state") or "running"
    if target not in ("running", "stopped"):
        raise Refused(400, "invalid_args", "target_state must be running or stopped")
    login = body.get("image_login")
    if login and len(str(login).split()) > 5:
        raise Refused(400, "invalid_args", "image_login: expected '-u user -p token registry'")
    args = body.get("args") or ([] if not body.get("args_str") else [str(body["args_str"])])
    if not isinstance(args, list):
        raise Refused(400, "invalid_args", "args must be an array of strings")
    onstart = str(body.get("onstart") or "")
    if len(onstart) + sum(len(str(a)) for a in args) > MAX_SCRIPT:
        raise Refused(
            400, "invalid_args", f"args, args_str and onstart are longer than {MAX_SCRIPT} characters together"
        )
    cancel = body.get("cancel_unavail")
    return Order(
        image=str(image or "vastai/base-image:latest").replace("@vastai-automatic-tag", "cuda-12.8.1-auto"),
        label=None if label is None else str(label),
        disk_gb=disk,
        price=price,
        runtype=runtype,
        target=target,
        cancel_unavailable=(price is None and target == "running") if cancel is None else bool(cancel),
        env=_env(body.get("env"), env_value_limit),
        onstart=onstart,
        args=[str(a) for a in args],
        template=template,
        volume=body.get("volume_info") if isinstance(body.get("volume_info"), dict) else None,
    )


def _env(env: Any, value_limit: int | None) -> dict[str, str]:
    if not isinstance(env, dict):
        return {}
    if sum(len(str(k)) + len(str(v)) for k, v in env.items()) > MAX_ENV:
        raise Refused(400, "invalid_args", f"env is longer than {MAX_ENV} characters")
    for name, value in env.items():
        if value_limit is not None and len(str(value)) > value_limit:
            raise Refused(400, "invalid_args", f"env.{name}: String should have at most {value_limit} characters")
    return {str(k): str(v) for k, v in env.items()}


def _number(value: Any, name: str) -> float | None:
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Refused(400, "invalid_args", f"{name}: Input should be a valid number") from None


def gone(offer_id: int, turn: int) -> Refused:
    """The three forms in which an offer was seen to be gone, by turns."""
    soon = f"error 404/3603: no_such_ask Instance type by id {offer_id} is not available."
    late = f"error 410/3907: no_such_ask Instance type {offer_id} is no longer available."
    return (
        Refused(400, "invalid_args", soon, ask_id=offer_id),
        Refused(404, "no_such_ask", soon, ask_id=offer_id),
        Refused(410, "no_such_ask", late, ask_id=offer_id),
    )[turn % 3]
