"""An epoch of buckets on workers that take visits as they come: none waits for one that is slower."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from weft.strategies.buckets.lock_table import Handed, LockTable
from weft.strategies.buckets.orders import Visit
from weft.strategies.buckets.relation_changes import RelationChanges
from weft.strategies.buckets.visits import Visits


class FreeVisits(Visits):
    """A step is an epoch: workers take its visits from a table of locks until none is left.

    Rows go from worker to worker through files, weights of relations as changes that are added as visits end.
    So who is faster trains more, and no two runs are alike.
    """

    def rounds(self, epoch: int) -> list[list[Visit]]:
        """Return the visits of an epoch in the order in which they are offered, as one step."""
        return [[visit for visits in super().rounds(epoch) for visit in visits]]

    def begin_epoch(self, model: nn.Module) -> None:
        """Find out what there is to train; who trains what is known when it is taken."""
        self._rounds = self.rounds(int(self.shared.clock[1]))
        self.layout.begin_epoch([])

    def taken(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, batch: Any, step: int
    ) -> tuple[Tensor, int]:
        """Train visits until none is left, and bring together what all workers changed."""
        begun, layout, group = time.perf_counter(), self.layout, self.shared.group
        seen = [one for one, version in enumerate(layout.tables.buffer.versions) if version]
        table = LockTable(group.shared_value("buckets"), batch, seen, rank=group.rank)
        folder, epoch = layout.tables.files.folder, int(self.shared.clock[1])
        changes = RelationChanges([*model.parameters()], optimizer, folder, epoch)
        loss = self._until_none_is_left(model, optimizer, table, changes)
        with self.shared.events.phase("wait"):
            handed = table.all_done()
        self._note(handed, batch)
        changes.pull([each.visit for each in handed.done])
        layout.end_epoch([[batch[visit]] for visit, _ in handed.taken])
        layout.tell(_told(handed, workers=group.size, seconds=time.perf_counter() - begun))
        if group.rank == 0:  # all have added them up before they met
            changes.remove()
        layout.passed(len(batch))
        buckets = [bucket for visit in batch for bucket in visit.buckets]
        count = len(self.candidates.sides) * sum(map(layout.edges.count, buckets))
        return torch.tensor(loss / max(count, 1), dtype=torch.float64), count

    def _until_none_is_left(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        table: LockTable,
        changes: RelationChanges,
    ) -> float:
        """Return the sum of losses of the own visits."""
        buffer, phase, loss = self.layout.tables.buffer, self.shared.events.phase, 0.0
        number, waited = self._waited_for(table)
        while number is not None:
            visit, handed = table.visits[number], table.handed()
            self._note(handed, table.visits)
            known = changes.pull([each.visit for each in handed.done])
            with phase("wait"):
                buffer.begin([visit.partitions])
                rows = buffer.visit(0, visit.partitions)
            with phase("train"):
                loss += self._visit(model, optimizer, visit, rows)
            buffer.trained(visit.partitions, self._version(handed, number))
            changes.push(number)
            following = table.take(visit.partitions)
            kept = () if following is None else table.visits[following].partitions
            with phase("wait"):
                buffer.save([one for one in visit.partitions if one not in kept])
            table.finish(number, known=known, waited=waited)
            number, waited = self._waited_for(table) if following is None else (following, 0.0)
        return loss

    def _waited_for(self, table: LockTable) -> tuple[int | None, float]:
        """Return the next visit, None where all are taken, and how long others had its partitions."""
        begun = time.perf_counter()
        with self.shared.events.phase("wait"):
            found = table.next(self.layout.tables.buffer.current())
        return found, time.perf_counter() - begun

    def _version(self, handed: Handed, number: int) -> int:
        """Return the version that a visit makes: later visits of a partition are taken later."""
        order = [visit for visit, _ in handed.taken]
        return self.layout.trained_visits + 1 + order.index(number)

    def _note(self, handed: Handed, visits: Sequence[Visit]) -> None:
        """Note the versions that visits which are done have left, whoever trained them."""
        done = {each.visit for each in handed.done}
        for number, _ in handed.taken:
            if number in done:
                self.layout.note([visits[number]], self._version(handed, number))


def _told(handed: Handed, *, workers: int, seconds: float) -> dict[str, Any]:
    """Return how an epoch went on all workers."""
    ages, waited = handed.ages(), sum(each.waited for each in handed.done)
    visits = [0] * workers
    for _, rank in handed.taken:
        visits[rank] += 1
    return {
        "relation_age_mean": sum(ages) / max(len(ages), 1),
        "relation_age_max": max(ages, default=0),
        "lock_wait_share": waited / max(workers * seconds, 1e-9),
        "worker_visits": visits,
    }
