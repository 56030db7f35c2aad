"""The number of workers is settled by seconds, and may be none."""

import pytest

from weft.strategies.tensor_workers import tuning
from weft.strategies.tensor_workers.tuning import TRIED, Tuning


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({0: 1.0, 1: 2.0, 2: 1.5, 4: 1.2}, 0),
        ({0: 1.0, 1: 0.9, 2: 0.5, 4: 0.49}, 2),
        ({0: 1.0, 1: 0.99, 2: 0.98, 4: 0.5}, 4),
    ],
)
def test_the_number_that_pays_stays(
    seconds: dict[int, float], best: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(tuning.time, "monotonic", lambda: clock[0])
    tuned = Tuning(4)
    number, tried = tuned.epoch_ended(), []
    while not tuned.settled:
        tried.append(number)
        # the first epoch of each number has workers that start
        clock[0] += seconds[number] + (10.0 if tried.count(number) == 1 else 0.0)
        number = tuned.epoch_ended()
    assert tried == [each for each in seconds for _ in range(TRIED)]
    assert number == tuned.number == best
    assert tuned.told().endswith(f"{best or 'none'} stays.")
    assert tuned.epoch_ended() == best
