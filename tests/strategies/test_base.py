"""What all strategies of several workers refuse alike."""

from typing import Any

import pytest
import torch
from halo_jobs import graph_of, parts_of
from torch import nn

from weft.errors import InputError, RecipeError
from weft.graph.parts.shard import make_shards
from weft.strategies.base import Strategy, Traffic, strategies
from weft.strategies.halo.halo import Halo
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.sampled import Sampled

KINDS: list[Any] = [strategies[name] for name in ("halo", "sequential", "grid", "vertex_cut")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_exchange_is_allowed_or_refused_with_those_that_are(kind: type[Strategy]) -> None:
    kind.check({})
    for name in kind.exchanges:
        kind.check({"exchange": name})
    foreign = "none" if "none" not in kind.exchanges else "stale"
    with pytest.raises(RecipeError, match=f"{kind.name}' does not allow '{foreign}'; allowed: exact"):
        kind.check({"exchange": foreign})


def test_auto_is_refused_before_a_graph_is_cut_where_links_are_not_measured() -> None:
    auto = {"exchange": {"name": "quantised", "bits": "auto"}}
    strategies["halo"].check(auto)
    for name in ("sequential", "grid"):
        with pytest.raises(RecipeError, match=f"'{name}' knows no 'auto'; give a number, or use 'halo'"):
            strategies[name].check(auto)


def test_what_was_sent_adds_up_over_the_sessions_of_a_run() -> None:
    strategy = Halo(LocalGraph(make_shards(graph_of("directed"), parts_of("directed", 1))[0]))
    for _ in range(2):
        strategy.add_traffic({"bytes_sent": 7, "messages": 2, "exposed_seconds": 0.5})
    assert strategy.traffic() == Traffic(14, 4, 1.0)


class Columns(nn.Module):
    """Gives so many outputs for each node, or for all but one."""

    hops = 1

    def __init__(self, count: int, *, missing: int = 0) -> None:
        super().__init__()
        self.weight, self.missing = nn.Parameter(torch.ones(6, count)), missing

    def forward(self, blocks: Any, x: torch.Tensor) -> torch.Tensor:
        h = blocks[0].aggregate(x) @ self.weight
        return h[self.missing :]


def test_outputs_that_do_not_fit_the_labels_are_refused_as_in_one_process() -> None:
    local = LocalGraph(make_shards(graph_of("directed"), parts_of("directed", 1))[0])
    few, short = Columns(2), Columns(3, missing=1)
    for strategy in (Halo(local), Sampled(graph_of("directed"), fanout=-1, prepare=0)):
        optimizer = torch.optim.SGD(few.parameters(), lr=0.1)
        with pytest.raises(
            InputError, match="gives 2 outputs a node, the graph has 3 classes; make it with 3"
        ):
            strategy.epoch(few, optimizer)
    with pytest.raises(InputError, match=r"outputs of shape \(36, columns\), got \(35, 3\); a row is a node"):
        Halo(local).evaluate(short, {})
