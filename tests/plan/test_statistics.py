"""A graph that is not there: described by numbers, drawn out from two small ones."""

import math
from typing import Any

import pytest
from plan_machine import machine

from weft.config import make_recipe
from weft.errors import InputError
from weft.plan import statistics
from weft.plan.planning import make_plan
from weft.plan.statistics import Statistics, planned

HALO = {"name": "halo", "partitioner": "range", "exchange": "exact"}


def test_a_graph_is_described_whole_or_refused() -> None:
    assert Statistics.of(None, None, None, None, None) is None
    assert Statistics.of(100, 500, None, None, 3) == Statistics(100, 5.0, 64, 3)
    for given in ((None, 500, None, None, None), (100, None, None, None, None), (100, 5, 2.0, None, None)):
        with pytest.raises(InputError, match="--nodes and one of --edges and --degree"):
            Statistics.of(*given)
    with pytest.raises(InputError, match="say how large"):
        Statistics.of(None, None, None, 12, None)


@pytest.mark.parametrize(
    "odd", [{"nodes": 0}, {"degree": math.nan}, {"degree": math.inf}, {"classes": 0}, {"features": 0}]
)
def test_counts_of_none_and_degrees_that_are_no_number_are_refused(odd: dict[str, Any]) -> None:
    given = {"nodes": 100, "edges": None, "degree": 3.0, "features": None, "classes": None, **odd}
    given |= {"edges": 5, "degree": None} if "nodes" in odd else {}
    with pytest.raises(InputError, match="counts above zero"):
        Statistics.of(**given)


def test_rows_grow_with_nodes_and_weights_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SIZES", (100, 200))

    def plan(recipe: object, **_: object) -> object:
        return make_plan(recipe, machine=machine(), workers=[2], only=["halo"])  # type: ignore[arg-type]

    recipe = make_recipe({"model": {"hidden": 8}, "strategy": HALO})
    known = Statistics(2_000, 6.0, 8, 4)
    far = planned(known, plan, recipe)  # type: ignore[arg-type]
    near = planned(Statistics(200, 6.0, 8, 4), plan, recipe)  # type: ignore[arg-type]
    assert far.graph == {"num_nodes": 2000, "num_edges": 12000, "from": "statistics"}
    (large,), (small,) = far.configurations, near.configurations
    assert large.estimated
    assert large.bytes_by_purpose["gradient"] == small.bytes_by_purpose["gradient"]
    assert large.bytes_by_purpose["halo"] > 5 * small.bytes_by_purpose["halo"]
