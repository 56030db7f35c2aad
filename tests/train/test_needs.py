"""What ways of training take on a GPU grows with the graph and the model, and is told in one line."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.layers.learned import LearnedRows
from weft.strategies.base import strategies
from weft.strategies.device_bytes import whole_bytes
from weft.tasks.choose import TaskChoice
from weft.train.model import build_model
from weft.train.needs import check_memory, needs, out_of_memory, place_rows, too_little


def test_the_needs_of_each_way(graph: weft.Graph) -> None:
    models = [build_model(graph, "sage", {"hidden": width}) for width in (8, 512)]
    narrow, wide = (needs(graph, model) for model in models)  # type: ignore[arg-type]
    assert [*wide] == ["sampled", "single with activation = 'offload'"]
    assert all(wide[way] > narrow[way] for way in wide)
    told = too_little(whole_bytes(graph, models[1]), wide, 1 << 20)
    assert "single" not in told.split("; ")[0]
    assert "1 MiB are free; sampled about" in told
    assert "single with activation = 'offload' about" in told


def test_a_strategy_of_the_users_own_says_what_it_takes(
    graph: weft.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies["saint"], "device_needs", lambda graph, model: {"saint": 7 << 20})
    model = build_model(graph, "sage", {"hidden": 8})
    assert "saint about 7 MiB" in too_little(1 << 30, needs(graph, model), 1 << 20)  # type: ignore[arg-type]


def test_a_run_that_found_no_memory_says_what_would_fit(graph: weft.Graph) -> None:
    model = build_model(graph, "gat", {"hidden": 8})
    assert "the GPU has no memory left. train.device:" in out_of_memory(graph, model, torch.device("cpu"))
    assert "use more parts" in out_of_memory(None, model, torch.device("cpu"))


def test_a_graph_without_labels_fits_where_its_task_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = weft.Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]], x=torch.eye(4))
    task = TaskChoice.of({"name": "link_prediction", "split": {"val": 0.0, "test": 0.25}}).make(graph)
    task.hides(batches=False)
    graph = task.prepared(graph)
    monkeypatch.setattr("weft.train.needs.free_bytes", lambda device: 1 << 30)
    check_memory(graph, "sage", {"hidden": 8}, torch.device("cuda"), task)
    monkeypatch.setattr("weft.train.needs.free_bytes", lambda device: 1)
    with pytest.raises(RecipeError, match="a step over the whole graph takes at least"):
        check_memory(graph, "sage", {"hidden": 8}, torch.device("cuda"), task)


@pytest.mark.parametrize(("free", "on_host"), [(0, True), (1 << 40, False)])
def test_learned_rows_stay_on_the_host_where_a_gpu_has_no_room(
    graph: weft.Graph, monkeypatch: pytest.MonkeyPatch, free: int, on_host: bool
) -> None:
    monkeypatch.setattr("weft.train.needs.free_bytes", lambda device: free)
    model = build_model(graph.with_data(x=None), "sage", {"hidden": 8})
    place_rows(model, torch.device("cuda"))
    assert [each.on_host for each in model.modules() if isinstance(each, LearnedRows)] == [on_host]
    place_rows(model, torch.device("cpu"))
