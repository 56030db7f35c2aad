"""Stores of several ranks as a recipe names them: the same names and options as in one process."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import GraphError, RecipeError
from weft.graph.parts.shard import Shard
from weft.samplers.workers.replicas import importance
from weft.stores.base import Store
from weft.stores.cached import CachedStore
from weft.stores.mmap import MmapStore
from weft.stores.open import check_store
from weft.stores.rankers import reads
from weft.stores.sharded import ShardedStore
from weft.stores.shared import SharedStore
from weft.stores.storage import decode, encode
from weft.stores.typed import TypedStores, of_type

_PLAN = Label("plan")
Steps = tuple[Callable[[int, int], Tensor], int]
"""The nodes that this rank reads in a step of an epoch, and the number of steps."""


def open_on_ranks(
    spec: str | Mapping[str, Any], shard: Shard, group: Group, steps: Callable[[], Steps] | None = None
) -> Store | TypedStores:
    """Return the store that a rank reads the features of its batches from; all ranks call together.

    "memory" and "sharded" leave rows with their owners, in the bits of `storage`; "mmap" and "shared" are
    read by every rank itself, so that nothing travels; "cached" holds `capacity` rows of others. Its ranker
    "frequency" counts what this rank reads in some `steps`. Several node types have a store each.
    """
    name, given = check_store(spec)
    capacity, ranker = given.pop("capacity", "auto"), given.pop("ranker", "out_degree")
    behind = {kind: _behind(name, given, kind, shard, group) for kind in _with_features(shard)}
    if name == "cached":
        scores = _scores(ranker, shard, group, steps)
        if "path" not in given:
            scores[shard.node_ids] = -1.0  # held already
        behind = {
            kind: CachedStore(each, None, storage=given.get("storage")) for kind, each in behind.items()
        }
    made = TypedStores(behind, shard.node_types, shard.node_offsets, capacity=capacity)
    if name == "cached":
        made.hold(scores, group.size)  # the ranks of a machine share its memory
    return made if len(shard.node_types) > 1 else made.held[shard.node_types[0]]


def _with_features(shard: Shard) -> list[str]:
    """Return the node types that have features; refuse what no store keeps."""
    x = {kind: held["x"] for kind, held in shard.node_data.items() if "x" in held}
    if not x or not all(isinstance(each, Tensor) for each in x.values()):
        raise GraphError("strategy.store: expected a dense matrix x, for each node type that has features")
    return list(x)


def _behind(name: str, given: Mapping[str, Any], kind: str, shard: Shard, group: Group) -> Store:
    """Return where the rows of one node type lie."""
    own = of_type(given, kind) if len(shard.node_types) > 1 else given
    x, place = shard.node_data[kind]["x"], shard.node_types.index(kind)
    assert isinstance(x, Tensor)
    if name == "shared":
        return SharedStore(own["store"], field=own.get("field", "x"))
    if "path" in own:
        return MmapStore(own["path"], dtype=x.dtype)
    ids = shard.node_ids[shard.type_ranges()[kind]] - shard.node_offsets[place]
    return ShardedStore(x, node_ids=ids, group=group, name="features", storage=own.get("storage"))


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
