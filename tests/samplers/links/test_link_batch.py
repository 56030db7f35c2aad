"""Batches of links as PyG's loader gives them."""

from typing import Any

import pytest
import torch
from link_data import WRITES, fields, plain, typed
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader.link_loader import LinkLoader
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NegativeSampling, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from weft.samplers import LinkNeighborLoader

pytest.importorskip("torch_geometric")


class Ends(BaseSampler):  # type: ignore[misc]
    """PyG's own sampling of links, with the ends alone for their neighbourhood."""

    edge_permutation = None

    def __init__(self, data: Any, disjoint: bool) -> None:
        self.data, self.disjoint = data, disjoint

    def sample_from_nodes(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    def sample_from_edges(self, inputs: Any, neg_sampling: Any = None) -> Any:
        def ends(seed: Any, time: Any = None) -> Any:
            none: Any = torch.zeros(0, dtype=torch.int64)
            batch: Any
            if isinstance(seed, dict):
                kinds = dict.fromkeys(self.data.edge_types, none)
                batch = (
                    {kind: torch.arange(len(ids)) for kind, ids in seed.items()} if self.disjoint else None
                )
                return HeteroSamplerOutput(node=seed, row=kinds, col=kinds, edge=kinds, batch=batch)
            batch = torch.arange(len(seed)) if self.disjoint else None
            return SamplerOutput(node=seed, row=none, col=none, edge=none, batch=batch)

        hetero = isinstance(self.data, HeteroData)
        nodes = (
            {kind: self.data[kind].num_nodes for kind in self.data.node_types}
            if hetero
            else self.data.num_nodes
        )
        return edge_sample(inputs, ends, nodes, self.disjoint, None, neg_sampling)


def theirs(data: Any, links: Any, **options: Any) -> list[Any]:
    timed = options.get("edge_label_time") is not None
    options["neg_sampling"] = NegativeSampling.cast(options.get("neg_sampling"))
    return list(LinkLoader(data, Ends(data, timed), links, **options))


def pairs_of(data: Any, index: Tensor, kinds: tuple[str, str] | None) -> Tensor:
    """Return rows of a batch as the ids of their nodes."""
    sides = (data, data) if kinds is None else (data[kinds[0]], data[kinds[1]])
    return torch.stack([side.n_id[rows] for side, rows in zip(sides, index)])


MODES: list[Any] = [
    None,
    "binary",
    "triplet",
    {"mode": "binary", "amount": 0.4},
    {"mode": "binary", "amount": 2.5},
    {"mode": "triplet", "amount": 3},
]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("given", ["plain", "labels", "times", "typed", "loops"])
def test_every_field_has_the_shape_and_type_that_pyg_gives_it(given: str, mode: Any) -> None:
    data: Any = typed() if given in ("typed", "loops") else plain()
    kind = {"typed": WRITES, "loops": ("paper", "cites", "paper")}.get(given)
    if kind is None:
        links: Any = None if given == "plain" else data.edge_index[:, 5:31]
    else:
        links = kind if given == "loops" else (kind, data[kind].edge_index[:, :25])
    options: dict[str, Any] = {"neg_sampling": mode, "batch_size": 10}
    if given == "labels" and (mode is None or "triplet" not in str(mode)):
        options["edge_label"] = torch.arange(26) % 3
    if given == "times":
        options["edge_label_time"] = torch.arange(26) % 7
    mine = [batch.to_pyg() for batch in LinkNeighborLoader(data, [3, 2], links, **options)]
    expected = theirs(data, links, **options)
    assert len(mine) == len(expected)
    kinds = None if kind is None else (kind[0], kind[2])
    for ours, other in zip(mine, expected):
        a, b = fields(ours), fields(other)
        assert a.keys() == b.keys()
        for key in a:
            assert (a[key].shape, a[key].dtype) == (b[key].shape, b[key].dtype), key
            if key[1].endswith("label") or "time" in key[1] or key[1] == "input_id":
                assert torch.equal(a[key], b[key]), key
        if mode is None or "binary" in str(mode):  # the links themselves, by the ids of their ends
            key = next(key for key in a if key[1] == "edge_label_index")
            count = len(next(value for key, value in a.items() if key[1] == "input_id"))
            first, second = (pairs_of(x, y[key][:, :count], kinds) for x, y in ((ours, a), (other, b)))
            assert torch.equal(first, second)
        else:
            names = ("src_index", "dst_pos_index")
            ends = [[next(v for k, v in y.items() if k[1] == name) for name in names] for y in (a, b)]
            assert torch.equal(*(pairs_of(x, torch.stack(y), kinds) for x, y in zip((ours, other), ends)))
