"""Every route of the site with arguments that exist, for the tests that walk them all."""

from __future__ import annotations

from flask import Flask
from werkzeug.routing import Rule

from tests.web.seed import Fleet
from tests.web.seed_vast import BAD, machine_id

SKIPPED_METHODS = {"HEAD", "OPTIONS"}


def arguments(rule: Rule, fleet: Fleet) -> dict[str, str]:
    known = {
        "run_id": fleet.runs["active"],
        "instance_id": fleet.instances["benchmarking"],
        "stream": "bench",
        "streams": "bench",
        "user_id": fleet.users["viewer"],
        "kind": "zkey",
        "name": "proofs.json",
        "filename": "app.css",
        "provider": "vast",
        "machine_id": machine_id(BAD["broken"]),
        "mark_id": str(fleet.mark),
        "proof_round": "1",
        "index": "0",
    }
    return {name: known[name] for name in rule.arguments}


def routes(app: Flask, fleet: Fleet) -> list[tuple[str, str, str]]:
    """(endpoint, method, path) of everything in the URL map."""
    found = []
    adapter = app.url_map.bind("localhost")
    for rule in app.url_map.iter_rules():
        path = adapter.build(rule.endpoint, arguments(rule, fleet), method=next(iter(rule.methods or {"GET"})))
        found += [(rule.endpoint, method, path) for method in sorted((rule.methods or set()) - SKIPPED_METHODS)]
    return sorted(found)
