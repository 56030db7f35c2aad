"""The points that are asked for: each configuration on each number of workers, and the lives of its runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.plan.machine import Machine
from weft.simulate.answers import ElasticCost, FailureCost, ScalePoint
from weft.simulate.conditions import Conditions
from weft.simulate.epochs import epoch
from weft.simulate.failures import RunPlan, coming_and_going, failure_times, played_run
from weft.simulate.loads import CountedLoad

_LIVES = 20  # of a run, whose mean is told


@dataclass(frozen=True)
class PointsAsked:
    """The numbers of workers that are simulated, and under which conditions."""

    workers: list[int]
    here: Machine
    told: Conditions
    grown: float
    seed: int
    tell: Callable[[str], None]

    def points(
        self, loads: Sequence[CountedLoad], bandwidth: float | None = None, *, weak: bool = False
    ) -> list[ScalePoint]:
        """Return each configuration on each number of workers that it can be told of."""
        found = []
        for load in loads:
            for count in self.workers:
                scale = self.grown * (count / self.workers[0] if weak else 1.0)
                if not load.known_on(count, scale):
                    continue
                self.tell(f"simulating {load.candidate.strategy} on {count:,}")
                found.append(self._point(load, count, scale, bandwidth))
        return found

    def _point(self, load: CountedLoad, count: int, scale: float, bandwidth: float | None) -> ScalePoint:
        machine = self.told.machine(self.here, count)
        wires = self.told.wires(self.here, count, bandwidth)
        local = 1 - load.work.law.cut_share(count) if load.work.law is not None and count > 1 else 1.0

        def play(side: str) -> Any:
            run = load.work.at(count, scale=scale, side=side, seed=self.seed)
            return epoch(run, machine, wires, local=local, uneven=self.told.uneven)

        middle = play("value")
        counted_here = count in load.work.runs and scale == 1.0
        by_law = not counted_here and count > 1 and load.work.follows_halo
        ends = [play(side).seconds for side in ("low", "high")] if by_law else [middle.seconds] * 2
        return ScalePoint(
            load.candidate.strategy,
            load.candidate.exchange,
            load.exact,
            count,
            middle.seconds,
            min(*ends, middle.seconds),
            max(*ends, middle.seconds),
            middle.computing,
            dict(middle.waiting),
            middle.bytes,
            middle.busiest,
            counted_here,
            machine.dollars(middle.seconds, count),
        )

    def lives(
        self, loads: Sequence[CountedLoad], strong: Sequence[ScalePoint]
    ) -> list[FailureCost | ElasticCost]:
        """Return what failures, and workers that come and go, do to each configuration on most workers."""
        found: list[FailureCost | ElasticCost] = []
        for load in loads:
            mine = [each for each in strong if each.name == load.name]
            if mine:
                found += self._lives_of(load, max(mine, key=lambda each: each.workers))
        return found

    def _lives_of(self, load: CountedLoad, point: ScalePoint) -> list[FailureCost | ElasticCost]:
        plan = RunPlan(
            self.told.epochs,
            point.epoch_seconds,
            self.told.checkpoint_every,
            restart_seconds=self.here.start_seconds,
            workers=point.workers,
            handing_seconds=self.here.start_seconds,
        )
        found: list[FailureCost | ElasticCost] = []
        if self.told.failures_an_hour:
            found.append(self._failing(point, plan))
        if self.told.leave_an_hour and point.workers > 1:
            found.append(self._elastic(point, plan))
        return found

    def _failing(self, point: ScalePoint, plan: RunPlan) -> FailureCost:
        often, calm = self.told.failures_an_hour, played_run(plan).seconds
        lives = [
            played_run(plan, failure_times(often, 100 * calm + 3600, self.seed + life))
            for life in range(_LIVES)
        ]
        return FailureCost(
            point.name,
            point.workers,
            often,
            self.told.checkpoint_every,
            _mean([each.seconds for each in lives]) / 3600,
            calm / 3600,
            _mean([each.lost for each in lives]) / 3600,
            _mean([each.failures for each in lives]),
        )

    def _elastic(self, point: ScalePoint, plan: RunPlan) -> ElasticCost:
        often, calm = self.told.leave_an_hour, played_run(plan).seconds
        least, bound = max(1, point.workers // 2), 20 * calm + 3600
        lives = [
            played_run(
                plan,
                changes=coming_and_going(
                    point.workers, least, often, self.told.away, bound, self.seed + 2 * life
                ),
            )
            for life in range(_LIVES)
        ]
        mean = _mean([each.seconds for each in lives])
        machine = self.told.machine(self.here, point.workers)
        dollars = [machine.dollars(seconds, point.workers) for seconds in (mean, calm)]
        changes = _mean([each.changes for each in lives])
        hours = mean / 3600, calm / 3600
        return ElasticCost(point.name, point.workers, often, *hours, changes, *dollars)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
