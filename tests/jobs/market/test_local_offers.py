"""How a machine is cut into offers, for machines that we do not have."""

from __future__ import annotations

from jobs.market.providers.base import OfferFacts
from jobs.market.providers.local_offers import Gpu, divide, ranges

BASE = OfferFacts("", "m", 0.25)


def cards(count: int) -> list[Gpu]:
    return [Gpu(i, "NVIDIA H200", f"GPU-{i}", 141 << 30, "580.1") for i in range(count)]


def test_each_gpu_comes_with_its_share_of_the_cores() -> None:
    offers = divide(BASE, list(range(8)), cards(2), 8)
    assert [(o.offer.num_gpus, o.offer.cpu_cores, sorted(o.cores)) for o in offers] == [
        (1, 4, [0, 1, 2, 3]),
        (1, 4, [4, 5, 6, 7]),
        (0, 8, list(range(8))),
    ]
    assert offers[0].offer.gpu_model == "NVIDIA H200"
    assert offers[0].offer.gpu_ram_bytes == 141 << 30
    assert len({o.offer.offer_id for o in offers}) == 3


def test_what_is_rented_takes_the_offers_that_overlap() -> None:
    first, second, whole = divide(BASE, list(range(8)), cards(2), 8)
    assert first.overlaps(set(first.cores), {"GPU-0"})
    assert not second.overlaps(set(first.cores), {"GPU-0"})
    assert whole.overlaps(set(first.cores), {"GPU-0"})
    assert not any(o.overlaps(set(), set()) for o in (first, second, whole))


def test_more_gpus_than_cores_share_cores() -> None:
    offers = divide(BASE, [3, 9], cards(3), 1)
    assert [sorted(o.cores) for o in offers] == [[3], [9], [3], [3], [9]]


def test_names_of_core_sets() -> None:
    assert ranges([0, 1, 2, 5]) == "0-2.5"
    assert ranges([7]) == "7"
    assert len(ranges(list(range(0, 512, 2)))) == 16
