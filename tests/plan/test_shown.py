"""A plan in words: names of configurations, one line for the choice, and reasons for the others."""

from dataclasses import replace

from plan_machine import machine

from weft.plan.candidates import RuledOut
from weft.plan.forecast import Forecast
from weft.plan.planning import Plan
from weft.plan.shown import chosen, lost, name_of, sources, table

_HELD = dict.fromkeys(Forecast.__dataclass_fields__, 0)
ONE = Forecast(  # type: ignore[arg-type]
    **{**_HELD, "strategy": "grid", "exchange": "exact", "options": {"rows": 2, "columns": 1}, "exact": True}
)


def test_names_say_the_arrangement_and_the_exchange() -> None:
    assert name_of(ONE) == "grid 2×1, exact"
    assert name_of(replace(ONE, strategy="staged", exchange=None, options={"form": "2d"})) == "staged 2d"


def test_each_loser_has_its_reason() -> None:
    best = replace(ONE, strategy="single", exchange=None, options={}, workers=1, epoch_seconds=1.0)
    best = replace(best, memory_limit_bytes=1 << 30)
    slow = replace(ONE, workers=2, epoch_seconds=3.0)
    large = replace(ONE, strategy="halo", options={}, workers=2, peak_memory_bytes=1 << 31)
    large = replace(large, memory_limit_bytes=1 << 30)
    near = replace(ONE, strategy="saint", exchange=None, options={}, workers=1, exact=False)
    plan = Plan({}, [best, slow, near, large], [RuledOut("records", None, 1, "no files")], machine())
    assert list(lost(plan)) == [
        "grid 2×1, exact on 2: 3.0 times as long an epoch, 0 bytes sent",
        "saint on 1: approximates, 0.0 ms an epoch",
        "halo, exact on 2: takes 2 GiB a worker, 1 GiB may be taken",
        "records: no files",
    ]
    assert chosen(plan).startswith(
        "single on 1 worker: the fastest exact one that fits in 1 GiB a worker, 1.00 s"
    )
    assert [row[0] for row in table(plan)][1:] == ["single", "grid 2×1, exact", "saint", "halo, exact"]
    assert "no configuration" in chosen(replace(plan, configurations=[]))


def test_an_approximation_is_shown_with_what_it_was_measured_to_cost() -> None:
    cost = {
        "points": -4.13,
        "error": 0.05,
        "options": {"p": 0.1},
        "of": "communities",
        "source": "results, case",
    }
    better = {**cost, "points": 0.14, "of": "pubmed"}
    near = replace(ONE, exact=False, accuracy_cost=[better, cost])
    unknown = replace(near, accuracy_cost="not measured")
    plan = Plan({}, [ONE, near, unknown], [], machine())
    cells = [row[-1] for row in table(plan)]
    assert cells == ["exact", "yes", "no; -4.13 ± 0.05 points at p 0.1", "no; not measured"]
    (told,) = sources(plan)
    assert "communities (results, case)" in told
    assert list(sources(replace(plan, configurations=[ONE, unknown]))) == []
