"""What records are of: nodes, a record each, or pairs, a record with the ends and the negatives of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import GraphError, RecipeError
from weft.format import MESSAGES
from weft.graph.graph import Graph
from weft.pipeline.flatten.assemble import describe
from weft.pipeline.flatten.folder import GraphFolder, open_graph
from weft.pipeline.flatten.hops import HopPlan
from weft.tasks.choose import TaskChoice
from weft.tasks.pairs import about_pairs

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ChosenTargets:
    """The targets, in the order of records, and how their neighbourhoods are drawn."""

    folder: GraphFolder
    nodes: Ints
    """What neighbourhoods are of."""
    plan: HopPlan
    told: dict[str, Any]
    """What a manifest tells of them."""
    numbers: Ints | None = None
    """The record of each node, rising; None: one a node."""
    pairs: Ints | None = None
    """[n, 2] the ends of each pair."""

    def __post_init__(self) -> None:
        if not len(self.nodes):
            raise GraphError("targets: no node is one of them")
        if self.plan.weight is not None:
            self.folder.edge_data(self.plan.weight)
        if self.plan.temporal:
            self.folder.edge_data("time")
            self._check_times()
            late = np.flatnonzero(~np.isfinite(self.moments))
            if len(late):  # compared with it no edge is later
                raise GraphError(f"temporal: the time of node {self.nodes[late[0]]} is not a finite number")

    def __len__(self) -> int:
        """Return how many records there are."""
        return len(self.nodes) if self.pairs is None else len(self.pairs)

    def _check_times(self) -> None:
        timed = self.folder.kinds_with("time")
        if not timed:
            raise GraphError("temporal: the nodes have no time; a target sees the edges until its own")
        without = ~np.any([self.folder.of_kind(kind, self.nodes) for kind in timed], axis=0)
        if without.any():
            raise GraphError(
                f"temporal: node {self.nodes[without.argmax()]} is a target without a time, which nodes of "
                f"{', '.join(timed)} have; give the others one, or choose targets that have it"
            )

    @cached_property
    def moments(self) -> Any:
        """The times of the targets, where they matter."""
        return self.folder.of_nodes("time", self.nodes) if self.plan.temporal else None

    def seeds(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the nodes that some records have neighbourhoods of, and the place of each one's record."""
        if self.numbers is None:
            return self.nodes[places], np.arange(len(places))
        first = np.searchsorted(self.numbers, places)
        counts = np.searchsorted(self.numbers, places, side="right") - first
        whose = np.repeat(np.arange(len(places)), counts)
        at = np.arange(len(whose)) + np.repeat(first - np.cumsum(counts) + counts, counts)
        return self.nodes[at], whose

    def about(self, places: Ints) -> "pa.Table":
        """Return what is known of some records' targets, a row each."""
        import pyarrow as pa

        if self.pairs is None:
            return describe(self.folder, self.nodes[places])
        src, dst = self.pairs[places].T
        return pa.table({"target": places, "source": src, "destination": dst})


def chosen_nodes(folder: GraphFolder, targets: str, plan: HopPlan) -> ChosenTargets:
    """Return the nodes of splits; a node has one record, so two may not share any."""
    splits = {split: folder.targets(split) for split in (word.strip() for word in targets.split(","))}
    for one, two in combinations(splits, 2):
        shared = len(np.intersect1d(splits[one], splits[two], assume_unique=True))
        if shared:
            raise RecipeError(
                f"targets: {shared:,} nodes are in {one!r} and in {two!r}, and a node has one record; "
                "leave one of them out"
            )
    told = {"targets": ",".join(splits), "splits": {name: len(held) for name, held in splits.items()}}
    return ChosenTargets(folder, np.concatenate(list(splits.values())), plan, told)


def chosen_pairs(graph: Path, section: Mapping[str, Any], plan: HopPlan, work: Path) -> ChosenTargets:
    """Return the training pairs of a task, in the graph of its messages, written in `work`."""
    choice = TaskChoice.of(section)
    whole = Graph.load(graph)
    made = choice.make(whole)
    refusal = f"task.name: records of {made.name!r} are those of nodes: leave [task] out, and name --targets"
    task = about_pairs(made, otherwise=RecipeError(refusal))
    if plan.temporal:
        raise RecipeError("temporal: pairs see the messages of training, whatever their time; leave it out")
    task.hides(batches=False)
    shown = task.prepared(whole)
    task.targets(shown, lambda value: value)
    ends = task.fixed_ends()
    shown.save(work / MESSAGES, overwrite=True)
    numbers = np.repeat(np.arange(len(ends)), ends.shape[1])
    once = np.unique(np.stack([numbers, ends.numpy().reshape(-1)]), axis=1)
    told = {"targets": "pairs", "splits": {"train": len(ends)}, "task": choice.to_dict()}
    told |= {"messages": MESSAGES, "ends": task.record_mark()}
    pairs = ends[:, :2].numpy()
    return ChosenTargets(open_graph(work / MESSAGES), once[1], plan, told, numbers=once[0], pairs=pairs)
