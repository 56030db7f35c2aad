"""Stores of a graph of several node types: one for each type that has features, read by global ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, RecipeError
from weft.stores.base import Counters, Store
from weft.stores.cached import SHARE, CachedStore, best, free_bytes


class TypedStores:
    """Reads rows of several node types: `gather(ids)` gives a matrix for each type that has a store.

    `capacity` is how many rows caches hold together: a number, a share, or "auto".
    """

    def __init__(
        self,
        held: Mapping[str, Store],
        node_types: Sequence[str],
        node_offsets: Sequence[int],
        *,
        capacity: Any = None,
    ) -> None:
        self.held, self.capacity = dict(held), capacity
        self.ranges = {
            kind: (node_offsets[index], node_offsets[index + 1])
            for index, kind in enumerate(node_types)
            if kind in self.held
        }
        for kind, (first, last) in self.ranges.items():
            if self.held[kind].num_rows != last - first:
                rows = self.held[kind].num_rows
                self.close()
                raise GraphError(f"the store of {kind!r} has {rows:,} rows, the graph {last - first:,} nodes")

    @property
    def counters(self) -> Counters:
        """What was asked of all of them."""
        total = Counters()
        for store in self.held.values():
            counts = store.counters
            total.add(rows=counts.rows, hits=counts.hits, bytes=counts.bytes)
        return total

    @property
    def ranked(self) -> bool:
        """Whether all caches know what to hold."""
        return all(store.ranked for store in self.held.values() if isinstance(store, CachedStore))

    def gather(self, ids: Tensor) -> dict[str, Tensor]:
        """Return the rows of global ids, by type, each in their order; of a shared store all ranks call."""
        by_type = {}
        for kind, (first, last) in self.ranges.items():
            chosen = ids[(ids >= first) & (ids < last)] - first
            by_type[kind] = self.held[kind].gather(chosen)
        return by_type

    def hold(self, scores: Tensor, share: int = 1) -> None:
        """Have the caches hold the rows with the largest scores [N], whatever their type; all ranks call.

        `share` is how many ranks share the memory of a machine.
        """
        known = torch.cat([torch.arange(*ends) for ends in self.ranges.values()])
        caches = {kind: store for kind, store in self.held.items() if isinstance(store, CachedStore)}
        scores = scores.clone()
        for kind, cache in caches.items():
            first, last = self.ranges[kind]
            scores[first:last] = cache.wanted(scores[first:last])
        chosen = known[best(scores[known], self._rows(len(known), share))]
        for kind, cache in caches.items():
            first, last = self.ranges[kind]
            cache.capacity = int(((chosen >= first) & (chosen < last)).sum())
            cache.hold(scores[first:last])

    def close(self) -> None:
        """Close all of them."""
        for store in self.held.values():
            store.close()

    def _rows(self, known: int, share: int) -> int:
        if self.capacity in (None, "auto"):
            size = sum(store.num_rows * store.row_bytes for store in self.held.values())
            return min(known, int(SHARE * free_bytes() / share * known) // max(size, 1))
        asked = self.capacity
        if isinstance(asked, str | bool) or asked < 0 or (isinstance(asked, float) and asked > 1):
            raise RecipeError(f"store.capacity: expected rows, a share up to 1.0, or 'auto', got {asked!r}")
        return min(known, round(asked * known) if isinstance(asked, float) else int(asked))
