"""Answers in words: where scaling stops, what is bought."""

from dataclasses import replace

from weft.simulate.answers import FailureCost, ScalePoint, SimulatedAnswers, lines, said, stops, table
from weft.simulate.lines import draw

POINT = ScalePoint("halo", "exact", True, 1, 8.0, 8.0, 8.0, 8.0, {}, 0.0, 0.0, True)


def line(exchange: str, seconds: list[float]) -> list[ScalePoint]:
    whole = replace(POINT, exchange=exchange, exact=exchange == "exact")
    return [
        replace(whole, workers=2**place, epoch_seconds=each, low=each, high=each)
        for place, each in enumerate(seconds)
    ]


EXACT, STALE = line("exact", [8.0, 4.4, 4.2, 6.0]), line("stale", [8.0, 4.0, 2.1, 1.2])


def test_scaling_stops_where_twice_the_workers_gain_less_than_a_tenth() -> None:
    assert stops(EXACT) == 2
    assert stops(STALE) is None
    assert stops([replace(EXACT[0], workers=4), replace(EXACT[0], workers=5, epoch_seconds=7.8)]) is None


def test_answers_are_told_in_words() -> None:
    cost = FailureCost("halo, exact", 8, 2.0, 10, 3.0, 2.0, 0.5, 6.0)
    fast = [replace(each, epoch_seconds=each.epoch_seconds / 2) for each in EXACT]
    answers = SimulatedAnswers(
        {}, {}, [*EXACT, *STALE], links={"1Gbit": EXACT, "10Gbit": fast}, failures=[cost]
    )
    told = " · ".join(said(answers))
    assert "halo, exact stops scaling at 2 workers: 8.00 s an epoch on 1, at best 4.20 s on 4" in told
    assert "halo, stale scales as far as was asked" in told
    assert "halo, stale on 2 workers: an epoch 1.10 times as fast as halo, exact" in told
    assert "10Gbit against 1Gbit: halo, exact gains up to 2.00 times" in told
    assert "2 failures an hour: halo, exact on 8 takes 50.0% more (3.00 h, 0.50 h of work lost)" in told
    assert answers.to_dict()["stops"] == {"halo, exact": 2, "halo, stale": None}


def test_every_point_is_in_the_table_and_in_the_picture() -> None:
    points = [*EXACT, *STALE]
    assert len(list(table(points))) == 1 + len(points)
    assert [each.workers for each in lines(points)["halo, stale"]] == [1, 2, 4, 8]
    assert draw(SimulatedAnswers({}, {}, points)).count("<circle") == len(points)
