"""Which relations have all their edges both ways is known to workers as to one process."""

import pair_jobs

from weft.comm.group import Group


def test_one_worker_sees_the_relations_of_one_process() -> None:
    assert pair_jobs.relations_agree(Group.alone()) == []
