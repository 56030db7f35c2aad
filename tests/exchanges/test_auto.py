"""p and bits that go by the speed of links."""

import auto_jobs
import pytest
from ranks import run_ranks

from weft.errors import RecipeError
from weft.exchanges import check_exchange
from weft.strategies.halo.halo import Halo


def test_slow_links_carry_less_and_sums_stay_right() -> None:
    told = run_ranks(4, auto_jobs.everything)
    assert all(each["chosen"] == told[0]["chosen"] for each in told), "chosen alike by all"
    assert all(each["speed"] == told[0]["speed"] for each in told)
    for sender in range(4):
        for reader in range(4):
            if sender != reader:
                assert 0 < told[0]["speed"][sender][reader] < float("inf")
    p, bits = told[0]["chosen"]["p"], told[0]["chosen"]["bits"]
    assert all(p[0][rank] < p[1][2] for rank in (1, 2, 3))
    assert all(bits[rank][0] < bits[1][2] for rank in (1, 2, 3))
    back = told[0]["one way"]
    assert all(max(back[0][rank], back[rank][0]) < back[1][2] for rank in (1, 2, 3)), "gradients travel too"
    assert told[0]["state"] == ["link_bits", "link_p"]
    assert 0 < max(each["coded"] for each in told) < 4, "links of several widths in one message"


def test_auto_and_a_budget_exclude_each_other() -> None:
    check_exchange({"name": "sampled", "p": "auto", "bits": "auto"})
    with pytest.raises(RecipeError, match=r"strategy\.error: 'auto' goes by the links"):
        Halo.check({"exchange": {"name": "sampled", "p": "auto"}, "error": 0.1})
    with pytest.raises(RecipeError, match=r"strategy\.exchange\.p: expected .*'auto'.* got 'fast'"):
        check_exchange({"name": "sampled", "p": "fast"})
