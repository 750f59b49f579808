"""Whether a rented machine could reach us: the machine app, and the archive or else the machine app's relay of it.

A machine elsewhere can use public https addresses only: what it sends is its token and the customer's witnesses, and
what it is sent is not signed. Names are not looked up: a name server of ours may answer otherwise than a stranger's.
Where the marketplace itself is on loopback (a fake one), its machines are on this host, and loopback is reachable.
"""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from jobs.market.providers.base import Provider
from jobs.settings import Settings

# RFC 6761, RFC 6762, RFC 7686, RFC 8375, RFC 9476 and ICANN's .internal: never names on the public internet.
_PRIVATE_NAMES = {"localhost", "local", "lan", "home", "arpa", "internal", "intranet", "corp"}
_PRIVATE_NAMES |= {"test", "invalid", "example", "onion", "alt"}


def refusal(settings: Settings, provider: Provider) -> str:
    """Why a machine of `provider` could not reach the machine app, and what to set; '' where it can."""
    if not provider.remote:
        return ""
    why = trouble(settings.public_url, same_host=on_this_host(settings))
    return (
        f"a rented machine could not reach this controller: PROVEFLEET_PUBLIC_URL {why}; set it to the https address "
        "under which the machine app is known to the internet, see docs/operations.md"
        if why
        else ""
    )


def relayed(settings: Settings, provider: Provider) -> str:
    """Why machines of `provider` must read the archive through the machine app; '' where they reach it themselves."""
    if not provider.remote:
        return ""
    return trouble(settings.s3_public_endpoint or settings.s3_endpoint, same_host=on_this_host(settings))


def variables(settings: Settings, bootstrap_token: str, hard_deadline_s: float) -> dict[str, str]:
    """The environment that an agent is started with (`docs/agent-protocol.md`). `hard_deadline_s` after its start a
    rented machine ends itself, whatever else happens."""
    return {
        "PROVEFLEET_AGENT_URL": settings.public_url or f"http://{settings.agent_bind}",
        "PROVEFLEET_BOOTSTRAP_TOKEN": bootstrap_token,
        "PROVEFLEET_HARD_DEADLINE_S": f"{hard_deadline_s:.0f}",
        "PROVEFLEET_EVIDENCE_DEADLINE_S": str(settings.evidence_deadline_s),
    }


def on_this_host(settings: Settings) -> bool:
    """True while the marketplace is on loopback, and its machines so too."""
    return _is_loopback((urlsplit(settings.vast_url).hostname or "").rstrip("."))


def trouble(url: str, *, same_host: bool = False) -> str:
    """What keeps a machine elsewhere from using `url`, to be read after the name of its setting; '' for nothing.

    `same_host`: the machine is on this host, and loopback will do.
    """
    if not url:
        return "is not set"
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return "is no web address"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "is no web address"
    if parts.username is not None or parts.query or parts.fragment:
        return "must be an address alone, without a user, '?' or '#'"
    if same_host and _is_loopback(host):
        return ""
    if why := _not_public(host):
        return f"is {why} ({host})"
    return "" if parts.scheme == "https" else f"is not https ({host}): tokens and witnesses would travel in clear"


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost" or host.endswith(".localhost")


def _not_public(host: str) -> str:
    address = _address(host)
    if address is not None:
        if address.is_loopback:
            return "a loopback address"
        if address.is_link_local:
            return "a link-local address"
        return "" if address.is_global and not address.is_multicast else "an address that the internet does not route"
    if "." not in host:
        return "a name of this network only"
    return "a name of this network only" if host.rpartition(".")[2] in _PRIVATE_NAMES else ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The numeric address, also in the old spellings (127.1, 0x7f000001) and inside of an IPv6 one; None for a name."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        return inner or address
    return address
