"""Who runs what of a pipeline: the layers of each stage, and the workers that run it by turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

from weft.errors import RecipeError


@dataclass(frozen=True)
class StageDivision:
    """Layers cut into stages one behind the other; `replicas` workers of a stage take micro-batches by turns.

    Ranks are numbered stage after stage. Micro-batch b is run by replica b mod r of a stage of r replicas.
    """

    layers: tuple[int, ...]
    """How many layers each stage has."""
    replicas: tuple[int, ...]
    """How many workers run each stage."""

    @property
    def num_stages(self) -> int:
        """The number of stages."""
        return len(self.layers)

    @property
    def workers(self) -> int:
        """The workers of all stages."""
        return sum(self.replicas)

    @cached_property
    def uniform(self) -> bool:
        """Whether all stages have the same number of replicas."""
        return len(set(self.replicas)) == 1

    def ranks(self, stage: int) -> range:
        """Return the workers of a stage."""
        first = sum(self.replicas[:stage])
        return range(first, first + self.replicas[stage])

    def place(self, rank: int) -> tuple[int, int]:
        """Return the stage of a worker, and which of its replicas it is."""
        for stage in range(self.num_stages):
            if rank in self.ranks(stage):
                return stage, rank - self.ranks(stage).start
        raise ValueError(f"rank {rank} of {self.workers} workers")

    def layers_of(self, stage: int) -> range:
        """Return the layers of a stage."""
        ends = [0, *accumulate(self.layers)]
        return range(ends[stage], ends[stage + 1])

    def holder(self, stage: int, micro: int) -> int:
        """Return the worker of a stage that runs a micro-batch."""
        return self.ranks(stage)[micro % self.replicas[stage]]

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The micro-batches that a worker of each stage has in flight at most where updates do not wait.

        As many as keep the stages behind it busy: ceil(their workers and its own / its own), which is stages
        - index without replicas (PipeDream's NOAM for the first stage). Replicas update together, so the
        stage before must be able to feed all of them: else it would wait for a gradient that waits for it.
        """
        found: list[int] = []
        for stage in reversed(range(self.num_stages)):
            own, behind = self.replicas[stage], sum(self.replicas[stage:])
            depth = -(-behind // own)
            if found:
                depth = max(depth, 2 + (found[0] * self.replicas[stage + 1] - 2) // own)
            found.insert(0, depth)
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return it as a run keeps it."""
        return {"layers": list(self.layers), "replicas": list(self.replicas)}


def division_of(layers: Sequence[int], replicas: Sequence[int], *, depth: int, workers: int) -> StageDivision:
    """Return the division of a model of `depth` layers over so many workers, or say what does not fit."""
    made = StageDivision(tuple(layers), tuple(replicas))
    if sum(layers) != depth:
        raise RecipeError(
            f"strategy.stages: {list(layers)} are {sum(layers)} layers, the model has {depth}; give the "
            "layers of each stage, or their number"
        )
    if made.workers != workers:
        raise RecipeError(
            f"strategy.stages: {told(made)} takes {made.workers} workers, there are {workers}; start it with "
            f"--workers {made.workers} (LEAST:{made.workers} where they come and go), or change "
            "strategy.stages or strategy.replicas"
        )
    return made


def told(division: StageDivision) -> str:
    """Return a division in words: stages, and the workers of each where there are several."""
    stages = f"{division.num_stages} stage{'s' * (division.num_stages > 1)}"
    if division.workers == division.num_stages:
        return stages
    each = division.replicas[0] if division.uniform else " + ".join(map(str, division.replicas))
    return f"{stages} of {each} workers"
