"""What steps take of a GPU grows with the graph and the model, and with what batches hold."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.strategies.device_bytes import feature_bytes, learned_bytes, sampled_bytes, whole_bytes
from weft.strategies.offload.offload import Offload, least_bytes
from weft.train.model import build_model


@pytest.fixture
def graph() -> weft.Graph:
    made: weft.Graph = weft.datasets.open_dataset(name="community", nodes=300, classes=3, seed=3)
    return made


def test_a_step_over_the_whole_graph_holds_features_and_rows_of_all_layers(graph: weft.Graph) -> None:
    assert graph.x is not None
    assert feature_bytes(graph) == graph.x.nbytes
    narrow, wide = (whole_bytes(graph, build_model(graph, "sage", {"hidden": width})) for width in (8, 512))
    assert wide > 5 * narrow
    assert wide > graph.num_nodes * 512 * 4 * 3


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


def test_learned_rows_are_counted(graph: weft.Graph) -> None:
    bare = graph.with_data(x=None)
    model = build_model(bare, "sage", {"hidden": 64})
    assert learned_bytes(model) == bare.num_nodes * 64 * 4
    thin = build_model(bare, "sage", {"hidden": 64, "embedding": {"width": 1}})
    more = bare.num_nodes * 63 * 4
    assert whole_bytes(bare, model) - whole_bytes(bare, thin) == 2 * more
    found = sampled_bytes(bare, model, [2, 2], 16) - sampled_bytes(bare, thin, [2, 2], 16)  # type: ignore[arg-type]
    assert found == 3 * more - 4 * 4 * 2 * 64  # a narrower row has a map
