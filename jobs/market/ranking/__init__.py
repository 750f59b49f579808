"""Which offer gives most valid proofs for a dollar: forecasts with intervals, all-in prices, what is worth learning.

`rank` is pure: knowledge, work and offers in, a list in order out. `rank_offers` reads the knowledge from SQL first.
May import `jobs.domain` and numpy; never a provider.
"""

from jobs.market.ranking.choice import Ranked, rank, rank_offers
from jobs.market.ranking.work import Work, work_of

__all__ = ["Ranked", "Work", "rank", "rank_offers", "work_of"]
