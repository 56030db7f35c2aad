"""Steps on subgraphs: those of the whole graph where the subgraph is all of it."""

from pathlib import Path
from typing import Any

import halo_jobs
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

import weft
from weft.errors import InputError, RecipeError
from weft.graph.views import GraphView
from weft.samplers import ClusterSampler, Loader
from weft.strategies.minibatch.clustered import Clustered, Saint
from weft.strategies.single import Single
from weft.tasks.base import Targets, Total
from weft.tasks.node_classification import NodeClassification
from weft.tasks.nodes import NodeTargets
from weft.train.model import adapt, build_model


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=150, degree=8, classes=3, features=8, seed=1)


@pytest.mark.parametrize("name", halo_jobs.MODELS)
def test_all_clusters_together_are_the_whole_graph(name: str) -> None:
    for kind, dtype in halo_jobs.cases(name):
        graph = adapt(halo_jobs.graph_of(kind), halo_jobs.MODELS[name][0]).to(dtype=dtype)
        whole = halo_jobs.trained(Single(graph, seed=3), halo_jobs.model_of(graph, name, dtype))
        strategy = Clustered(graph, seed=3, clusters=3, together=3)
        sampler = ClusterSampler(graph, 3, parts=torch.arange(graph.num_nodes) % 3)
        strategy.batching._loader = Loader(sampler, range(3), batch_size=3, threads=0)  # without cutting each
        found = halo_jobs.trained(strategy, halo_jobs.model_of(graph, name, dtype))
        bound = 1e-5 if dtype == torch.float32 else 1e-10
        far = {what: halo_jobs.far(found[what], value) for what, value in whole.items()}
        assert max(far.values()) <= bound, (kind, dtype, far)


def test_a_step_without_a_target_leaves_the_weights_as_they_are(graph: weft.Graph) -> None:
    parts = torch.arange(graph.num_nodes) * 2 // graph.num_nodes
    data = {"y": graph.y, "x": graph.x, "train_mask": parts == 0}
    half = weft.Graph.from_edges(graph.edge_index, num_nodes=graph.num_nodes, **data)
    strategy = Clustered(half, clusters=2, together=1)
    strategy.batching._loader = Loader(
        ClusterSampler(half, 2, parts=parts), range(2), batch_size=1, threads=0
    )
    model = build_model(half, "sage", {"hidden": 4, "layers": 2}, seed=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(2):
        strategy.epoch(model, optimizer)
    assert len(strategy.batching) == 2
    assert {int(held["step"]) for held in optimizer.state.values()} == {2}, "one an epoch has targets"


@pytest.mark.parametrize(
    "strategy",
    [
        {"name": "clustered", "clusters": 6, "together": 2, "enhance": 0.1, "partitioner": "range"},
        {"name": "saint", "size": 20, "steps": 3},
        {"name": "saint", "how": "edge", "size": 40, "steps": 3},
    ],
)
def test_a_run_learns_and_goes_on_within_an_epoch(
    strategy: dict[str, Any], graph: weft.Graph, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"strategy": strategy, "epochs": 10, "hidden": 8, "lr": 0.05, "eval_every": 10}
    whole = weft.train(graph, "gcn", **settings)
    assert whole.val_accuracy is not None
    assert whole.val_accuracy > 0.6
    asked = iter(range(100))
    weft.train(graph, "gcn", **settings, out=tmp_path / "run", stop=lambda: next(asked) == 4)
    rest = weft.train(graph, "gcn", **settings, out=tmp_path / "run", resume=True)
    assert rest.loss == whole.loss


def test_more_clusters_at_once_than_there_are_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(RecipeError, match="use at most 3"):
        weft.train(graph, "sage", strategy={"name": "clustered", "clusters": 3, "together": 4})


def test_a_diagonal_that_a_model_passes_over_is_refused(graph: weft.Graph) -> None:
    strategy = {"name": "clustered", "together": 2, "enhance": 0.5, "partitioner": "range", "clusters": 4}
    for layer, options in (("gat", {}), ("sage", {"aggregate": "max"}), ("edgeconv", {})):
        with pytest.raises(InputError, match=r"enhance adds to the diagonal of sums .* use enhance = 0"):
            weft.train(graph.add_self_loops(), layer, strategy=strategy, epochs=1, **options)
    losses = {
        weft.train(graph, "gcn", strategy={**strategy, "enhance": share}, epochs=1, hidden=4).loss
        for share in (0.0, 0.5)
    }
    assert len(losses) == 2
    block = ClusterSampler(graph.add_self_loops(), 4, enhance=0.5, partitioner="range").sample([0]).blocks[0]
    with pytest.raises(InputError, match="the model needs SAGEConv of PyG"):
        weft.nn.PyG(SAGEConv(8, 3))(block, torch.rand(block.num_src, 8))


class OfOneClass(NodeClassification):
    """Trains on nodes of class 0 alone, whatever the graph's training split has."""

    def targets(self, held: GraphView, total: Total) -> dict[str, Targets]:
        found = super().targets(held, total)
        rows = found["train"].rows
        assert held.y is not None
        found["train"] = NodeTargets(rows[held.y[rows] == 0], held.y, 0)
        found["train"].count = len(found["train"])
        return found


@pytest.mark.parametrize("kind", [Clustered, Saint])
def test_the_task_says_which_nodes_are_trained_on(kind: Any, graph: weft.Graph) -> None:
    options = {"clusters": 2, "together": 1, "partitioner": "range"} if kind is Clustered else {"size": 20}
    batching = kind(graph, task=OfOneClass(), **options).batching
    batching.begin_epoch(weft.nn.Stack(8, 3, layer="gcn", layers=2, hidden=4))
    seen = torch.cat([batching.loader.batch(0, step).y for step in range(2)])
    assert len(seen) > 0
    assert not seen.any()


def test_outputs_of_a_batch_are_those_that_the_task_makes(graph: weft.Graph) -> None:
    class Halved(NodeClassification):
        def of_batch(self, model: nn.Module, h: Tensor, batch: Any) -> Tensor:
            return super().of_batch(model, h, batch) / 2

    batching = Clustered(graph, task=Halved(), clusters=2, together=1, partitioner="range").batching
    model = weft.nn.Stack(8, 3, layer="gcn", layers=2, hidden=4).eval()
    batching.begin_epoch(model)
    batch = batching.loader.batch(0, 0)
    rows = batching.batch_rows(model, batch)[batch.rows]
    assert len(rows) > 0
    assert torch.equal(batching.batch_outputs(model, batch), rows / 2)
