"""Training from records takes the steps of training from samples, and reads every record once an epoch."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ranks import run_ranks
from records_jobs import numbered_graph, plain_graph, train_on_ranks, typed_graph
from torch import Tensor

import weft
from weft.cli.main import main
from weft.errors import InputError
from weft.layers.base import GraphInfo
from weft.layers.stack import Stack
from weft.pipeline.flatten import flattening as module
from weft.pipeline.flatten.flattening import flatten
from weft.samplers import Loader, NeighborSampler
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.records.batch_blocks import WholeGraph
from weft.strategies.records.record_loader import RecordFiles, RecordLoader
from weft.strategies.records.records import RecordTraining

FANOUT = [3, 2]


def stored(graph: weft.Graph, folder: Path, **options: Any) -> str:
    graph.save(folder / "g")
    flatten(folder / "g", folder / "r", **({"fanout": FANOUT} | options))
    return str(folder / "r")


def model_of(graph: weft.Graph, name: str = "sage") -> Stack:
    info = GraphInfo.of(graph)
    width = info.in_features if len(info.node_types) > 1 else info.in_features["node"]
    torch.manual_seed(0)
    return Stack(width, info.num_classes, layer=name, hidden=8, info=info)


def trained(strategy: Any, model: Stack, epochs: int = 1) -> list[Tensor]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = [strategy.epoch(model, optimizer) for _ in range(epochs)]
    strategy.close()
    return [torch.tensor(losses), *(value.clone() for value in model.state_dict().values())]


@pytest.mark.parametrize("make", [plain_graph, numbered_graph, typed_graph])
@pytest.mark.parametrize("features", ["reference", "value"])
def test_batches_are_those_of_the_sampler(make: Any, features: str, tmp_path: Path) -> None:
    graph = make()
    files = RecordFiles.open(stored(graph, tmp_path, features=features))
    ours = RecordLoader(files, WholeGraph(graph), batch_size=7, threads=0)
    theirs = Loader(NeighborSampler(graph, FANOUT), batch_size=7, threads=0)
    assert len(ours) == len(theirs)
    for step in range(len(ours)):
        one, two = ours.batch(0, step), theirs.batch(0, step)
        assert ours.count(0, step) == len(two.seeds)
        pairs = [(one.nodes, two.nodes), (one.seeds, two.seeds), (one.y, two.y)]
        for mine, given in zip(one.blocks, two.blocks, strict=True):
            for name in ("indptr", "indices", "edge_ids", "src_ids", "edge_type"):
                pairs.append((getattr(mine, name), getattr(given, name)))
            pairs.append((mine.multiplicity(), given.multiplicity()))
        x, given_x = one.x, two.x
        if isinstance(given_x, dict):
            assert x.keys() == given_x.keys()
            pairs += [(x[kind], given_x[kind]) for kind in x]
        else:
            pairs.append((x, given_x))
        for mine, given in pairs:
            assert mine is given or torch.equal(mine, given)


@pytest.mark.parametrize("make", [plain_graph, typed_graph])
def test_the_first_epoch_is_that_of_samples_bit_for_bit(make: Any, tmp_path: Path) -> None:
    graph = make()
    records = stored(graph, tmp_path)
    name = "rgcn" if make is typed_graph else "sage"
    ours = trained(RecordTraining(graph, records=records, batch_size=7), model_of(graph, name))
    theirs = trained(Sampled(graph, fanout=FANOUT, batch_size=7), model_of(graph, name))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def test_every_record_comes_once_an_epoch_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART_EDGES", 40)
    graph = plain_graph()
    files = RecordFiles.open(stored(graph, tmp_path))
    assert len(files.sizes) > 3
    orders = []
    for workers in (1, 3):
        loaders = [
            RecordLoader(files, WholeGraph(graph), batch_size=4, buffer=6, rank=rank, workers=workers)
            for rank in range(workers)
        ]
        assert len({len(loader) for loader in loaders}) == 1
        for epoch in (0, 1):
            seen = []
            for step in range(len(loaders[0])):
                found = [loader.seeds_of(epoch, step) for loader in loaders]
                assert sum(map(len, found)) == loaders[0].count(epoch, step)
                assert sum(map(len, found)) <= 4 + workers - 1  # the batch size, but for rounding
                seen += torch.cat(found).tolist()
            assert sorted(seen) == list(range(25))
            orders.append(seen)
    assert orders[0] != orders[1]
    with_threads = RecordLoader(files, WholeGraph(graph), batch_size=4, buffer=6, threads=2)
    assert torch.cat([batch.seeds for batch in with_threads]).tolist() == orders[0]


def test_a_window_before_those_in_memory_is_read_again(tmp_path: Path) -> None:
    files = RecordFiles.open(stored(plain_graph(), tmp_path))
    loader = RecordLoader(files, WholeGraph(plain_graph()), batch_size=5, buffer=5, threads=0)
    first = [loader.seeds_of(0, step).tolist() for step in range(3)]
    assert loader.seeds_of(0, 0).tolist() == first[0]  # two later windows are there
    assert sorted(loader._windows) == [(0, 0), (0, 2)]  # the last two that were asked for
    assert loader.seeds_of(0, 1).tolist() == first[1]


def test_an_epoch_that_was_left_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART_EDGES", 40)
    graph = plain_graph()
    options: dict[str, Any] = {"records": stored(graph, tmp_path), "batch_size": 4, "buffer": 6, "seed": 5}
    whole = trained(RecordTraining(graph, **options), model_of(graph), epochs=2)
    model = model_of(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    first = RecordTraining(graph, **options)
    losses = [first.epoch(model, optimizer)]
    first.epoch(model, optimizer, lambda: int(first.clock[2]) == 3)
    state = first.state()
    second = RecordTraining(graph, **options)
    second.seek(1)
    second.load_state(state)
    losses.append(second.epoch(model, optimizer))
    again = [torch.tensor(losses), *model.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(whole, again))


def test_workers_take_the_steps_of_one_process(tmp_path: Path) -> None:
    graph = plain_graph()
    records = stored(graph, tmp_path)
    whole = trained(RecordTraining(graph, records=records, batch_size=100), model_of(graph), epochs=3)
    for ranks in run_ranks(2, train_on_ranks, records):
        assert ranks["differ"] == 0.0  # between the two workers
        for ours, theirs in zip(ranks["weights"], whole[1:]):
            assert float((torch.tensor(ours) - theirs).abs().max()) <= 1e-5
        assert len(set(ranks["small"])) == 1  # steps of few records, the same loss on both
        served = ranks["served"]
        assert served[0] == pytest.approx(served["together"], rel=1e-5)  # servers without staleness
        for ours, theirs in zip(served["weights 0"], served["weights"]):
            assert np.abs(np.array(ours) - np.array(theirs)).max() <= 1e-5
        assert (
            served["state 0"] == served["state 2"] == [3] * len(served["weights"])
        )  # Adam's, of all weights
        assert served[2][-1] < served[2][0]  # some steps apart it learns, too


def test_the_command_trains_from_a_folder_of_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    stored(plain_graph(), tmp_path)
    words = ["train", "--set", "train.epochs=2", "--set", "model.hidden=8"]
    assert main([*words, "--set", "data.path=r", "--out", "one"]) == 0
    given = ["--set", "data.path=g", "--set", "strategy.name=records", "--set", "strategy.records=r"]
    assert main([*words, *given, "--set", "data.symmetrise=false", "--out", "two"]) == 0
    weights = [(Path(name) / "model.safetensors").read_bytes() for name in ("one", "two")]
    assert weights[0] == weights[1]
    capsys.readouterr()
    for more, message in (
        (["data.path=g", "strategy.name=records"], "strategy.records: expected the folder"),
        (["data.path=g", "strategy.name=records", "strategy.records=g"], "not a folder of records"),
        (["data.path=r", "model.name=gcn"], "the records are of another graph"),
        (["data.path=r", "model.layers=3"], "holds records of 2 hops, the model takes 3: set model.layers"),
        (["data.path=r", "strategy.fanout=3"], "unknown key strategy.fanout"),
    ):
        assert main([*words, *(f"--set={each}" for each in more), "--out", "no"]) == 2
        assert message in capsys.readouterr().err
        assert not Path("no").exists()


def test_records_of_something_else_are_refused(tmp_path: Path) -> None:
    graph = plain_graph()
    records = stored(graph, tmp_path, targets="all")
    with pytest.raises(InputError, match="records of 'all'; training needs"):
        RecordTraining(graph, records=records)
    flatten(tmp_path / "g", records, fanout=FANOUT, overwrite=True)
    more = graph.with_data(train_mask=torch.arange(60) < 26)
    with pytest.raises(InputError, match="holds 25 records, the graph has 26 targets to train on"):
        RecordTraining(more, records=records)
    src, dst = graph.edge_index
    turned = weft.Graph.from_edges(
        torch.stack([(src + 1) % 60, dst]), num_nodes=60, x=graph.x, y=graph.y, train_mask=graph.train_mask
    )
    with pytest.raises(InputError, match="the records are of another graph"):  # with as many of everything
        RecordTraining(turned, records=records)
    (tmp_path / "r" / "part-00000.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"part-00000\.parquet: truncated or changed, 7 bytes"):
        trained(RecordTraining(graph, records=records), model_of(graph))
    turned.save(tmp_path / "g", overwrite=True)
    with pytest.raises(InputError, match="was written anew since it was flattened"):
        RecordTraining(graph, records=records)


def test_accuracy_is_that_of_training_in_memory(tmp_path: Path) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=600, seed=1)
    records = stored(graph, tmp_path, fanout=[8, 4])
    options: dict[str, Any] = {"layers": 2, "hidden": 32, "epochs": 12, "lr": 0.01}
    found = [
        weft.train(graph, "sage", strategy={**strategy, "batch_size": 64}, **options).test_accuracy
        for strategy in ({"name": "records", "records": records}, {"name": "sampled", "fanout": [8, 4]})
    ]
    assert found[0] is not None
    assert found[1] is not None
    assert found[0] >= found[1] - 0.05
    assert np.isfinite(found).all()


def test_windows_are_shuffled_anew_in_every_epoch_on_every_worker(tmp_path: Path) -> None:
    graph = plain_graph()
    files = RecordFiles.open(stored(graph, tmp_path))
    assert len(files.sizes) == 1

    def order(epoch: int, **options: Any) -> list[int]:
        return RecordLoader(files, WholeGraph(graph), batch_size=25, **options).seeds_of(epoch, 0).tolist()

    assert sorted(order(0)) == sorted(order(1)) == list(range(25))
    assert order(0) != order(1)
    drawn = [np.argsort(order(0, buffer=6)[start : start + 6]).tolist() for start in (0, 6, 12)]
    drawn += [np.argsort(order(0, buffer=6, rank=rank, workers=2)[:6]).tolist() for rank in (0, 1)]
    assert len({tuple(places) for places in drawn[:3]}) == 3, "windows of an epoch"
    assert drawn[3] != drawn[4], "first windows of two workers"
    shares = [order(0, rank=rank, workers=2) for rank in (0, 1)]
    assert sorted(shares[0] + shares[1]) == list(range(25)), "also where workers have shares of 12 and 13"
