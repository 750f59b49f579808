"""Whom we rent from and for how much: the providers, pacing, ranking, reputation and the budget.

May import `jobs.settings`, `jobs.context`, `jobs.domain` and `gpu.agent.facts` (stdlib: the machine seen as the agent
sees it). `providers/` knows no SQL state, and nothing here knows RQ: jobs call providers, providers call nobody back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Provider
    from jobs.settings import Settings


def provider_names(settings: Settings) -> tuple[str, ...]:
    """The providers that can be used: this machine, and each marketplace that we have an account key of."""
    return ("local", "vast") if settings.vast_api_key.get_secret_value() else ("local",)


def provider(context: Context, name: str) -> Provider:
    """The provider called `name` ("local", "vast"). Raises `UnknownProvider`.

    One without a key is made too: each of its calls then says which setting it lacks.
    """
    from jobs.market.providers.base import UnknownProvider

    if name in context.providers:
        return context.providers[name]
    if name == "local":
        from jobs.market.providers.local import LocalProvider

        return LocalProvider(context.settings)
    if name == "vast":
        from jobs.market.providers.vast import VastProvider

        return VastProvider(
            context.settings,
            redis=context.redis,
            now_ms=context.now_ms,
            sleep=context.sleep,
            transport=context.vast_transport,
            paced=context.paced,
        )
    raise UnknownProvider(f"no provider is called {name!r}; this version knows: local, vast")
