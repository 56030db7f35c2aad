"""Stores of several ranks as a recipe names them: the same names and options as in one process."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import GraphError, RecipeError
from weft.graph.shard import Shard
from weft.samplers.replicas import importance
from weft.stores.base import Store
from weft.stores.cached import SHARE, CachedStore, free_bytes
from weft.stores.mmap import MmapStore
from weft.stores.open import check_store
from weft.stores.rankers import reads
from weft.stores.sharded import ShardedStore
from weft.stores.shared import SharedStore
from weft.stores.storage import decode, encode

_PLAN = Label("plan")
Steps = tuple[Callable[[int, int], Tensor], int]
"""The nodes that this rank reads in a step of an epoch, and the number of steps."""


def open_on_ranks(
    spec: str | Mapping[str, Any], shard: Shard, group: Group, steps: Callable[[], Steps] | None = None
) -> Store:
    """Return the store that a rank reads the features of its batches from; all ranks call together.

    "memory" and "sharded" leave rows with their owners, in the bits of `storage`; "mmap" and "shared" are
    read by every rank itself, so that nothing travels; "cached" holds `capacity` rows of others. Its ranker
    "frequency" counts what this rank reads in some `steps`.
    """
    name, given = check_store(spec)
    x = shard.node_data[shard.node_types[0]].get("x") if len(shard.node_types) == 1 else None
    if not isinstance(x, Tensor):
        raise GraphError("strategy.store: expected a graph of one node type with a dense matrix x")
    if name == "shared":
        return _checked(SharedStore(given["store"], field=given.get("field", "x")), shard)
    if "path" in given:
        behind: Store = _checked(MmapStore(given.pop("path"), dtype=x.dtype), shard)
    else:
        behind = ShardedStore(
            x, node_ids=shard.node_ids, group=group, name="features", storage=given.get("storage")
        )
    if name != "cached":
        return behind
    scores = _scores(given.pop("ranker", "out_degree"), shard, group, steps)
    if behind.collective:
        scores[shard.node_ids] = -1.0  # held already
    capacity = given.pop("capacity", "auto")
    if capacity == "auto":  # the ranks of a machine share its memory
        size = behind.row_bytes
        capacity = min(shard.num_nodes, int(SHARE * free_bytes() / group.size) // max(size, 1))
    return CachedStore(behind, scores, capacity=capacity, **given)


def rounded(shard: Shard, spec: str | Mapping[str, Any]) -> Shard:
    """Return the shard with features as the store's bits give them, so that whoever reads x sees the same."""
    _, given = check_store(spec)
    if given.get("storage") is None or "path" in given:
        return shard
    data = {kind: dict(held) for kind, held in shard.node_data.items()}
    for held in data.values():
        x = held.get("x")
        if isinstance(x, Tensor):
            held["x"] = decode(*encode(x, given["storage"]), x.dtype)
    return replace(shard, node_data=data)


def _checked(store: Store, shard: Shard) -> Store:
    if store.num_rows != shard.num_nodes:
        store.close()
        raise GraphError(f"the store has {store.num_rows:,} rows, the graph {shard.num_nodes:,} nodes")
    return store


def _scores(ranker: str, shard: Shard, group: Group, steps: Callable[[], Steps] | None) -> Tensor:
    if ranker == "random":
        generator = torch.Generator().manual_seed(group.rank)
        return torch.rand(shard.num_nodes, generator=generator, dtype=torch.float64)
    if ranker == "importance":
        return importance(shard, group, hops=2)
    degree = _out_degree(shard, group)
    if ranker == "out_degree":
        return degree
    if steps is None:
        raise RecipeError("store.ranker: 'frequency' needs a strategy that samples; use 'out_degree'")
    nodes, count = steps()
    return reads(nodes, count, degree)


def _out_degree(shard: Shard, group: Group) -> Tensor:
    """Return the out-degree of every node, [N], from those that each rank holds."""
    counts = group.all_gather(torch.tensor([len(shard.node_ids)]), label=_PLAN).wait().tolist()
    ids = group.all_gather(shard.node_ids, counts, label=_PLAN).wait()
    own = shard.degrees.out_of.count[: len(shard.node_ids)].double().contiguous()
    degree = torch.zeros(shard.num_nodes, dtype=torch.float64)
    degree[ids] = group.all_gather(own, counts, label=_PLAN).wait()
    return degree
