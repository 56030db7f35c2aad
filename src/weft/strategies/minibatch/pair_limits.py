"""What steps on batches of pairs cannot do that those of nodes can."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from weft.errors import GraphError, RecipeError
from weft.stores.base import stores
from weft.stores.open import check_store
from weft.tasks.base import Task

_NODES_ALONE = {
    "samplers": "ranks that only sample have no pairs; leave it out",
    "closed": "negatives may be any nodes, so that parts would hold the whole graph; leave it out",
}


def refuse_nodes_alone(options: Mapping[str, Any]) -> None:
    """Refuse options of batches that have no meaning where targets are pairs, or cannot be kept."""
    for name, reason in _NODES_ALONE.items():
        if options.get(name):
            raise RecipeError(f"strategy.{name}: {reason}")
    if options.get("seeds") == "local":
        raise RecipeError(
            "strategy.seeds: a step hides the pairs of all workers, which have to agree on them: 'global'"
        )
    if options.get("evaluate", "exact") != "exact":
        raise RecipeError("strategy.evaluate: pairs are scored from exact rows of all nodes: 'exact'")
    if options.get("sample_on") == "gpu":
        raise RecipeError("strategy.sample_on: a GPU cannot hide the pairs of a step; use 'auto' or 'cpu'")
    if options.get("store") is not None and stores[check_store(options["store"])[0]].caches:
        raise RecipeError(
            "strategy.store: a cache counts how often batches of nodes read a row; for pairs use 'memory' "
            "or 'mmap'"
        )


def check_timed_pairs(task: Task, timed: bool, device: torch.device) -> None:
    """Refuse neighbours by time where edges or pairs have none, or a batch does not stay on the CPU."""
    late = [split for split, pairs in task.pairs.items() if pairs.time is None]
    if not timed or late:
        what = f"the pairs of {late[0]!r} have no time" if timed else "the graph has no edge data 'time'"
        raise GraphError(f"strategy.temporal: {what}: when an edge, and a pair, came")
    if getattr(task, "split", {}).get("key") not in (None, "time"):
        raise RecipeError("task.split.key: neighbours go by the edge data 'time', so must the split")
    if device.type != "cpu":
        raise RecipeError("strategy.temporal: batches by time stay on the CPU; set train.device = 'cpu'")


def refuse_typed_store(store: Any, node_types: Sequence[str]) -> None:
    """Refuse features in a store where ends of pairs have several types: rows of one would be computed."""
    if store is not None and len(node_types) > 1:
        raise RecipeError(
            "strategy.store: with several node types rows of the target type alone are computed from a "
            "store, and pairs have ends of others; leave it out"
        )
