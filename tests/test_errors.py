"""Errors: the user's mistake ends with 2, a lost worker with 3, and messages read as they were written."""

import pytest

from weft import errors
from weft.errors import InputError, UnknownName, WeftError, WorkerLost


@pytest.mark.parametrize(
    "kind", [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, WeftError)]
)
def test_exit_codes_tell_whose_mistake_it_was(kind: type[WeftError]) -> None:
    expected = 3 if kind is WorkerLost else 1 if kind is WeftError else 2
    assert kind.exit_code == expected
    assert issubclass(kind, ValueError) == (expected == 2)


def test_an_unknown_name_is_a_missing_key_and_reads_as_a_sentence() -> None:
    with pytest.raises(KeyError) as caught:
        raise UnknownName("no layer 'gnc'; did you mean 'gcn'?")
    assert str(caught.value) == "no layer 'gnc'; did you mean 'gcn'?"
    assert isinstance(caught.value, InputError)


def test_a_lost_worker_knows_its_rank() -> None:
    assert (WorkerLost("gone", rank=2).rank, WorkerLost("gone").rank, str(WorkerLost("gone"))) == (
        2,
        -1,
        "gone",
    )
