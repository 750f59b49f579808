"""The context of a scene in another process, that a test can kill."""

from __future__ import annotations

import json

from pydantic import SecretStr

from jobs.context import Context, use
from jobs.settings import Settings
from tests.fakes.market import FakeMarket
from tests.jobs.scene import Scene

SECRETS = ("database_url", "redis_url", "s3_secret_access_key")


def describe(scene: Scene) -> str:
    """All that `context_of` needs, as one argument."""
    settings = scene.context.settings
    fields = {name: getattr(settings, name).get_secret_value() for name in SECRETS}
    fields |= {
        name: str(getattr(settings, name))
        for name in ("state_dir", "agent_bind", "s3_endpoint", "s3_bucket", "s3_access_key_id", "s3_public_endpoint")
    }
    return json.dumps({"settings": fields, "now_ms": scene.clock()})


def context_of(described: str) -> Context:
    """The context, in use by this process; its clock stands."""
    told = json.loads(described)
    settings = Settings(**{k: SecretStr(v) if k in SECRETS else v for k, v in told["settings"].items()})
    context = Context(settings, now_ms=lambda: told["now_ms"])
    context.providers["local"] = FakeMarket(settings.state_dir / "market.json", context.now_ms)
    use(context)
    return context
