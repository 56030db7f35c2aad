"""Control variates: exact where histories or samples are, right in the mean where neither is."""

from pathlib import Path
from typing import Any

import halo_jobs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import weft
from weft.errors import GraphError, InputError
from weft.strategies.minibatch.control_variate import ControlVariate
from weft.strategies.single import Single
from weft.train.model import adapt

MODELS = ("gcn", "sage mean", "gin")
DOUBLE = torch.float64


def prepared(name: str, **options: Any) -> tuple[weft.Graph, nn.Module, ControlVariate]:
    """Return a graph with edge weights, a model of three layers without dropout, and the strategy."""
    layer, given = halo_jobs.MODELS[name]
    graph = adapt(halo_jobs.graph_of("hub"), layer).to(dtype=DOUBLE)
    model = weft.train(
        graph,
        layer,
        **{**given, "norm": None, "input_dropout": None, "jumping": None},
        epochs=1,
        layers=options.pop("layers", 3),
        hidden=5,
        dropout=0.0,
        precision="float64",
    ).model
    return graph, model, ControlVariate(graph, prepare=0, **options)


@pytest.mark.parametrize("name", MODELS)
def test_exact_histories_give_the_full_forward_whatever_is_drawn(name: str) -> None:
    graph, model, strategy = prepared(name, fanout=1, batch_size=7)
    strategy.batching.begin_epoch(model)
    exact = strategy.predict(model)
    for step in range(2):
        batch = strategy.batching.loader.batch(0, step)
        assert batch.num_edges < graph.num_edges
        outputs = strategy.batching.batch_outputs(model, batch).detach()
        assert halo_jobs.far(outputs, exact[batch.seeds]) < 1e-10


@pytest.mark.parametrize("name", ["gcn", "gin", "sage sum"])
@pytest.mark.parametrize("safe", [True, False])
def test_all_edges_and_one_batch_are_a_step_on_the_whole_graph(
    name: str, safe: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(halo_jobs.MODELS, "sage sum", ("sage", {"aggregate": "sum", "layers": 3}))
    for dtype in (torch.float32, DOUBLE):
        graph = adapt(halo_jobs.graph_of("hub"), halo_jobs.MODELS[name][0]).to(dtype=dtype)
        whole = halo_jobs.trained(Single(graph, seed=3), halo_jobs.model_of(graph, name, dtype))
        strategy = ControlVariate(graph, seed=3, fanout=-1, batch_size=10**6, safe=safe, prepare=0)
        found = halo_jobs.trained(strategy, halo_jobs.model_of(graph, name, dtype))
        far = {what: halo_jobs.far(found[what], value) for what, value in whole.items()}
        assert max(far.values()) <= (1e-5 if dtype == torch.float32 else 1e-10), far


def test_gradients_are_right_in_the_mean_whatever_is_remembered() -> None:
    graph, model, strategy = prepared("gcn", fanout=1, batch_size=1000, layers=2)
    strategy.batching.begin_epoch(model)
    for rows in strategy.batching.history.rows.values():
        rows.copy_(torch.rand(rows.shape, generator=torch.Generator().manual_seed(2)))
    weight = torch.rand(graph.num_nodes, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(3))

    def gradients(outputs: Tensor, nodes: Tensor) -> Tensor:
        model.zero_grad()
        (outputs * weight[nodes]).sum().backward()  # type: ignore[no-untyped-call]
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    seeds = strategy.batching.loader.seeds
    found = []
    for step in range(400):
        batch = strategy.batching.loader.sampler.sample(seeds, 0, step)
        found.append(gradients(strategy.batching.batch_outputs(model, batch), batch.seeds))
    exact = gradients(model(graph.block(), graph.x)[seeds], seeds)
    drawn = torch.stack(found)
    error = drawn.std(0) / len(drawn) ** 0.5
    assert bool(((drawn.mean(0) - exact).abs() <= 5 * error + 1e-9).all())
    assert float(drawn.std(0).max()) > 1e-3, "something was drawn"


def test_histories_follow_what_is_computed() -> None:
    _, model, strategy = prepared("gcn", fanout=2, batch_size=5)
    strategy.batching.begin_epoch(model)
    before = {name: rows.clone() for name, rows in strategy.batching.history.rows.items()}
    strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.5))
    assert set(before) == {"1.0", "2.0"}
    for name, rows in strategy.batching.history.rows.items():
        changed = (rows != before[name]).any(1)
        assert changed.any()
    assert bool((strategy.batching.history.rows["2.0"] == before["2.0"]).all(1).any()), (
        "not every node was computed"
    )


