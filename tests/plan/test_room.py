"""A run that cannot fit is refused before it begins, with what would; nothing that may fit is."""

from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import main
from weft.config import make_recipe
from weft.errors import RecipeError
from weft.plan import room
from weft.train.resolve import Resolved, resolve
from weft.train.workers.run_parts import prepare_parts

GRAPH = {"name": "community", "nodes": 3000, "degree": 6.0, "features": 32}


def resolved(strategy: dict[str, Any], workers: int = 1, **model: Any) -> Resolved:
    return resolve(
        make_recipe({"data": GRAPH, "model": {"hidden": 128, **model}, "strategy": strategy}), workers=workers
    )


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda size: monkeypatch.setenv(room.LIMIT, size)


def test_what_cannot_fit_is_refused_with_the_nearest_that_can(limit: Any) -> None:
    run = resolved({"name": "single"})
    graph = run.open()
    limit("4MiB")
    with pytest.raises(RecipeError, match=r"at least .*MiB beside the graph, 4 MiB may be taken") as told:
        room.check_graph(run, graph)
    assert "model.hidden = " in str(told.value)
    assert "WEFT_MEMORY_LIMIT=" in str(told.value)
    hidden = int(str(told.value).split("model.hidden = ")[1].split(" ")[0])
    room.check_graph(resolved({"name": "single"}, hidden=hidden), graph)
    limit("1GiB")
    room.check_graph(run, graph)


def test_a_graph_that_surely_fits_is_not_rehearsed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = resolved({"name": "single"})
    graph = run.open()
    monkeypatch.setattr(room, "rehearse", lambda *given, **more: pytest.fail("rehearsed"))
    room.check_graph(run, graph)
    monkeypatch.setenv(room.LIMIT, "1MiB")
    room.check_graph(resolved({"name": "clustered"}), graph)  # takes what a batch does


def test_the_bound_below_which_nothing_is_rehearsed_is_above_what_is(limit: Any) -> None:
    asked: list[int] = []
    for name in ("gcn", "sage", "gat", "gatv2", "gin"):
        run = resolved({"name": "single"}, name=name, hidden=16)
        graph = run.open()
        most = room._most(run, graph.num_nodes, graph.num_edges, 32)
        (told,) = room.rehearse(run, graph, workers=1, epochs=1)
        asked.append(told.peak - told.held)
        assert asked[-1] < most, name


def test_workers_are_refused_by_what_all_of_them_take(tmp_path: Path, limit: Any) -> None:
    run = resolved({"name": "halo", "partitioner": "hash"}, workers=2)
    parts = prepare_parts(run, tmp_path, workers=2)
    limit("100MiB")
    with pytest.raises(RecipeError, match="'halo' will take at least"):
        room.check_parts(run, parts, 2)
    limit("2GiB")
    room.check_parts(run, parts, 2)


def test_the_command_refuses_in_one_line_and_leaves_no_run(
    tmp_path: Path, limit: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    limit("2MiB")
    settings = [f"--set=data.{name}={value}" for name, value in GRAPH.items()]
    assert main.main(["train", *settings, "--set=model.hidden=128", f"--out={tmp_path / 'run'}"]) == 2
    told = capsys.readouterr().err
    assert "strategy.name: 'single' will take at least" in told
    assert not (tmp_path / "run" / "run.json").exists()


def test_a_sampled_run_is_asked_by_one_batch_and_an_evaluation(
    limit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []
    rehearse = room.rehearse

    def heard(*given: Any, **more: Any) -> Any:
        ranks = rehearse(*given, **more)
        steps.append(ranks[0].steps)
        return ranks

    monkeypatch.setattr(room, "rehearse", heard)
    run = resolved({"name": "sampled", "batch_size": 64})
    graph = run.open()
    limit("512KiB")
    with pytest.raises(RecipeError, match="'sampled' will take at least"):
        room.check_graph(run, graph)
    assert set(steps) == {1}
    limit("64MiB")
    room.check_graph(run, graph)


def test_python_refuses_as_the_command_does(tmp_path: Path, limit: Any) -> None:
    graph = resolved({"name": "single"}).open()
    limit("2MiB")
    with pytest.raises(RecipeError, match="'single' will take at least"):
        weft.train(graph, "sage", hidden=128, device="cpu", epochs=1, out=tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()
    with pytest.raises(RecipeError, match="'halo' will take at least"):
        weft.train(graph, "sage", hidden=128, device="cpu", epochs=1, workers=2)
