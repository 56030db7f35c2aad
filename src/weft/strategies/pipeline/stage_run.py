"""A worker of one stage at work: it runs its jobs in their order, and knows how long each took."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from weft.samplers.base import Batch
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.mail import GRADIENTS, ROWS, Mail
from weft.strategies.pipeline.micro_batches import OwnBatches
from weft.strategies.pipeline.replicas import summed
from weft.strategies.pipeline.schedules import Job
from weft.strategies.pipeline.stage_model import StageModel, Weights
from weft.strategies.pipeline.versions import Versions
from weft.strategies.shared import Shared

Optimizer = torch.optim.Optimizer


@dataclass
class Flight:
    """A micro-batch between its forward and its backward."""

    batch: Batch
    h: Any
    weights: Weights
    out: Tensor | None
    """None where forward is run again."""


@dataclass
class StageRound:
    """Micro-batches that go through the pipeline before it is empty again."""

    jobs: list[Job]
    batches: OwnBatches
    counts: Sequence[int]
    """What the loss of each micro-batch is divided by."""
    means: Sequence[int]
    """How many micro-batches each update is the mean of; of a sum over shares of one batch, 1."""
    total: int
    """The targets of all micro-batches."""
    version: Callable[[int], int] | None = None
    """Which version a micro-batch is run with; None: the newest of its stage."""


@dataclass
class RoundRecord:
    """What a worker did in a round."""

    done: list[tuple[str, int, float, float]] = field(default_factory=list)
    """(kind, number, begin, end) of each job, in seconds of the machine's clock."""
    in_flight: int = 0
    loss: float = 0.0
    """The sum of the losses of all targets, on the last stage."""


