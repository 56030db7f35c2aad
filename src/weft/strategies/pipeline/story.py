"""How an epoch went through the stages: who was busy when, what was in flight, and how long stages stood.

A worker stands whenever it does no job between the first job of an epoch, anybody's, and the last one: while
it waits for rows, for the draws of a micro-batch, and for the next step to begin.
"""

from typing import Any

from weft.comm.group import Group
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.schedules import ScheduleName, bubble
from weft.strategies.pipeline.stage_run import RoundRecord

_SHOWN = 120
"""Jobs of a worker that a picture shows, those of the first rounds."""
_PICTURED = 3
"""Epochs whose jobs are told one by one."""


class Story:
    """What one worker did in an epoch; `told` joins those of all."""

    def __init__(self, division: StageDivision, group: Group, epoch: int) -> None:
        self.division, self.group = division, group
        self.shown = _SHOWN if epoch < _PICTURED else 0
        self.in_flight = self.versions = self.micro_batches = self.rounds = 0
        self.busy = 0.0
        self._span: tuple[float, float] | None = None
        """When the first job of the epoch began, and the last one ended."""
        self._jobs: list[tuple[str, int, float, float]] = []

    def add(self, record: RoundRecord, micro_batches: int, versions: int) -> None:
        """Add a round."""
        self.rounds += 1
        self.micro_batches += micro_batches
        self.in_flight, self.versions = max(self.in_flight, record.in_flight), max(self.versions, versions)
        self._jobs += record.done[: max(self.shown - len(self._jobs), 0)]
        if record.done:
            self.busy += sum(end - begin for _, _, begin, end in record.done)
            self._span = ((self._span or record.done[0][2:])[0], record.done[-1][3])

    def told(self, schedule: ScheduleName, versions: str, recompute: bool) -> dict[str, Any]:
        """Return what an epoch's event says of all workers; called by all."""
        stage, replica = self.division.place(self.group.rank)
        layers = self.division.layers_of(stage)
        own = {
            "stage": stage,
            "replica": replica,
            "layers": [layers.start, layers.stop],
            "in_flight": self.in_flight,
            "versions": self.versions,
            "busy": self.busy,
            "span": self._span,
            "jobs": self._jobs,
        }
        everyone = self.group.all_gather_json(own)
        spans = [span for each in everyone if (span := each.pop("span")) is not None]
        whole = max(end for _, end in spans) - min(begin for begin, _ in spans) if spans else 0.0
        busy, standing = sum(each["busy"] for each in everyone), whole * len(everyone)
        start = min((job[2] for each in everyone for job in each["jobs"]), default=0.0)
        for each in everyone:
            each["share"] = each.pop("busy") / max(whole, 1e-9)
            each["jobs"] = [
                [kind, number, round(begin - start, 6), round(end - start, 6)]
                for kind, number, begin, end in each["jobs"]
            ]
        a_round = max(1, round(self.micro_batches / max(self.rounds, 1) / min(self.division.replicas)))
        return {
            "schedule": schedule,
            "versions_kept": versions if schedule == "1f1b" else "one",
            "recompute": recompute,
            "micro_batches": self.micro_batches,
            "rounds": self.rounds,
            "bubble": max(0.0, 1.0 - busy / max(standing, 1e-9)),
            "bubble_expected": bubble(self.division.num_stages, a_round),
            "workers": everyone,
        }
