"""What every exchange promises: gradients are the adjoint of what was brought, at its exact point and at any
fixed draw, with as many ranks as one likes.
"""

import exchange_jobs
import pytest
from ranks import run_ranks

from weft.errors import InputError
from weft.exchanges import check_exchange, exchanges

NAMES = exchanges.names()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_backward_is_the_adjoint_of_forward_at_the_exact_point(name: str, size: int) -> None:
    kept = run_ranks(size, exchange_jobs.adjoint, {"name": name, **exchanges[name].exact_at})
    assert kept == run_ranks(size, exchange_jobs.adjoint, "exact")


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_backward_of_a_fixed_draw_is_its_adjoint(p: float) -> None:
    run_ranks(4, exchange_jobs.adjoint, {"name": "sampled", "p": p})


def test_mistakes_in_a_recipe_are_named() -> None:
    with pytest.raises(InputError, match="did you mean 'sampled'"):
        check_exchange("sampeld")
    with pytest.raises(InputError, match=r"unknown key strategy\.exchange\.q"):
        check_exchange({"name": "sampled", "q": 0.1})
    with pytest.raises(InputError, match="expected a name"):
        check_exchange({"p": 0.1})