def test_a_run_goes_on_within_an_epoch_bit_for_bit(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=150, degree=8, classes=3, features=8, seed=1)
    strategy = {"name": "control_variate", "fanout": [1], "batch_size": 16}
    settings: dict[str, Any] = {"strategy": strategy, "epochs": 4, "hidden": 8, "eval_every": 4}
    whole = weft.train(graph, "gcn", **settings)
    asked = iter(range(100))
    weft.train(graph, "gcn", **settings, out=tmp_path / "run", stop=lambda: next(asked) == 7)
    rest = weft.train(graph, "gcn", **settings, out=tmp_path / "run", resume=True)
    assert rest.loss == whole.loss
    assert whole.val_accuracy is not None
    assert whole.val_accuracy > 0.6


def test_what_is_no_sum_is_refused() -> None:
    strategy = {"name": "control_variate", "fanout": [1]}
    for layer in ("gat", "edgeconv"):
        with pytest.raises(InputError, match="estimates sums and means"):
            weft.train(halo_jobs.graph_of("directed"), layer, strategy=strategy, epochs=1)
    with pytest.raises(GraphError, match="one relation"):
        weft.train(halo_jobs.graph_of("typed"), "rgcn", strategy=strategy, epochs=1)


def test_the_pass_without_dropout_counts_in_no_running_statistics() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=120, degree=6, classes=3, features=8, seed=1)
    model = weft.nn.Stack(8, 3, layer="sage", hidden=8, dropout=0.5, norm="batch")
    train_nodes = int(graph.train_mask.sum())
    strategy = {"name": "control_variate", "batch_size": train_nodes}
    weft.train(graph, model, strategy=strategy, epochs=3, restore_best=False)
    counts = [value for name, value in model.state_dict().items() if name.endswith("num_batches_tracked")]
    assert [int(count) for count in counts] == [3] * len(counts) != []


class Net(nn.Module):
    """Two layers of anybody's code with dropout of weft, of torch, or as a function."""

    hops = 2

    def __init__(self, how: str) -> None:
        super().__init__()
        self.first, self.second = weft.nn.SAGE(8, 8), weft.nn.SAGE(8, 3)
        self.how = how
        self.drop: nn.Module = nn.Dropout(0.5)
        if how == "weft":
            self.drop = weft.nn.Dropout(0.5)

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        h = self.first(blocks[0], x).relu()
        if self.how == "weft":
            h = self.drop(blocks[0], h, rows="dst")
        else:
            h = F.dropout(h, 0.5, training=self.training) if self.how == "function" else self.drop(h)
        out: Tensor = self.second(blocks[1], h)
        return out


@pytest.mark.parametrize("how", ["weft", "torch", "function"])
def test_no_dropout_is_remembered_whoever_drops(how: str) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, degree=6, classes=3, features=8, seed=1)
    kept = {}
    for safe in (True, False):
        torch.manual_seed(0)
        model = Net(how)
        strategy = ControlVariate(graph, prepare=0, fanout=2, batch_size=8, safe=safe)
        strategy.batching.begin_epoch(model)
        before = {name: rows.clone() for name, rows in strategy.batching.history.rows.items()}
        strategy.epoch(model, torch.optim.SGD(model.parameters(), lr=0.0))
        kept[safe] = max(
            halo_jobs.far(rows, before[name]) for name, rows in strategy.batching.history.rows.items()
        )
    assert kept[True] < 1e-5 < 0.1 < kept[False], kept