class StageRun:
    """Runs rounds on one worker: `stage` with the weights of `versions`."""

    def __init__(
        self,
        shared: Shared,
        division: StageDivision,
        stage: StageModel,
        versions: Versions,
        *,
        recompute: bool,
    ) -> None:
        self.shared, self.division, self.stage, self.versions = shared, division, stage, versions
        self.recompute = recompute
        group = shared.group
        self.index, _ = division.place(group.rank)
        self.mail = Mail(group.subgroup(group.ranks, purpose="stages"))
        self.replicas = division.ranks(self.index)
        self.dtype = next((each.dtype for each in stage.model.parameters()), torch.float32)
        self._flights: dict[int, Flight] = {}
        self._gradients: dict[str, Tensor] = {}

    def run(self, round_: StageRound, optimizer: Optimizer) -> RoundRecord:
        """Do the jobs of a round, and return what was done."""
        record, batches = RoundRecord(), round_.batches
        for place, job in enumerate(round_.jobs):
            with self.shared.events.phase("wait"):
                given = self._given(job, batches)
                self._expect_next(round_.jobs[place + 1 :], batches)
            begin = time.time()
            if job.kind == "forward":
                self._forward(job.number, batches.take(job.number), given, round_, record)
            elif job.kind == "backward":
                self._backward(job.number, given, round_.counts[job.number])
            else:
                self._update(round_.means[job.number], optimizer)
            record.done.append((job.kind, job.number, begin, time.time()))
        with self.shared.events.phase("wait"):
            self.mail.settle()
        return record

    # What comes from others

    def _given(self, job: Job, batches: OwnBatches) -> Tensor | None:
        """Wait for what a job needs from another stage."""
        key = self._expect(job, batches)
        return None if key is None else self.mail.take(key)

    def _expect(self, job: Job, batches: OwnBatches) -> tuple[str, int] | None:
        """Begin to receive what a job needs from another stage; return its key, None where it is nothing."""
        kind, micro = job
        if kind == "forward" and not self.stage.first:
            rows = batches.look(micro).blocks[0].num_src
            before = self.division.holder(self.index - 1, micro)
            self.mail.expect(job, (rows, self.stage.width), self.dtype, before, ROWS)
            return job
        if kind == "backward" and not self.stage.last:
            behind = self.division.holder(self.index + 1, micro)
            shape = self._shape(self._flights[micro])
            self.mail.expect(job, shape, self.dtype, behind, GRADIENTS)
            return job
        return None

    def _expect_next(self, coming: Sequence[Job], batches: OwnBatches) -> None:
        """Begin to receive for the next job that needs something, as far as its size is known by now.

        A micro-batch that is not made yet is not waited for: the job at hand may be what others wait for.
        """
        job = next((each for each in coming if each.kind != "update"), None)
        if job is None:
            return
        known = batches.there(job.number) if job.kind == "forward" else job.number in self._flights
        if known:
            self._expect(job, batches)

    def _shape(self, flight: Flight) -> tuple[int, int]:
        model, last = self.stage.model, self.stage.layers.stop - 1
        return flight.batch.blocks[sum(self.stage.hops) - 1].num_dst, int(model.layers[last].out_width)  # type: ignore[arg-type]

    # What is done

    def _forward(
        self, micro: int, batch: Batch, given: Tensor | None, round_: StageRound, record: RoundRecord
    ) -> None:
        weights = self.versions.pin(micro, None if round_.version is None else round_.version(micro))
        h = batch.x if given is None else given.requires_grad_()
        with self.shared.events.phase("forward"), torch.set_grad_enabled(not self.recompute):
            out = self.stage.run(weights, batch, h, round_.counts[micro], again=False)
        self._flights[micro] = Flight(batch, h, weights, None if self.recompute else out)
        record.in_flight = max(record.in_flight, len(self._flights))
        if self.stage.last:
            record.loss += float(out.detach()) * round_.counts[micro]
        else:
            self.mail.send(out, self.division.holder(self.index + 1, micro), ROWS)

    def _backward(self, micro: int, given: Tensor | None, count: int) -> None:
        flight = self._flights.pop(micro)
        with self.shared.events.phase("backward"):
            out = flight.out
            if out is None:
                out = self.stage.run(flight.weights, flight.batch, flight.h, count, again=True)
            names, inputs = list(flight.weights), [*flight.weights.values()]
            if not self.stage.first:
                inputs.append(flight.h)
            if out.requires_grad and inputs:
                found = torch.autograd.grad(out, inputs, given, allow_unused=True, materialize_grads=True)
                self._add(dict(zip(names, found)))
                if not self.stage.first:
                    self.mail.send(found[-1], self.division.holder(self.index - 1, micro), GRADIENTS)
        self.versions.release(micro)

    def _add(self, gradients: dict[str, Tensor]) -> None:
        """Add those of a micro-batch, in the order of micro-batches."""
        for name, value in gradients.items():
            held = self._gradients.get(name)
            self._gradients[name] = value if held is None else held + value

    def _update(self, size: int, optimizer: Optimizer) -> None:
        """Go downhill by the gradients of all replicas, `size` micro-batches to a mean."""
        parameters = self.versions.parameters
        gradients = [self._gradients.pop(name, None) for name in parameters]
        whole = [
            torch.zeros_like(each) if held is None else held
            for each, held in zip(parameters.values(), gradients)
        ]
        if len(self.replicas) > 1 and whole:
            whole = self._summed(whole)
        with self.shared.events.phase("optimizer"):
            for parameter, gradient in zip(parameters.values(), whole):
                parameter.grad = gradient if size == 1 else gradient / size
            optimizer.step()
            optimizer.zero_grad()
            self.versions.advance()

    def _summed(self, gradients: list[Tensor]) -> list[Tensor]:
        flat = torch.cat([each.reshape(-1) for each in gradients])
        with self.shared.events.phase("wait"):
            flat = summed(flat, self.mail.group, self.replicas)
        parts = torch.split(flat, [each.numel() for each in gradients])
        return [part.view_as(each) for part, each in zip(parts, gradients)]
