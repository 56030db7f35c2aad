"""A plan of a small graph: forecasts by configuration, and the fastest exact one that fits first."""

from dataclasses import replace

import pytest
from plan_jobs import SMALL
from plan_machine import machine

from weft.config import make_recipe
from weft.plan.planning import Plan, make_plan
from weft.plan.shown import chosen, lost, table


@pytest.fixture(scope="module")
def plan() -> Plan:
    strategy = {"name": "halo", "partitioner": "range"}
    recipe = make_recipe({**SMALL, "model": {"hidden": 8}, "strategy": strategy})
    return make_plan(recipe, machine=machine(), workers=[1, 2], only=["single", "halo", "records"])


def test_the_recommended_one_is_first_exact_and_fits(plan: Plan) -> None:
    best = plan.recommended
    assert best is plan.configurations[0]
    assert best.exact
    assert best.fits
    assert {each.memory_limit_bytes >> 30 for each in plan.configurations} == {8, 4}
    assert {each.strategy for each in plan.configurations} == {"single", "halo"}


def test_counts_agree_with_each_other(plan: Plan) -> None:
    for each in plan.configurations:
        assert each.bytes_per_epoch == sum(each.bytes_by_purpose.values())
        assert each.bytes_per_epoch == each.training_bytes_per_epoch + each.evaluation_bytes_per_epoch
        assert each.bytes_per_epoch == sum(map(sum, each.bytes_by_pair))
        for number, row in enumerate(each.bytes_by_pair if each.workers > 1 else []):
            assert [peer for peer, size in enumerate(row) if size] == [1 - number], "to the other, from each"
        assert each.epoch_seconds == pytest.approx(sum(each.seconds_by_phase.values()))
        assert (each.bytes_per_epoch > 0) == (each.workers > 1)
        assert each.dollars_per_epoch is None


def test_an_exchange_that_codes_sends_less_and_memory_is_above_the_process(plan: Plan) -> None:
    by = {each.exchange: each for each in plan.configurations if each.strategy == "halo"}
    assert by["quantised"].bytes_per_epoch < by["exact"].bytes_per_epoch
    assert not by["quantised"].exact
    assert by["exact"].peak_memory_bytes > machine().joined


def test_nothing_is_recommended_that_does_not_fit(plan: Plan) -> None:
    small = [replace(each, memory_limit_bytes=1 << 20) for each in plan.configurations]
    tight = replace(plan, configurations=small).ordered()
    assert tight.recommended is None
    assert "nothing fits" in chosen(tight)
    assert "1 MiB may be taken" in chosen(tight)


def test_it_is_told_in_words(plan: Plan) -> None:
    assert chosen(plan).startswith("single on 1 worker: the fastest exact one that fits in 8 GiB")
    rows = list(table(plan))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 1 + len(plan.configurations)
    (halo, records) = lost(plan)
    assert halo.startswith("halo, exact on 2: ")
    assert "times as long an epoch" in halo
    assert records.startswith("records: ")
