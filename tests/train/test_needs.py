"""What ways of training take on a GPU grows with the graph and the model, and is told in one line."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.layers.learned import LearnedRows
from weft.strategies.offload.offload import Offload, least_bytes
from weft.tasks.choose import TaskChoice
from weft.train.model import build_model
from weft.train.needs import (
    check_memory,
    feature_bytes,
    learned_bytes,
    needs,
    out_of_memory,
    place_rows,
    sampled_bytes,
    too_little,
    whole_bytes,
)


def test_the_needs_of_each_way(graph: weft.Graph) -> None:
    assert graph.x is not None
    assert feature_bytes(graph) == graph.x.nbytes
    narrow, wide = (needs(graph, build_model(graph, "sage", {"hidden": width})) for width in (8, 512))
    assert wide["single"] > 5 * narrow["single"]
    assert wide["single"] > graph.num_nodes * 512 * 4 * 3
    told = too_little(wide, 1 << 20)
    assert "single" not in told.split("; ")[0]
    assert "1 MiB are free; single with activation = 'offload' about" in told
    assert "sampled about" in told


def test_sampled_training_takes_what_its_batches_do(graph: weft.Graph) -> None:
    model = build_model(graph, "sage", {"hidden": 64})
    few, many = (sampled_bytes(graph, model, fanout, 16) for fanout in ([1, 1], [9, 9]))  # type: ignore[arg-type]
    assert feature_bytes(graph) < few < many
    wide = build_model(graph, "gat", {"hidden": 64, "heads": 2})
    assert sampled_bytes(graph, wide, [9, 9], 16) > many  # type: ignore[arg-type]


def test_seeds_are_nodes_where_a_later_type_has_labels_and_no_mask() -> None:
    graph = weft.Graph.from_types(
        {"a": {"x": torch.rand(5, 3)}, "b": {"x": torch.rand(6, 3), "y": torch.arange(6) % 2}},
        {("a", "to", "b"): torch.tensor([[0, 1], [3, 4]]), ("b", "of", "a"): torch.tensor([[0, 1], [3, 4]])},
    )
    assert sampled_bytes(graph, build_model(graph, "rgcn", {"hidden": 4}), [2, 2], 16) > 0  # type: ignore[arg-type]


def test_the_least_memory_of_offload_is_enough_and_hardly_more() -> None:
    num_nodes, hub = 400, 3000
    src = torch.randint(num_nodes, (hub + 500,), generator=torch.Generator().manual_seed(0))
    dst = torch.cat([torch.full((hub,), 7), torch.arange(500) % num_nodes])
    y, mask = torch.arange(num_nodes) % 4, torch.arange(num_nodes) % 3 == 0
    graph = weft.Graph.from_edges(torch.stack([src, dst]), x=torch.rand(num_nodes, 6), y=y, train_mask=mask)
    model = build_model(graph, "gat", {"hidden": 16, "heads": 2})
    least = least_bytes(Offload(graph, torch.device("cpu"), memory=1), model)  # type: ignore[arg-type]
    assert Offload(graph, torch.device("cpu"), memory=least + 100)(model).shape == (num_nodes, 4)
    with pytest.raises(RecipeError, match="on the device, a chunk may take"):
        Offload(graph, torch.device("cpu"), memory=int(least / 1.3))(model)


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


def test_learned_rows_are_counted(graph: weft.Graph) -> None:
    bare = graph.with_data(x=None)
    model = build_model(bare, "sage", {"hidden": 64})
    assert learned_bytes(model) == bare.num_nodes * 64 * 4
    thin = build_model(bare, "sage", {"hidden": 64, "embedding": {"width": 1}})
    more = bare.num_nodes * 63 * 4
    assert whole_bytes(bare, model) - whole_bytes(bare, thin) == 2 * more
    found = sampled_bytes(bare, model, [2, 2], 16) - sampled_bytes(bare, thin, [2, 2], 16)  # type: ignore[arg-type]
    assert found == 3 * more - 4 * 4 * 2 * 64  # a narrower row has a map


@pytest.mark.parametrize(("free", "on_host"), [(0, True), (1 << 40, False)])
def test_learned_rows_stay_on_the_host_where_a_gpu_has_no_room(
    graph: weft.Graph, monkeypatch: pytest.MonkeyPatch, free: int, on_host: bool
) -> None:
    monkeypatch.setattr("weft.train.needs.free_bytes", lambda device: free)
    model = build_model(graph.with_data(x=None), "sage", {"hidden": 8})
    place_rows(model, torch.device("cuda"))
    assert [each.on_host for each in model.modules() if isinstance(each, LearnedRows)] == [on_host]
    place_rows(model, torch.device("cpu"))
