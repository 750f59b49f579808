"""Whom we rent from and for how much: the providers, and later pacing, ranking, reputation and the budget.

May import `jobs.settings`, `jobs.context` and `gpu.agent.facts` (stdlib: the machine seen as the agent sees
it). Knows no SQL state and no RQ: jobs call providers, providers call nobody back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.context import Context
    from jobs.market.providers.base import Provider


def provider(context: Context, name: str) -> Provider:
    """The provider called `name` ("local"). Raises `UnknownProvider`."""
    from jobs.market.providers.base import UnknownProvider

    if name in context.providers:
        return context.providers[name]
    if name == "local":
        from jobs.market.providers.local import LocalProvider

        return LocalProvider(context.settings)
    raise UnknownProvider(f"no provider is called {name!r}; this version knows: local")
