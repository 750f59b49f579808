"""The nasty cases N1 to N35, each by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fakes.vast.market import Market

Case = Callable[..., Any]
CASES: dict[str, Case] = {}


def arm(market: Market, name: str, variant: str = "", **options: Any) -> Any:
    """Raises ValueError for a case that does not exist."""
    name, _, inline = name.partition(":")
    case = CASES.get(name.upper())
    if case is None:
        raise ValueError(f"no scenario is called {name!r}: N1 to N35")
    return case(market, variant or inline, **options)
