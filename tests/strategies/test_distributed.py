"""What all strategies of several workers refuse alike."""

from typing import Any

import pytest

from weft.errors import RecipeError
from weft.strategies.base import strategies
from weft.strategies.distributed import Distributed

KINDS: list[Any] = [strategies[name] for name in ("halo", "sequential", "grid", "vertex_cut")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_exchange_is_allowed_or_refused_with_those_that_are(kind: type[Distributed]) -> None:
    kind.check({})
    for name in kind.exchanges:
        kind.check({"exchange": name})
    foreign = "none" if "none" not in kind.exchanges else "stale"
    with pytest.raises(RecipeError, match=f"{kind.name}' does not allow '{foreign}'; allowed: exact"):
        kind.check({"exchange": foreign})


def test_auto_is_refused_before_a_graph_is_cut_where_links_are_not_measured() -> None:
    auto = {"exchange": {"name": "quantised", "bits": "auto"}}
    strategies["halo"].check(auto)  # type: ignore[attr-defined]
    for name in ("sequential", "grid"):
        with pytest.raises(RecipeError, match=f"'{name}' knows no 'auto'; give a number, or use 'halo'"):
            strategies[name].check(auto)  # type: ignore[attr-defined]
