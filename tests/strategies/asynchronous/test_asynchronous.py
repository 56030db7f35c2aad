"""Intervals compute what one process does where nothing is old, and delayed updates where something is."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from asynchronous_jobs import delayed, far, held, late_intervals, on_ranks, trained, whole
from ranks import run_ranks

import weft
from weft.errors import FormatError, RecipeError
from weft.strategies.asynchronous.asynchronous import Asynchronous
from weft.strategies.halo.halo import Halo
from weft.strategies.single import Single

FORMS: list[dict[str, Any]] = [{"form": "sync"}, {"intervals": 1}]


def same(found: Any, expected: Any) -> bool:
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


@pytest.mark.parametrize("layer", ["gcn", "gat", "sgc", "rgcn"])
def test_without_staleness_the_bits_are_those_of_halo_and_the_numbers_of_one_process(layer: str) -> None:
    graph, model = held("hub", layer, torch.float32)
    expected = trained(Halo(whole(graph), seed=3), model)
    for options in FORMS:
        _, model = held("hub", layer, torch.float32)
        assert same(trained(Asynchronous(whole(graph), seed=3, **options), model), expected), options
    graph, model = held("hub", layer)
    expected = trained(Single(graph, seed=3), model)
    _, model = held("hub", layer)
    assert far(trained(Asynchronous(whole(graph), seed=3, intervals=5), model), expected) < 1e-12


@pytest.mark.parametrize(("staleness", "count"), [(0, 3), (1, 3), (2, 4), (5, 2)])
def test_rows_and_weights_are_exactly_as_old_as_was_said(staleness: int, count: int) -> None:
    graph, model = held("hub", "gcn", dropout=0.0)
    expected = delayed(graph, model, count, staleness, 0.3)
    made = Asynchronous(whole(graph), intervals=count, staleness=staleness)
    found = trained(made, model, sgd=0.3)
    assert far(found, expected) < 1e-12
    assert (
        staleness == 0 or far(found, delayed(graph, held("hub", "gcn", dropout=0.0)[1], count, 0, 0.3)) > 1e-4
    )


def test_a_free_run_repeats_its_bits_from_its_order_and_an_age_is_bounded(tmp_path: Path) -> None:
    graph, _ = held("hub", "gcn", torch.float32)
    given: dict[str, Any] = {"form": "free", "staleness": 1, "intervals": 4, "seed": 3}
    runs = []
    for name, replay in (("a", None), ("b", str(tmp_path / "a" / "order"))):
        strategy = Asynchronous(whole(graph), folder=tmp_path / name, replay=replay, **given)
        _, model = held("hub", "gcn", torch.float32)
        runs.append(trained(strategy, model))
    assert same(*runs)
    lines = [(tmp_path / name / "order" / "rank-0.jsonl").read_text().splitlines() for name in "ab"]
    assert sorted(lines[0]) == sorted(lines[1])
    first = Path(tmp_path / "a" / "order" / "rank-0.jsonl")
    first.write_text("\n".join(line for line in lines[0] if not line.startswith('["read", 2, 3')))
    strategy = Asynchronous(whole(graph), replay=str(first.parent), **given)
    with pytest.raises(FormatError, match="ends within epoch 4 of interval 2"):
        trained(strategy, held("hub", "gcn", torch.float32)[1])


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("layer", ["gcn", "gat"])
def test_a_free_run_in_which_nobody_is_late_reads_nothing_old(layer: str, staleness: int) -> None:
    graph, model = held("hub", layer, torch.float32)
    expected = trained(Asynchronous(whole(graph), seed=3, intervals=4), model)
    _, model = held("hub", layer, torch.float32)
    free = Asynchronous(whole(graph), seed=3, intervals=4, form="free", staleness=staleness)
    assert same(trained(free, model), expected)


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_whoever_is_late_nothing_is_read_that_is_older_than_the_bound(staleness: int, tmp_path: Path) -> None:
    oldest = 0
    for seed in range(3):
        graph, model = held("hub", "gat", torch.float32)
        given: dict[str, Any] = {"form": "free", "staleness": staleness, "intervals": 4, "seed": seed}
        with late_intervals(seed):
            trained(Asynchronous(whole(graph), folder=tmp_path / str(seed), **given), model)
        lines = (tmp_path / str(seed) / "order" / "rank-0.jsonl").read_text().splitlines()[1:]
        reads = [event for event in map(json.loads, lines) if event[0] == "read"]
        oldest = max(oldest, *(event[2] - min(event[3]) for event in reads))
    assert oldest == max(staleness, 1)


def test_another_order_than_the_own_is_refused(tmp_path: Path) -> None:
    graph, model = held("hub", "gcn", torch.float32)
    trained(Asynchronous(whole(graph), folder=tmp_path, form="free", intervals=2), model, 2)
    given: dict[str, Any] = {"form": "free", "replay": str(tmp_path / "order")}
    with pytest.raises(RecipeError, match="of a run with intervals = 2, this one has 3"):
        trained(Asynchronous(whole(graph), intervals=3, **given), model, 2)
    with pytest.raises(FormatError, match="ends before epoch 3 of interval"):
        trained(Asynchronous(whole(graph), intervals=2, **given), model, 3)


def test_a_run_that_is_continued_has_the_bits_of_one_that_was_not(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=80, degree=6, classes=3, features=8, seed=1)
    section: dict[str, Any] = {"name": "asynchronous", "intervals": 3, "staleness": 2}
    given: dict[str, Any] = {"hidden": 8, "lr": 0.02, "strategy": section, "epochs": 9, "checkpoint_every": 1}
    through = weft.train(graph, "gcn", out=tmp_path / "through", **given)
    ticks = itertools.count(1)
    weft.train(graph, "gcn", out=tmp_path / "stopped", stop=lambda: next(ticks) == 4, **given)
    again = weft.train(graph, "gcn", out=tmp_path / "stopped", resume=True, **given)
    assert again.epochs == 9
    assert again.loss == through.loss
    expected = through.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in again.model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ({"norm": "batch"}, {}, r"model\.norm: 'batch' is over the rows of all intervals"),
        ({}, {"form": "sync", "staleness": 1}, r"strategy\.staleness: 'sync' ends every layer together"),
        ({}, {"replay": "x"}, r"strategy\.replay: 'deterministic' gives the same bits by itself"),
        ({}, {"tensor_engine": "ray"}, r"strategy\.tensor_engine: 'ray' has nothing to place"),
        ({}, {"tensor_workers": 1, "ray_address": "a:1"}, r"strategy\.ray_address: this is of Ray; add"),
        ({"precision": "bfloat16"}, {"tensor_workers": 1}, r"train\.precision: tensor workers multiply"),
        ({}, {"form": "free", "replay": "x"}, r"x/rank-0\.jsonl: no such file"),
    ],
)
def test_what_cannot_be_right_is_refused(model: Any, options: Any, message: str) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=40, degree=6, classes=3, features=8, seed=1)
    section = {"name": "asynchronous", "intervals": 2, **options}
    with pytest.raises((RecipeError, FormatError), match=message):
        weft.train(graph, "gcn", strategy=section, epochs=2, hidden=4, **model)


def test_what_fails_in_an_interval_is_told_once_and_ends_the_run() -> None:
    graph, model = held("hub", "gcn")
    strategy = Asynchronous(whole(graph), intervals=3)
    model.layers[1].register_forward_hook(lambda *_: 1 / 0)  # type: ignore[union-attr, operator]
    with pytest.raises(ZeroDivisionError):
        trained(strategy, model)
    strategy.close()


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_workers_compute_what_one_process_does(size: int, tmp_path: Path) -> None:
    assert run_ranks(size, on_ranks, str(tmp_path)) == [[]] * size