def test_dropout_is_spread_by_the_root_of_the_ratio() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, degree=9, classes=3, features=8, seed=1)
    strategy = ControlVariate(graph, prepare=0, fanout=2, batch_size=12)
    model = weft.nn.Stack(8, 3, layer="sage", hidden=4)
    strategy.batching.begin_epoch(model)
    _, block = strategy.batching.blocks_of(model, strategy.batching.loader.batch(0, 0))
    draw = torch.Generator().manual_seed(1)
    clean, dropped = torch.randn(2, block.num_held, 4, generator=draw, dtype=DOUBLE)
    strategy.batching.history.rows.clear()
    block.begin(safe=False)
    sums = block.aggregate(clean, "sum")
    block.begin(safe=True)
    added = block.aggregate(dropped, "sum") - sums
    drawn = block.drawn
    ratio = drawn.in_degree("dst").double() / drawn.indptr.diff().clamp(min=1)
    assert float(ratio.max()) > 2, "few of many are drawn"
    plain = torch.zeros(drawn.num_dst, 4, dtype=DOUBLE)
    plain.index_add_(0, drawn.edge_dst, (dropped - clean)[drawn.indices.long()])
    assert halo_jobs.far(added, plain * ratio.sqrt()[:, None]) < 1e-6


@pytest.mark.parametrize("name", MODELS)
def test_sums_of_inputs_that_are_known_are_not_drawn(name: str) -> None:
    """With them a step is the same, and a batch reads one hop less."""
    found, read, edges = [], [], []
    for preprocess in (True, False):
        _, model, strategy = prepared(name, fanout=2, batch_size=5, preprocess=preprocess)
        strategy.batching.begin_epoch(model)
        for rows in strategy.batching.history.rows.values():
            rows.mul_(0.5)  # histories that are not right, or nothing could differ
        batch = strategy.batching.loader.batch(0, 0)
        read.append(batch.x.shape[0])
        edges.append(sum(block.num_edges for block in batch.blocks[1:]))
        assert (batch.blocks[0].num_edges == 0) == preprocess
        outputs = strategy.batching.batch_outputs(model, batch)
        model.zero_grad()
        outputs.square().sum().backward()  # type: ignore[no-untyped-call]
        found.append([outputs, *(parameter.grad for parameter in model.parameters())])
    assert max(halo_jobs.far(a.detach(), b.detach()) for a, b in zip(*found)) < 1e-10
    assert edges[0] == edges[1]
    assert read[0] < read[1]


def test_inputs_that_change_are_read_each_time() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, degree=6, classes=3, features=8, seed=1)
    asked: dict[str, Any] = {"strategy": {"name": "control_variate", "preprocess": True}, "epochs": 1}
    for model, options in (
        ("gcn", {"input_dropout": 0.5}),
        ("sage", {"project": True}),
        ("gcn", {"layers": 1}),
    ):
        with pytest.raises(InputError, match=r"strategy\.preprocess: needs a first layer"):
            weft.train(graph, model, **asked, **options)
        asked["strategy"]["preprocess"] = "auto"
        assert weft.train(graph, model, **asked, **options).loss > 0
        asked["strategy"]["preprocess"] = True
    for layer in ("gcn", "sage", "gin"):
        assert weft.train(graph, layer, **asked, norm="batch").loss > 0


def test_the_trial_of_a_first_layer_counts_in_nothing() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=60, degree=6, classes=3, features=8, seed=1)
    model = weft.nn.Stack(8, 3, layer="sage", hidden=8, norm="batch").eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    drawn = torch.get_rng_state()
    ControlVariate(graph, prepare=0).batching.make_loader(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not model.training
