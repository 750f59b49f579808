"""Renting at Vast.ai: the order as it is sent, once, and each way it can be refused."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from jobs.market.providers.base import NoCredit, OfferGone, Order, ProviderUnavailable, RentalRefused, RentedStopped
from jobs.market.providers.vast_fields import whole
from jobs.market.providers.vast_http import CREATE, DESTROY, Answer, VastHttp

MAX_LABEL = 256
MAX_ENV_VALUE = 256
MAX_ENV = 32_768
MIN_DISK_GB = 8
MIN_BID, MAX_BID = 0.001, 128.0
_IMAGE = re.compile(r"[a-z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}")
_ENV_NAME = re.compile(r"PROVEFLEET_[A-Z0-9_]{1,60}")
_GONE = ("no_such_ask", "no longer available", "is not available")
_NO_CREDIT = ("insufficient_credit", "spend_rate_limit", "lacks credit")
_REFUSED = ("invalid_price", "invalid_args", "bad_request", "invalid_request", "no_ssh_key_for_vm", "your own")


def body(order: Order, base_url: str) -> dict[str, Any]:
    """What is sent. Raises `RentalRefused` for what Vast would refuse, or worse, would not.

    Runtype `args` keeps the image's entrypoint, the agent, and its output goes straight to the container's log.
    `cancel_unavail`: no stopped machine that bills, when this one can't start now. `price` makes the rental
    interruptible, so it is there exactly when that was asked for.
    """
    env = {
        **order.env,
        "PROVEFLEET_IMAGE_DIGEST": order.image,
        # Vast puts CONTAINER_ID and CONTAINER_API_KEY beside it: all that the agent needs to end its own rental.
        "PROVEFLEET_SELF_DESTROY_URL": base_url + DESTROY.path.removesuffix("{id}/"),
    }
    if why := _trouble(order, env):
        raise RentalRefused(why)
    fields = {
        "client_id": "me",
        "image": order.image,
        "label": order.label,
        "disk": float(order.disk_gb),
        "runtype": "args",
        "args": [],
        "env": env,
        "cancel_unavail": True,
        "target_state": "running",
    }
    if order.bid_dollars_per_hour is not None:
        fields["price"] = order.bid_dollars_per_hour
    return fields


def rent(http: VastHttp, order: Order, base_url: str) -> str:
    """Send the order once and return the new contract's number. Raises as `base.Provider.rent` says.

    The answer's `instance_api_key` is dropped: the machine has it, and we have no use for it.
    """
    answer = http.call(CREATE, item=order.offer_id, body=body(order, base_url))
    contract = whole(answer.fields, "new_contract")
    if answer.good and contract is not None:
        return str(contract)
    raise refusal(http, answer)


def refusal(http: VastHttp, answer: Answer) -> Exception:
    """What an answer without a running machine means. What we don't know leaves open whether there is one."""
    said, words = answer.message.lower(), http.says(answer)
    contract = whole(answer.fields, "new_contract")
    if contract is not None:
        return RentedStopped(f"Vast.ai made machine {contract}, but did not start it ({words})", str(contract))
    if any(name in said for name in _NO_CREDIT):
        return NoCredit(f"the account at Vast.ai lacks credit ({words}): pay in, then ask again")
    refused = answer.status >= 400 or answer.fields.get("success") is False
    unavailable = answer.status == 410 and answer.fields.get("success") is False and "deprecated" not in said
    if refused and (any(name in said for name in _GONE) or unavailable):
        return OfferGone(words)
    if 400 <= answer.status < 500 and any(name in said for name in _REFUSED):
        return RentalRefused(f"Vast.ai does not accept this order ({words})")
    return ProviderUnavailable(f"Vast.ai did not say whether it rented the machine ({words}): its label will tell")


def _trouble(order: Order, env: Mapping[str, str]) -> str:
    """Why this can't be ordered; '' where it can."""
    if not order.offer_id.isdecimal():
        return f"{order.offer_id[:40]!r} is no offer of Vast.ai"
    if not _IMAGE.fullmatch(order.image):
        given = f"not {order.image[:100]!r}" if order.image else "and it is not set"
        return f"PROVEFLEET_PAYLOAD_IMAGE must name an image by its digest, repository@sha256:..., {given}"
    if not 0 < len(order.label) <= MAX_LABEL or not order.label.isprintable():
        return f"a label has 1 to {MAX_LABEL} printable characters, this one {len(order.label)}"
    if order.disk_gb < MIN_DISK_GB:
        return f"Vast.ai rents at least {MIN_DISK_GB} GB of disk, not {order.disk_gb}"
    bid = order.bid_dollars_per_hour
    if bid is not None and not (math.isfinite(bid) and MIN_BID <= bid <= MAX_BID):
        return f"a bid must be from ${MIN_BID} to ${MAX_BID:.0f} an hour, not ${bid:.4g}"
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name):
            return f"{name[:80]!r} is no variable for an agent: only PROVEFLEET_*"
        if len(value) > MAX_ENV_VALUE or "\0" in value:
            return f"{name} has {len(value)} characters: Vast.ai takes {MAX_ENV_VALUE} at most, without NUL"
    if len(json.dumps(dict(env))) > MAX_ENV:
        return f"the environment is over {MAX_ENV} characters"
    return ""
