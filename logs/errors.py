"""Each way the object store can fail, by name. Texts say what, why and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class StoreError(Exception):
    """Base of everything that `logs.store` raises on purpose."""


class StoreUnavailable(StoreError):
    """The store can't be reached, timed out or answers 5xx. Waiting may help; retry later."""


class StoreRefused(StoreError):
    """The store answers, and says no: keys, bucket, rights, clock. Waiting won't help."""


class NotOffered(StoreRefused):
    """The server does not know this operation or condition."""


class NoSuchObject(StoreError):
    """There is no object under this key."""


class ObjectConflict(StoreError):
    """Another object already lies under a key that may be written once."""


class OutOfRange(StoreError):
    """The object ends before the bytes that were asked for."""


class TooLarge(StoreError):
    """More bytes than the caller allows."""


_ADVICE = {
    "InvalidAccessKeyId": "the access key is unknown there; check PROVEFLEET_S3_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret does not fit; check PROVEFLEET_S3_SECRET_ACCESS_KEY",
    "AccessDenied": "the key may not do this; give it read, write, list and delete on the bucket",
    "AllAccessDisabled": "the account is disabled; ask the storage provider",
    "NoSuchBucket": "the bucket is missing; check PROVEFLEET_S3_BUCKET, or create it",
    "RequestTimeTooSkewed": "this machine's clock is wrong; set it (NTP)",
    "AuthorizationHeaderMalformed": "the region is wrong; check PROVEFLEET_S3_REGION",
    "PermanentRedirect": "the bucket lives elsewhere; check PROVEFLEET_S3_ENDPOINT and _REGION",
}
_BUSY = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestTimeout",
    "TooManyRequests",
    "InternalError",
}


@contextmanager
def translated(action: str, key: str) -> Iterator[None]:
    """Turns what boto3 raises inside the block into the errors above."""
    from botocore import exceptions as boto  # lazy: half a second, and not every process needs it

    try:
        yield
    except boto.ClientError as error:
        raise _from_answer(error, action, key) from error
    except (boto.HTTPClientError, boto.ConnectionError, boto.IncompleteReadError) as error:
        reason = str(error).replace("\n", " ")[:200]
        raise StoreUnavailable(f"can't {action} {key}: the object store does not answer ({reason})") from error
    except (boto.BotoCoreError, ValueError) as error:
        raise StoreRefused(f"can't {action} {key}: {str(error)[:300]}; check the PROVEFLEET_S3_* settings") from error


def _from_answer(error: object, action: str, key: str) -> StoreError:
    response = getattr(error, "response", {})
    code = str(response.get("Error", {}).get("Code", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if code == str(status):  # a HEAD has no body to say more in
        code = ""
    if code in _ADVICE:
        return StoreRefused(f"can't {action} {key}: {code}: {_ADVICE[code]}")
    if status == 404:
        return NoSuchObject(f"no object {key}")
    if status == 501 or code == "NotImplemented":
        return NotOffered(f"can't {action} {key}: this object store does not offer it")
    if status == 416:
        return OutOfRange(f"can't {action} {key}: it ends before the bytes that were asked for")
    if status == 412 or code == "ConditionalRequestConflict":
        return ObjectConflict(f"can't {action} {key}: another object is there")
    if status >= 500 or status == 429 or code in _BUSY:
        return StoreUnavailable(f"can't {action} {key}: the store answers {status} {code}; try again later")
    if status in (401, 403):
        return StoreRefused(f"can't {action} {key}: {status} {code}: {_ADVICE['AccessDenied']}")
    message = str(response.get("Error", {}).get("Message", ""))[:200]
    return StoreRefused(f"can't {action} {key}: {status} {code} {message}")
