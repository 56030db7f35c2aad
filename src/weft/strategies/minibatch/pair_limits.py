"""What steps on batches of pairs cannot do that those of nodes can."""

from collections.abc import Mapping, Sequence
from typing import Any

from weft.errors import RecipeError
from weft.stores.base import stores
from weft.stores.open import check_store

_NODES_ALONE = {
    "temporal": "pairs are evaluated over all edges of the message graph, whatever their time; leave it out",
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


def refuse_typed_store(store: Any, node_types: Sequence[str]) -> None:
    """Refuse features in a store where ends of pairs have several types: rows of one would be computed."""
    if store is not None and len(node_types) > 1:
        raise RecipeError(
            "strategy.store: with several node types rows of the target type alone are computed from a "
            "store, and pairs have ends of others; leave it out"
        )
