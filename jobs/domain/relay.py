"""How a machine reaches the archive: by presigned URLs, or, where it could not use those, through the machine app.

A relayed URL is to the machine app what a presigned one is to the archive: it names one object, one instance and an
end, signed with a key that only the control plane can make. It dies with the instance. What the relay can't do is
outlive the controller: a machine whose last evidence would go through it loses that with the controller.
"""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from typing import IO, TYPE_CHECKING
from urllib.parse import quote

from gpu.protocol import PREFIX, Upload
from jobs.domain.models import Instance
from jobs.domain.states import BILLABLE
from jobs.market import provider, reach
from logs import presign
from logs.errors import ObjectConflict
from logs.wire import emergency_key

if TYPE_CHECKING:
    from jobs.context import Context

GET, PUT = "GET", "PUT"
IN_MEMORY_BYTES, READ_BYTES = 1 << 20, 1 << 16


def file_url(context: Context, instance: Instance, key: str, expires_s: int) -> str:
    """Where the machine of `instance` reads the object `key`. Raises `logs.errors.StoreError`."""
    if not _relayed(context, instance):
        return presign.presign_get(context.store, key, expires_s)
    return _signed(context, GET, f"files/{instance.id}/{quote(key)}", instance.id, key, expires_s)


def emergency_upload(context: Context, instance: Instance, expires_s: int) -> Upload:
    """Where the machine puts its last evidence, once. Raises `logs.errors.StoreError`."""
    key = emergency_key(instance.run_id or "none", instance.id)
    if not _relayed(context, instance):
        put = presign.presign_emergency_put(context.store, key, expires_s)
        return Upload(put.url, put.headers, float(put.expires_s))
    url = _signed(context, PUT, f"emergency/{instance.id}", instance.id, key, expires_s)
    return Upload(url, {"If-None-Match": "*"}, float(expires_s))


def refusal(
    context: Context, method: str, instance_id: str, key: str, expires: str, signature: str
) -> tuple[int, str, str] | None:
    """Why a relayed URL is not served: HTTP status, a code for programs, what and why; None where it is."""
    wanted = _signature(context, method, instance_id, key, expires)
    if not hmac.compare_digest(wanted, signature.encode("utf-8", "surrogatepass")):
        return 403, "bad_signature", "this URL was not made by this controller; use it exactly as it was given"
    if context.now_ms() > int(expires) * 1000:  # signed, so it is a number
        return 403, "expired", "this URL has expired"
    with context.sessions() as session:
        instance = session.get(Instance, instance_id)
    if instance is None or instance.state not in BILLABLE:
        return 410, "gone", "the instance is destroyed; end now"
    return None


def emergency_key_of(context: Context, instance_id: str) -> str:
    """The object that an emergency upload of this instance becomes; one that can't be signed for if there is none."""
    with context.sessions() as session:
        instance = session.get(Instance, instance_id)
    return emergency_key(instance.run_id or "none", instance.id) if instance is not None else ""


def store_emergency(context: Context, key: str, data: IO[bytes], length: int) -> bool | None:
    """Keep `length` bytes as the last evidence, through a file on the disk. False: there was one; None: cut off."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as spool:
        while piece := data.read(min(READ_BYTES, length - spool.tell())):
            spool.write(piece)
        if spool.tell() != length:
            return None
        try:
            return context.store.put_once(key, spool)  # type: ignore[arg-type]
        except ObjectConflict:
            return False


def _relayed(context: Context, instance: Instance) -> bool:
    return bool(reach.relayed(context.settings, provider(context, instance.provider)))


def _signed(context: Context, method: str, path: str, instance_id: str, key: str, expires_s: int) -> str:
    expires = str(context.now_ms() // 1000 + expires_s)
    signature = _signature(context, method, instance_id, key, expires).decode()
    return f"{context.settings.public_url}{PREFIX}/{path}?expires={expires}&signature={signature}"


def _signature(context: Context, method: str, instance_id: str, key: str, expires: str) -> bytes:
    """With a key made of the archive's own: whoever may sign for the archive may sign for its relay, nobody else."""
    secret = hmac.digest(context.store.config.secret_access_key.encode(), b"provefleet relay 1", "sha256")
    told = "\n".join((method, instance_id, key, expires)).encode("utf-8", "surrogatepass")
    return hmac.new(secret, told, hashlib.sha256).hexdigest().encode()
