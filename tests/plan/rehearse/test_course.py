"""What a rank does one after the other: work cut at calls and at the ends of phases."""

from dataclasses import replace

from weft.comm.ledger import Label
from weft.plan.rehearse.course import BegunCall, Course, CourseLedger, work_by_phase
from weft.plan.rehearse.work import CountedWork


class Clocked(Course):
    """A course whose clock and whose work go on by one with everything that is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0.0
        self.now = lambda: self.turn
        self.take = self.worked

    def worked(self) -> CountedWork:
        self.turn += 1.0
        return CountedWork(calls=1)


def test_work_is_cut_where_calls_are_begun_and_waited_for() -> None:
    course, call = Clocked(), BegunCall(("rows", 0), (0, 1), {1: (8.0, 1.0)})
    course.begin(call)
    course.wait(call.name)
    CourseLedger(course).waited(0.5, 0.0, Label("halo"))
    course.end_phase("forward", 0.5)
    begun, waited, last, rest = course.take_epoch()
    assert (begun.begins, begun.awaits, begun.phase) == (call, None, "forward")
    assert (waited.begins, waited.awaits, waited.kind) == (None, call.name, "halo")
    assert (last.work.steps, last.phase) == (1, "forward")
    assert rest.phase == "other"
    assert [len(each) for each in (course.take_epoch(), course.take_epoch())] == [1, 1]


def test_what_is_done_before_a_phase_begins_is_not_of_it() -> None:
    course, agreed, rows = Clocked(), BegunCall(("sum", 0), (0, 1)), BegunCall(("rows", 1), (0, 1))
    course.begin(agreed)
    course.wait(agreed.name)
    course.begin(replace(rows, sent={1: (4.0, 1.0)}))
    course.end_phase("forward", 2.5)  # between the second and the third
    assert [each.phase for each in course.take_epoch()] == ["other", "other", "forward", "forward", "other"]


def test_every_phase_that_is_entered_is_a_step_of_it() -> None:
    course = Clocked()
    for _ in range(3):
        course.end_phase("forward", course.turn)
    found = work_by_phase(course.take_epoch())
    assert {name: (work.steps, work.calls) for name, work in found.items()} == {
        "forward": (3, 3),
        "other": (0, 1),
    }
