"""What PyG's link loader is told by, in weft's terms: links, negatives, fanouts, and what is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.build import EdgeType
from weft.graph.graph import Graph

_AS_IS: dict[str, tuple[Any, str]] = {
    "subgraph_type": ("directional", "batches have the edges that were drawn"),
    "directed": (True, "batches have the edges that were drawn"),
    "disjoint": (False, "only batches with edge_label_time are"),
    "temporal_strategy": ("uniform", "earlier edges are drawn uniformly"),
    "is_sorted": (False, "a graph sorts its edges once"),
    "transform": (None, "use convert=, which is given each batch"),
    "transform_sampler_output": (None, "use convert=, which is given each batch"),
    "filter_per_worker": (None, "threads make whole batches"),
    "neighbor_sampler": (None, "the loader makes its own"),
    "num_workers": (0, "use threads="),
    "pin_memory": (False, "batches are made in ordinary memory"),
    "courier": (None, "batches of links are made on the CPU and stay there"),
}
"""What PyG's loader takes and this one has no choice in: the one value, and what to do instead."""
_LOADER = ("drop_last", "threads", "ahead", "convert")


@dataclass(frozen=True, eq=False)
class NegativeSampling:
    """PyG's `NegativeSampling`: which negatives a batch has, and how many for each link."""

    mode: str
    amount: float = 1
    src_weight: Tensor | None = None
    dst_weight: Tensor | None = None

    @classmethod
    def of(cls, choice: Any, ratio: float | None) -> "NegativeSampling | None":
        """Return what was asked for: a mode, a dict, PyG's own object, or a ratio of random links."""
        if ratio:
            choice = {"mode": "binary", "amount": ratio}
        if choice is None:
            return None
        values = {"mode": choice} if isinstance(choice, str) else choice
        values = dict(values if isinstance(values, Mapping) else vars(values))
        wrong = sorted(set(values) - {"mode", "amount", "src_weight", "dst_weight"})
        mode, amount = getattr(values.get("mode"), "value", values.get("mode")), values.get("amount", 1)
        if wrong or mode not in ("binary", "triplet"):
            raise InputError(
                "neg_sampling: expected 'binary', 'triplet' or dict(mode=…, amount=…, src_weight=…, "
                f"dst_weight=…), got {choice!r}"
            )
        if not amount > 0 or (mode == "triplet" and amount != int(amount)):
            kind = "a whole number for triplets" if mode == "triplet" else "a number"
            raise InputError(f"neg_sampling: amount must be {kind} above 0, got {amount!r}")
        if mode == "triplet" and values.get("src_weight") is not None:
            raise InputError("neg_sampling: src_weight: triplets keep their sources; use mode='binary'")
        return cls(**(values | {"mode": mode, "amount": amount}))


def links_of(graph: Graph, links: Any) -> tuple[EdgeType | None, Tensor, Tensor]:
    """Return the relation that links are of, where node types are named, and their ends as global ids."""
    if graph.is_plain:
        src, dst = graph.edge_index if links is None else _index(links, graph.num_nodes, graph.num_nodes)
        return None, src, dst
    alone = isinstance(links, tuple | list) and len(links) == 3 and isinstance(links[0], str)
    paired = isinstance(links, tuple | list) and len(links) == 2 and isinstance(links[0], tuple | list)
    kind, index = (links, None) if alone else links if paired else ((), None)
    kind = tuple(kind)
    if kind not in graph.edge_types:
        known = ", ".join(map(str, graph.edge_types))
        raise GraphError(
            f"edge_label_index: expected ((source, name, target), index) of {known}; got {str(links)[:60]}"
        )
    if index is None:
        kinds = graph.given_edge_type()
        chosen = slice(None) if kinds is None else kinds == graph.edge_types.index(kind)
        src, dst = graph.edge_index[:, chosen]
        return kind, src, dst
    rows = [graph.rows_of_type(kind[end]) for end in (0, 2)]
    src, dst = _index(index, *(each.stop - each.start for each in rows))
    return kind, src + rows[0].start, dst + rows[1].start


def _index(links: Any, sources: int, targets: int) -> Tensor:
    index = torch.as_tensor(links).cpu()
    if index.dim() != 2 or len(index) != 2 or index.is_floating_point() or index.dtype == torch.bool:
        raise GraphError(
            f"edge_label_index: expected ids [2, n], got {index.dtype} of shape {list(index.shape)}"
        )
    for ends, count, name in zip(index, (sources, targets), ("sources", "targets")):
        wrong = ends[(ends < 0) | (ends >= count)]
        if wrong.numel():
            raise GraphError(f"edge_label_index: expected {name} 0 … {count - 1:,}, got {int(wrong[0]):,}")
    return index.long()


def by_hop(fanouts: Any) -> Any:
    """Return fanouts by relation, as PyG has them, as one table per hop; others as they are."""
    if not isinstance(fanouts, Mapping):
        return fanouts
    hops = {len(counts) for counts in fanouts.values()}
    if len(hops) != 1:
        raise InputError(f"num_neighbors: expected as many for each relation, one a hop; got {dict(fanouts)}")
    return [{kind: counts[hop] for kind, counts in fanouts.items()} for hop in range(hops.pop())]


def check_as_is(options: dict[str, Any], *, timed: bool) -> None:
    """Take out what has one value here; refuse another one, and what nobody knows."""
    for name, (value, instead) in _AS_IS.items():
        chosen = options.pop(name, value)
        if chosen != value and not (name == "disjoint" and timed):
            raise InputError(f"{name}={chosen!r}: weft's LinkNeighborLoader has {value!r} alone; {instead}")
    for name in options:
        if name not in _LOADER:
            raise InputError(
                f"LinkNeighborLoader takes no {name!r}; of a loader's options: {', '.join(_LOADER)}"
            )
