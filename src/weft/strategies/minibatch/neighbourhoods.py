"""Steps on sampled neighbourhoods of training nodes, or of the ends of training pairs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from weft.graph.sparse import SparseFeatures
from weft.kernels import gpu
from weft.samplers.base import Batch, Sampler
from weft.samplers.loader import Loader
from weft.stores.base import Counters
from weft.strategies.batching import Beside
from weft.strategies.hops import checked_hops
from weft.strategies.minibatch.fanouts import Hops, usual_fanouts
from weft.strategies.minibatch.loaded import LoadedBatches
from weft.strategies.minibatch.neighbours import Neighbours
from weft.strategies.minibatch.replay import Replay
from weft.strategies.shared import CONTROL
from weft.tasks.base import Pieces, Targets


class Neighbourhoods(LoadedBatches):
    """Batches that `neighbours` draw, `fanout` edges a row in each hop.

    `evaluate` is exact, or a fanout for each hop. With `temporal` a seed sees no edge later than itself.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        *,
        fanout: int | Sequence[Any] | None,
        evaluate: Literal["exact"] | Sequence[int] = "exact",
        temporal: bool = False,
    ) -> None:
        layout = neighbours.source.layout
        super().__init__(layout.shared, layout)
        self.neighbours, self.drawing = neighbours, neighbours.drawing
        self.fanout, self.evaluation, self.temporal = fanout, evaluate, temporal
        self._evaluator: Sampler | None = None
        self._split_loaders: dict[str, Loader | None] = {}
        self._replay: Replay | None = None

    # The steps of an epoch

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of another number of hops than there are fanouts."""
        checked_hops(model, self.fanout, "strategy.fanout", self.layout.graph.x)
        if self.evaluation != "exact":
            checked_hops(model, self.evaluation, "strategy.evaluate", self.layout.graph.x)

    def make_loader(self, model: nn.Module) -> Loader:
        """Return what prepares the batches; there must be a fanout for each hop of the model."""
        task = self.shared.task
        hops = checked_hops(model, self.fanout, "strategy.fanout", self.layout.graph.x)
        fanout = fanouts_of(self.fanout, hops)
        loader = self.load(fanout)
        plain = loader.sampler.plain and not isinstance(loader.sampler.graph.x, SparseFeatures)
        plain = (
            plain and task.over == "nodes" and not task.loss.own
        )  # a function of the user's may do anything
        if self.layout.nearby is not None and plain and Replay.suits(model, fanout):
            self._replay = Replay(self._mean_loss, fanout)
            loader.convert = self._replay.fetch
        return loader

    def load(self, fanout: Hops) -> Loader:
        """Return the loader of the task's targets: pairs, or nodes."""
        sampler, nearby = self.neighbours.training_sampler(fanout), self.layout.nearby
        courier = None if nearby is None else nearby.courier
        loader = self.shared.task.make_loader(sampler, courier=courier, **self.drawing.loading)
        return self.neighbours.loader(sampler, fanout) if loader is None else loader

    def replayed(self, model: nn.Module, batch: Batch) -> tuple[Tensor, int] | None:
        """Fill the gradients on a GPU by what was captured of a step of this size."""
        if self._replay is None or not self._replay.able or not batch.seeds.numel():
            return None
        with self.shared.events.phase("forward"):
            loss = self._replay(model, batch, self.shared.clock)
        if loss is None:
            self.shared.events.write("uncaptured", reason=self._replay.reason)
            return None
        return loss, batch.seeds.numel()

    def stepping(self) -> AbstractContextManager[Any]:
        """Keep threads that draw on a GPU from capturing meanwhile."""
        return nullcontext() if self.layout.nearby is None else gpu.uncaptured()

    def counters(self) -> Counters | None:
        opened = self.neighbours.source.opened
        return super().counters() if opened is None else opened.counters

    def close(self) -> None:
        """Let the samplers go, the store, and the memory of what was captured."""
        self._replay = None
        if self._loader is not None:
            self._loader.convert = None
        self.neighbours.close()

    # Outputs

    def outputs(self, model: nn.Module) -> tuple[dict[str, Pieces], Beside]:
        """Return the outputs of the own targets of each split: exact, or from samples."""
        if self.evaluation == "exact" and not self.temporal:
            return super().outputs(model)
        scored = self.shared.scored
        return {split: self._evaluated(model, split, targets) for split, targets in scored.items()}, {}

    def node_outputs(self, model: nn.Module) -> Tensor:
        """Return the outputs of all own nodes, where edges have times from those that each may see."""
        if not self.temporal or self.shared.task.over == "pairs":
            return super().node_outputs(model)
        rows = self.layout.graph.target_rows
        return self._sampled_outputs(model, torch.arange(rows.stop - rows.start))

    def _evaluated(self, model: nn.Module, split: str, targets: Targets) -> Pieces:
        """Return what is evaluated of the own targets of a split, from the batches of its task."""
        task = self.shared.task
        if split not in self._split_loaders:
            loading: dict[str, Any] = {"batch_size": self.drawing.batch_size, "threads": 0}
            sampler = self._evaluation_sampler(model)
            self._split_loaders[split] = task.evaluation_loader(sampler, split, **loading)
        loader = self._split_loaders[split]
        if loader is None:
            return [(self._sampled_outputs(model, targets.rows), targets.y)]
        return self._loaded_pieces(model, split, loader)

    def _loaded_pieces(self, model: nn.Module, split: str, loader: Loader) -> Pieces:
        """Give what is evaluated of one batch after the other."""
        task = self.shared.task
        loader.seek(0)
        yield task.evaluated_nothing(split)  # of a worker that has no target there must be sums, too
        for batch in loader:
            if batch.num_targets or self.shared.pulls_rows:
                yield task.evaluated_batch(model, self.batch_rows(model, batch), batch)

    def _mean_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        task, outputs = self.shared.task, self.batch_outputs(model, batch)
        return task.loss.summed(outputs, task.values_of_batch(batch)) / batch.seeds.numel()

    def _sampled_outputs(self, model: nn.Module, rows: Tensor) -> Tensor:
        """Return the outputs of own rows of the target type, from samples of their own fanouts."""
        graph, nearby = self.layout.graph, self.layout.nearby
        sampler = self._evaluation_sampler(model)
        ids = self.layout.global_ids(rows + int(graph.target_rows.start))
        chunks = list(torch.split(ids, self.drawing.batch_size))
        chunks += [ids[:0]] * (self._most(len(chunks)) - len(chunks))
        batches = (
            sampler.sample(chunk, int(self.shared.clock[1]), step) for step, chunk in enumerate(chunks)
        )
        if nearby is not None:
            batches = (nearby.brought(batch) for batch in batches)
        outputs = [
            self.batch_outputs(model, batch).cpu()
            for batch in batches
            if batch.seeds.numel() or self.shared.pulls_rows
        ]
        double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
        wide = torch.float64 if double else torch.float32
        return torch.cat(outputs) if outputs else torch.zeros(0, self.shared.task.width, dtype=wide)

    def _evaluation_sampler(self, model: nn.Module) -> Sampler:
        """Return what draws for evaluations: all edges, or as many as `evaluate` says."""
        fanout = -1 if self.evaluation == "exact" else self.evaluation
        hops = checked_hops(model, fanout, "strategy.evaluate", self.layout.graph.x)
        if self._evaluator is None:
            # Nothing is drawn by a seed where all edges are taken: seeds of one time then see the same rows.
            more = {"shared": True} if self.temporal else {}
            self._evaluator = self.neighbours.sampler(fanouts_of(fanout, hops), **more)
        return self._evaluator

    def _most(self, count: int) -> int:
        """Return the largest of a number over workers, who draw together."""
        return int(self.shared.group.all_reduce(torch.tensor(count), "max", label=CONTROL).wait())


def fanouts_of(fanout: Any, hops: int) -> Hops:
    """Return the edges drawn a row in each of so many hops: as given, alike in all, or the usual."""
    if fanout is None:
        return usual_fanouts(hops)
    return [fanout] * hops if isinstance(fanout, int) else list(fanout)
