"""Every route: its name, the scope that a key needs, whether it changes something."""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBERS = re.compile(r"/\d+(?=/|$)")


@dataclass(frozen=True, slots=True)
class Route:
    """`name` is `METHOD /path`, without a trailing slash. `scope` None: open to all."""

    name: str
    scope: str | None
    write: bool = False


def _read(scope: str | None, *names: str) -> tuple[Route, ...]:
    return tuple(Route(name, scope) for name in names)


def _write(scope: str, *names: str) -> tuple[Route, ...]:
    return tuple(Route(name, scope, True) for name in names)


ROUTES = (
    *_read(
        None,
        "POST /api/v0/bundles",
        "PUT /api/v0/search/asks",
        "GET /api/v0/gpu_types",
        "GET /api/v0/gpu_names/unique",
    ),
    *_read("misc", "GET /api/v0/benchmarks"),
    *_write(
        "instance_write",
        "PUT /api/v0/asks/{id}",
        "POST /api/v0/asks/bulk",
        "PUT /api/v0/launch_instance",
        "PUT /api/v0/instances/{id}",
        "PUT /api/v0/instances",
        "DELETE /api/v0/instances/{id}",
        "DELETE /api/v0/instances",
        "PUT /api/v0/instances/reboot/{id}",
        "PUT /api/v0/instances/recycle/{id}",
        "PUT /api/v0/instances/bid_price/{id}",
        "PUT /api/v0/instances/update_template/{id}",
        "PUT /api/v0/instances/command/{id}",
        "POST /api/v0/instances/{id}/ssh",
        "DELETE /api/v0/instances/{id}/ssh/{key_id}",
        "POST /api/v0/commands/rclone",
    ),
    *_read(
        "instance_read",
        "GET /api/v1/instances",
        "GET /api/v0/instances",
        "GET /api/v0/instances/filters",
        "GET /api/v0/instances/{id}",
        "PUT /api/v0/instances/request_logs/{id}",
        "GET /api/v0/instances/{id}/ssh",
        "GET /api/v0/instances/balance/{id}",
    ),
    *_read("user_read", "GET /api/v0/users/current", "GET /api/v0/ssh", "GET /api/v0/notification-types"),
    *_read("user_read", "GET /api/v0/webhooks"),
    *_write("user_write", "POST /api/v0/ssh", "PUT /api/v0/ssh/{id}", "DELETE /api/v0/ssh/{id}"),
    *_write("user_write", "POST /api/v0/webhooks", "DELETE /api/v0/webhooks/{id}"),
    *_write("user_write", "POST /api/v0/webhooks/{id}/test", "POST /api/v0/webhooks/{id}/rotate-secret"),
    *_read("billing_read", "GET /api/v0/charges", "GET /api/v1/invoices"),
)
BY_NAME = {route.name: route for route in ROUTES}


def find(method: str, path: str) -> tuple[Route | None, list[int]]:
    """(route, the numbers in the path) of a request; None where nothing answers."""
    path = path.rstrip("/")
    if path.startswith("/api/v0/instances/") and path.count("/ssh") and method == "DELETE":
        pattern = NUMBERS.sub("/{id}", path, count=1)
        pattern = NUMBERS.sub("/{key_id}", pattern, count=1)
    else:
        pattern = NUMBERS.sub("/{id}", path)
    numbers = [int(number[1:]) for number in NUMBERS.findall(path)]
    return BY_NAME.get(f"{method} {pattern}"), numbers
