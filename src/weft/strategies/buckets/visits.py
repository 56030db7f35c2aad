"""How an epoch of buckets goes: a step is a round of visits, each trained batch by batch."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.errors import RecipeError
from weft.layers.no_layers import NoLayers
from weft.strategies.batching import Batching, Beside
from weft.strategies.buckets.captured import CapturedSteps
from weft.strategies.buckets.chunks import BucketBatches, Candidates, End
from weft.strategies.buckets.node_tables import NodeTables
from weft.strategies.buckets.orders import OrderName, Visit, epoch_rounds
from weft.strategies.buckets.round_merge import RoundMerge, in_order
from weft.strategies.buckets.training import BucketSteps, Objective, PartitionRows
from weft.strategies.reducer import PlainReducer
from weft.strategies.shared import Shared
from weft.tasks.base import Pieces, head_of
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.scores.base import Scorer


class Visits(Batching):
    """The rounds of an epoch. Worker r of n takes visits r, r + n, … of each."""

    layout: NodeTables

    def __init__(
        self,
        shared: Shared,
        layout: NodeTables,
        task: LinkPrediction,
        *,
        order: OrderName,
        candidates: Candidates,
        batch: int,
        chunk: int,
    ) -> None:
        super().__init__(shared, layout)
        self.task, self.order, self.candidates = task, order, candidates
        self._sizes = {"batch": batch, "chunk": chunk}
        self._steps: CapturedSteps | None = None
        self._rounds: list[list[Visit]] = []
        self._own: list[tuple[int, Visit]] = []
        self._done = 0

    # What is trained

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of layers, and scores that are no comparison of queries with keys."""
        scorer = head_of(model)
        if not isinstance(model, NoLayers):
            raise RecipeError(
                "model: 'buckets' learns a row for each node and has no layers; leave [model] out, or give "
                "weft.nn.NoLayers()"
            )
        if not isinstance(scorer, Scorer) or type(scorer).against is not Scorer.against:
            raise RecipeError(
                f"task.score: {self.task.score!r} has no product with many candidates at once; use dot, "
                "cosine, distmult, complex, rotate, transe, bilinear or affine"
            )
        self.layout.dtype = model.kind.dtype

    def rounds(self, epoch: int) -> list[list[Visit]]:
        """Return the visits of an epoch, those of a round at the same time."""
        division, buffer = self.layout.division, self.layout.capacity
        clock = {"seed": int(self.shared.clock[0]), "epoch": epoch}
        return epoch_rounds(self.order, division.divided, buffer, common=division.common, **clock)

    # The steps of an epoch

    def __len__(self) -> int:
        return len(self._rounds)

    def begin_epoch(self, model: nn.Module) -> None:
        """Make the plan of what is left of an epoch."""
        epoch, first = self.shared.clock[1:].tolist()
        self._rounds = self.rounds(epoch)
        numbered = ((number, visit) for number, each in enumerate(self._rounds) for visit in self._of(each))
        self._own, self._done = [each for each in numbered if each[0] >= first], 0
        self.layout.begin_epoch([visit.partitions for _, visit in self._own])

    def batches(self, epoch: int, first: int) -> Generator[list[Visit], None, None]:
        """Give the rounds that are left."""
        yield from self._rounds[first:]

    def taken(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int]:
        """Train the own visits of a round, and add up what all of them changed."""
        merge = None
        if self.order == "rounds":
            merge = RoundMerge([*model.parameters()], optimizer, self.shared.group)
        losses = [*self._trained(model, optimizer, batch, step, merge)]
        self._hand_over(batch, self._rounds[step + 1 :])
        if merge is not None:
            merge.finish(len(batch))
        every = in_order(torch.tensor(losses, dtype=torch.float64), len(batch), self.shared.group)
        if step + 1 == len(self._rounds):
            self.layout.end_epoch(self._rounds)
        buckets = [bucket for visit in batch for bucket in visit.buckets]
        count = len(self.candidates.sides) * sum(map(self.layout.edges.count, buckets))
        own = sum(every.tolist()) if self.shared.group.rank == 0 else 0.0  # all know all, and one tells
        return torch.tensor(own / max(count, 1), dtype=torch.float64), count

    def _of(self, visits: Sequence[Visit]) -> list[Visit]:
        group = self.shared.group
        return [*visits[group.rank :: group.size]]

    def _trained(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        visits: Sequence[Visit],
        step: int,
        merge: RoundMerge | None,
    ) -> Iterator[float]:
        """Train the own visits of a round, and give the sum of losses of each."""
        buffer, phase, version = (
            self.layout.tables.buffer,
            self.shared.events.phase,
            self.layout.next_version(),
        )
        for visit in self._of(visits):
            if merge is not None:
                merge.begin()
            with phase("wait"):
                rows = buffer.visit(self._done, visit.partitions)
            self._done += 1
            if self._done < len(self._own):
                until = self._rounds[step : self._own[self._done][0]]
                busy = {one for some in until for each in some for one in each.partitions}
                buffer.prefetch(self._done, unless=busy)
            with phase("train"):
                yield self._visit(model, optimizer, visit, rows)
            buffer.trained(visit.partitions, version)
            if merge is not None:
                merge.end()
        self.layout.note(visits, version)

    def _visit(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        visit: Visit,
        rows: Mapping[int, PartitionRows],
    ) -> float:
        """Train the buckets of a visit; return the sum of losses."""
        steps, files, clock = self._steps_of(model), self.layout.edges, self.shared.clock.tolist()
        total = 0.0
        for bucket in visit.buckets:
            edges, ends = files.read(bucket), files.ends(bucket, self.candidates)
            number = bucket[0] * self.layout.division.partitions + bucket[1]
            when = {"seed": clock[0], "epoch": clock[1], "bucket": number}
            batches = BucketBatches(edges, ends, self.candidates, **self._sizes, **when)
            sides: dict[End, PartitionRows] = {"src": rows[bucket[0]], "dst": rows[bucket[1]]}
            if len(edges):
                total += float(steps.train(edges, batches, sides, optimizer=optimizer))
        return total

    def _hand_over(self, visits: Sequence[Visit], rounds: Sequence[Sequence[Visit]]) -> None:
        """Write what another worker trains next."""
        own = [one for visit in self._of(visits) for one in visit.partitions]
        with self.shared.events.phase("wait"):
            self.layout.tables.buffer.hand_over([one for one in own if self._goes(one, rounds)])

    def _goes(self, partition: int, rounds: Sequence[Sequence[Visit]]) -> bool:
        """Return whether another worker is the next to train a partition."""
        for visits in rounds:
            for place, visit in enumerate(visits):
                if partition in visit.partitions:
                    return place % self.shared.group.size != self.shared.group.rank
        return False

    def _steps_of(self, model: nn.Module) -> CapturedSteps:
        if self._steps is None:
            scorer, given = head_of(model), self.task.loss_choice
            assert isinstance(scorer, Scorer), "checked with the model"
            heat = float(given.get("temperature", 1.0)) if isinstance(given, Mapping) else 1.0
            goal = Objective(
                scorer, self.task.loss, self.candidates, temperature=heat, penalty=self.task.penalty
            )
            self._steps = CapturedSteps(BucketSteps(goal, device=self.shared.device))
        return self._steps

    # Outputs

    def outputs(self, model: nn.Module) -> tuple[dict[str, Pieces], Beside]:
        """Return the scores of the own pairs of each split, from the rows of their ends."""
        h, rows_of = torch.empty(0, device=self.shared.device), self.layout.rows_of
        scored = self.shared.scored.items()
        return {split: held.pieces(model, h, rows_of, self.layout.together()) for split, held in scored}, {}

    def node_outputs(self, model: nn.Module) -> Tensor:
        """Return the rows of all nodes of the target type."""
        return self.layout.target_rows()

    def epoch_fields(self) -> dict[str, Any]:
        """Return what the last epoch took of the disk, and how it went."""
        return self.layout.told()

    @property
    def wait_share(self) -> float | None:
        """The share of the last epoch's time in which training waited for partitions."""
        told = self.layout.told().get("buckets")
        return None if told is None else float(told["disk_wait_share"])

    def close(self) -> None:
        """End the thread, and remove tables that no run keeps."""
        self.layout.close()


class Relations(PlainReducer):
    """Trains the weights of relations; of a score that has none, a number that nothing changes."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._unused = nn.Parameter(torch.zeros(1, device=device))

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what is trained by the optimiser."""
        return [*model.parameters()] or [self._unused]
