"""What is told of an epoch: who was busy when, and how long stages stood."""

import pytest

from weft.comm.group import Group
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.stage_run import RoundRecord
from weft.strategies.pipeline.story import Story


def test_idle_time_is_what_no_job_filled_also_between_two_rounds() -> None:
    story = Story(StageDivision((2,), (1,)), Group.alone(), 0)
    for begin in (100.0, 106.0):
        done = [("forward", 0, begin, begin + 1.0), ("backward", 0, begin + 3.0, begin + 4.0)]
        story.add(RoundRecord(done, in_flight=2), micro_batches=1, versions=1)
    told = story.told("gpipe", "stash", False)
    assert told["bubble"] == pytest.approx(0.6)
    assert told["bubble_expected"] == 0.0
    assert (told["rounds"], told["micro_batches"], told["versions_kept"]) == (2, 2, "one")
    (worker,) = told["workers"]
    assert worker["share"] == pytest.approx(0.4)
    assert worker["jobs"][1] == ["backward", 0, 3.0, 4.0]
    assert (worker["in_flight"], worker["versions"], worker["layers"]) == (2, 1, [0, 2])


def test_jobs_are_told_of_the_first_epochs_alone() -> None:
    for epoch, jobs in ((0, 1), (50, 0)):
        story = Story(StageDivision((1,), (1,)), Group.alone(), epoch)
        story.add(RoundRecord([("forward", 0, 1.0, 2.0)], in_flight=1), micro_batches=1, versions=1)
        assert len(story.told("gpipe", "stash", False)["workers"][0]["jobs"]) == jobs
