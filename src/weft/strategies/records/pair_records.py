"""Batches of pairs from records: one record a pair, with the neighbourhoods of its ends and of its negatives.

The negatives of a pair are those of epoch 0, as drawn when the records were made: draws are counters, so the
loader draws them again rather than reads them.
"""

from typing import Any

from weft.errors import RecipeError
from weft.samplers.core.pair_ends import EndRows
from weft.samplers.edges import EdgeBatch
from weft.strategies.records.batch_blocks import batch_of
from weft.strategies.records.record_loader import RecordFiles, RecordLoader
from weft.tasks.base import Task


class PairLoader(RecordLoader):
    """Iterate over batches of one worker's records of pairs."""

    def __init__(self, task: Task, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.pairs, self.negatives = task.pairs["train"], task.step_negatives()

    def batch(self, epoch: int, step: int) -> Any:
        """Return the pairs of a step, and the neighbourhoods of all their ends, each node once."""
        rows = self._rows(epoch, step)
        pairs = self.pairs.take(self.seeds_of(epoch, step))
        drawn: Any = pairs.src.new_empty(len(pairs), 0)
        if self.negatives is not None:
            drawn = self.negatives(pairs, 0, 0, batch=pairs)
        negative = getattr(drawn, "nodes", drawn)
        ends = EndRows.of(pairs, negative)
        hops = len(self.files.fanout)
        nodes = batch_of(self.source, rows, hops, seeds=ends.seeds.numpy(), epoch=epoch, step=step)
        masked = getattr(drawn, "masked", None)
        return EdgeBatch(
            nodes.without_y(), pairs, ends.src, ends.dst, ends.negative, masked,
            total=self.count(epoch, step),
        )  # fmt: skip


def check_pairs_of(files: RecordFiles, task: Task) -> None:
    """Refuse records of pairs for another task than theirs, and records of nodes for a task of pairs."""
    again = "flatten it with the options of this task: weft flatten GRAPH --set task.name=…"
    ends, wanted = files.manifest.get("ends"), task.record_mark()
    if ends == wanted:
        return
    if wanted is None:
        raise RecipeError(
            f"task.name: {files.folder} holds records of pairs, which {task.name!r} is not about; use "
            f"{files.manifest['task']['name']!r}, or flatten the graph for nodes"
        )
    if ends is None:
        raise RecipeError(f"strategy.records: {files.folder} holds records of nodes, not of pairs; {again}")
    raise RecipeError(
        f"strategy.records: {files.folder} holds records of other pairs, or of other negatives; {again}"
    )
