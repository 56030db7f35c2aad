"""A worker of one stage: what it waits for, and what it does not."""

from typing import cast

from weft.samplers.base import Batch
from weft.strategies.pipeline.micro_batches import OwnBatches
from weft.strategies.pipeline.schedules import Job
from weft.strategies.pipeline.stage_run import StageRun


class Slow(OwnBatches):
    """Micro-batches of which the first alone is made."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def there(self, micro: int) -> bool:
        return micro == 0

    def look(self, micro: int) -> Batch:
        self.asked.append(micro)
        return cast(Batch, None)


class Listening(StageRun):
    """Begins to receive nothing, and asks for the micro-batch all the same."""

    def __init__(self) -> None:
        self._flights = {}

    def _expect(self, job: Job, batches: OwnBatches) -> None:
        batches.look(job.number)


def test_the_job_at_hand_does_not_wait_for_the_draws_of_the_next() -> None:
    run, batches = Listening(), Slow()
    for coming in (0, 1):
        run._expect_next([Job("update", 0), Job("forward", coming)], batches)
    assert batches.asked == [0]
