"""The sampled strategy: steps of the whole graph at its exact point, the same steps however it is run."""

import uuid
from pathlib import Path
from typing import Any

import halo_jobs
import numpy as np
import pytest
import sampled_jobs
import torch
from ranks import run_ranks
from torch import Tensor, nn

import weft
from weft.cli.main import main
from weft.errors import GraphError, InputError, RecipeError
from weft.events import read_events
from weft.samplers import NeighborSampler
from weft.stores.cached import CachedStore, best
from weft.stores.memory import MemoryStore
from weft.stores.rankers import frequency
from weft.stores.shared import SHM, SharedStore
from weft.strategies.base import strategies
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.single import Single
from weft.train.model import adapt

OPTIONS: dict[str, Any] = {"name": "sampled", "fanout": [3, 2], "batch_size": 16}


@pytest.fixture(scope="module")
def graph() -> weft.Graph:
    return weft.datasets.open_dataset(name="community", nodes=150, degree=8, classes=3, features=8, seed=1)


@pytest.mark.parametrize("name", [name for name in halo_jobs.MODELS if name != "sage mean"])
def test_all_edges_and_one_batch_are_a_step_on_the_whole_graph(name: str) -> None:
    for kind, dtype in halo_jobs.cases(name):
        graph = adapt(halo_jobs.graph_of(kind), halo_jobs.MODELS[name][0]).to(dtype=dtype)
        whole = halo_jobs.trained(Single(graph, seed=3), halo_jobs.model_of(graph, name, dtype))
        strategy = Sampled(graph, seed=3, fanout=-1, batch_size=10**6, prepare=0)
        found = halo_jobs.trained(strategy, halo_jobs.model_of(graph, name, dtype))
        bound = 1e-5 if dtype == torch.float32 else 1e-10
        # What no row of a batch reads has no gradient, where in the whole graph it is zero.
        held = {what: v for what, v in whole.items() if v.any() or not what.startswith("gradient")}
        far = {what: halo_jobs.far(found[what], value) for what, value in held.items()}
        assert max(far.values()) <= bound, (kind, dtype, far)


@pytest.mark.parametrize(
    ("size", "share"),
    [(2, 2), *(pytest.param(size, 1, marks=pytest.mark.slow) for size in (2, 4))],
    ids=["2", "2-whole", "4-whole"],
)
def test_any_number_of_ranks_takes_the_steps_of_one_process(size: int, share: int) -> None:
    for wrong in run_ranks(size, sampled_jobs.equal_to_one_process, share):
        assert wrong == []


def test_neighbourhoods_that_all_hold_are_asked_of_nobody_and_change_nothing(graph: weft.Graph) -> None:
    for wrong in run_ranks(2, sampled_jobs.kept_near):
        assert wrong == []
    with pytest.raises(RecipeError, match=r"strategy\.replicate: one process holds every neighbourhood"):
        weft.train(graph, "sage", strategy={**OPTIONS, "replicate": 0.5}, epochs=1)
    for given, message in (({"hop": 2}, r"strategy\.replicate\.hop"), (0.0, r"strategy\.replicate")):
        with pytest.raises(RecipeError, match=message):
            weft.train(graph, "sage", strategy={**OPTIONS, "replicate": given}, epochs=1)
    with pytest.raises(RecipeError, match="samplers hold the whole graph and ask nobody"):
        weft.train(graph, "sage", strategy={**OPTIONS, "replicate": 0.5, "samplers": 1}, epochs=1)


def test_closed_parts_are_for_workers_that_hold_their_features(graph: weft.Graph) -> None:
    with pytest.raises(RecipeError, match=r"strategy\.closed: one process holds the whole graph"):
        weft.train(graph, "sage", strategy={**OPTIONS, "closed": True}, epochs=1)
    for more in ({"store": "memory"}, {"samplers": 1}, {"replicate": 0.5}, {"temporal": True}):
        with pytest.raises(RecipeError, match=f"strategy.{next(iter(more))}: with closed = true"):
            weft.train(graph, "sage", strategy={**OPTIONS, "closed": True, **more}, epochs=1)


@pytest.mark.slow
def test_the_command_trains_on_self_reliant_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "--set=data.nodes=150", "--set=train.epochs=3", "--set=model.hidden=8"]
    words += ["--set=strategy.name=sampled", "--set=strategy.fanout=[3,2]", "--set=strategy.batch_size=16"]
    cut = '--set=strategy.partitioner={name="selfreliant", hops=2}'
    assert main([*words, "--out", "one"]) == 0
    assert main([*words, cut, "--workers", "2", "--out", "two"]) == 0
    one, two = (read_events(Path(run)) for run in ("one", "two"))
    losses = [[event["loss"] for event in events if event["event"] == "epoch"] for events in (one, two)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    (told,) = [event for event in two if event["event"] == "closure"]
    assert 0 < told["replication"] <= 2
    sent = {
        volume["kind"]
        for event in two
        if event["event"] == "traffic" and event["epoch"] > 1
        for volume in event["volumes"]
    }
    assert not sent & {"features", "sample", "closure"}


def test_parts_in_one_process_take_the_same_steps(graph: weft.Graph) -> None:
    losses = [
        weft.train(graph, "sage", strategy={**OPTIONS, **parts}, epochs=3, hidden=8).loss
        for parts in ({}, {"parts": 3, "partitioner": "range"})
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_threads_do_not_change_a_run(graph: weft.Graph) -> None:
    losses = {
        weft.train(graph, "sage", strategy={**OPTIONS, "prepare": threads}, epochs=2, hidden=8).loss
        for threads in (0, 1, 3)
    }
    assert len(losses) == 1


def test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit(graph: weft.Graph, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"strategy": OPTIONS, "epochs": 4, "hidden": 8, "eval_every": 4}
    whole = weft.train(graph, "sage", **settings, out=tmp_path / "whole")
    asked = iter(range(100))
    cut = weft.train(graph, "sage", **settings, out=tmp_path / "cut", stop=lambda: next(asked) == 7)
    assert cut.stopped == "interrupted"
    (saved,) = (tmp_path / "cut" / "checkpoint").glob("epoch-*")
    assert saved.name.count("-") == 2, "between two epochs"
    rest = weft.train(graph, "sage", **settings, out=tmp_path / "cut", resume=True)
    assert rest.loss == whole.loss
    for name, value in whole.model.state_dict().items():
        assert torch.equal(rest.model.state_dict()[name], value), name


def test_events_tell_the_way_of_batches(graph: weft.Graph, tmp_path: Path) -> None:
    weft.train(graph, "sage", strategy=OPTIONS, epochs=1, hidden=8, out=tmp_path / "run")
    (event,) = [each for each in read_events(tmp_path / "run") if each["event"] == "epoch"]
    batches = event["batches"]
    assert set(batches["seconds"]) == {"prepare", "wait", "transfer", "compute"}
    train = int(graph.train_mask.sum())
    assert batches["steps"] == -(-train // 16)
    assert batches["nodes"] >= train
    assert {"wait", "forward", "backward", "optimizer"} <= set(event["seconds"])


def test_evaluation_on_samples_of_all_edges_is_exact(graph: weft.Graph) -> None:
    found = [
        weft.train(graph, "sage", strategy={**OPTIONS, "evaluate": how}, epochs=1, hidden=8).metrics
        for how in ("exact", [-1, -1], [1, 1])
    ]
    assert found[1]["val"] == pytest.approx(found[0]["val"], rel=1e-4)
    assert found[2]["val"]["loss"] != pytest.approx(found[0]["val"]["loss"], rel=1e-4)


def test_other_samplers_draw_too(graph: weft.Graph) -> None:
    sampler = {"name": "labor", "iterations": 1}
    done = weft.train(graph, "gcn", strategy={**OPTIONS, "sampler": sampler}, epochs=2, hidden=8)
    assert done.strategy == "sampled"


def test_what_cannot_be_is_refused_by_name(graph: weft.Graph) -> None:
    def train(**options: Any) -> None:
        weft.train(graph, "sage", strategy={**OPTIONS, **options}, epochs=1, layers=2)

    with pytest.raises(InputError, match=r"strategy\.fanout: the model takes 2 hops, \[5\] are 1"):
        train(fanout=[5])
    with pytest.raises(InputError, match=r"strategy\.evaluate: the model takes 2 hops"):
        train(evaluate=[5, 5, 5])
    with pytest.raises(RecipeError, match="got -2"):
        train(fanout=[-2, 1])
    with pytest.raises(RecipeError, match=r"strategy\.batch_size"):
        train(batch_size=0)
    with pytest.raises(RecipeError, match=r"strategy\.sampler\.speed"):
        train(sampler={"name": "neighbor", "speed": 1})
    with pytest.raises(InputError, match="iterations: they need all rows of a hop"):
        train(sampler={"name": "labor", "iterations": 1}, parts=2, partitioner="range")
    with pytest.raises(RecipeError, match=r"strategy\.fanout: no relation 'likes'; the graph has: node"):
        train(fanout={"likes": [2, 2]})
    with pytest.raises(RecipeError, match=r"strategy\.fanout: edge: a fanout is a number of edges.* got -2"):
        train(fanout={"edge": [-2, 2]})
    with pytest.raises(RecipeError, match="expected a list, one fanout a hop, for 'edge'; got 2"):
        train(fanout={"edge": 2})
    with pytest.raises(InputError, match=r"strategy\.fanout: the model takes 2 hops"):
        train(fanout={"edge": [2, 2, 2]})


def typed_recipe(folder: Path, fanout: str) -> Path:
    """Write a graph of three relations, and a recipe for it."""
    made = torch.Generator().manual_seed(0)

    def links(sources: int, targets: int) -> torch.Tensor:
        return torch.stack([torch.randint(count, (200,), generator=made) for count in (sources, targets)])

    edges = {
        ("author", "writes", "paper"): links(20, 40),
        ("paper", "cites", "paper"): links(40, 40),
        ("paper", "by", "author"): links(40, 20),
    }
    papers: dict[str, Any] = {"x": torch.rand(40, 4, generator=made), "y": [0, 1] * 20}
    for turn, name in enumerate(("train_mask", "val_mask", "test_mask")):
        papers[name] = [place % 3 == turn for place in range(40)]
    authors = {"x": torch.rand(20, 3, generator=made)}
    weft.Graph.from_types({"author": authors, "paper": papers}, edges).save(folder / "graph")
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'[data]\npath = "{folder / "graph"}"\n[model]\nname = "rgcn"\nhidden = 8\n'
        f'[strategy]\nname = "sampled"\nbatch_size = 5\nfanout = {fanout}\n[train]\nepochs = 2\n'
    )
    return recipe


def test_a_recipe_has_fanouts_for_each_relation(tmp_path: Path) -> None:
    losses = {}
    for name, fanout in (
        (
            "full",
            '{"author writes paper" = [3, 2], "paper cites paper" = [1, 0], "paper by author" = [0, 4]}',
        ),
        ("short", "{writes = [3, 2], cites = [1, 0], by = [0, 4]}"),
        ("other", "{writes = [3, 2], cites = [1, 2], by = [0, 4]}"),
    ):
        (tmp_path / name).mkdir()
        recipe = typed_recipe(tmp_path / name, fanout)
        assert main(["train", str(recipe), "--out", str(tmp_path / name / "run")]) == 0
        events = read_events(tmp_path / name / "run")
        losses[name] = [each["loss"] for each in events if each["event"] == "epoch"]
    assert losses["full"] == losses["short"] != losses["other"]
    given: Any = {"writes": [3, 2], "cites": [1, 0], "by": [0, 4]}
    strategy = Sampled(weft.load(tmp_path / "full" / "graph"), fanout=given)
    sampler: Any = strategy.batching.neighbours.sampler(strategy.batching.fanout)
    assert sampler.fanout.tolist() == [[3, 1, 0], [2, 0, 4]]


@pytest.mark.parametrize(("name", "kind"), [("sage", "directed"), ("gcn", "hub"), ("rgcn", "typed")])
def test_no_run_by_time_sees_what_comes_after_its_seeds(name: str, kind: str, tmp_path: Path) -> None:
    found = {}
    for later in (0, 5):
        folder = tmp_path / f"graph{later}"
        sampled_jobs.timed_graph(kind, later).save(folder)
        for temporal in ("true", "false"):
            options = [f"data.path={folder}", f"model.name={name}", "model.hidden=8", "train.epochs=2"]
            options += ["strategy.name=sampled", "strategy.fanout=[4,3]", "strategy.batch_size=6"]
            options += [f"strategy.temporal={temporal}", "strategy.prepare=1"]
            run = tmp_path / f"run{later}{temporal}"
            words = [word for option in options for word in ("--set", option)]
            assert main(["train", *words, "--out", str(run)]) == 0
            kept = [each for each in read_events(run) if each["event"] in ("epoch", "evaluate", "done")]
            found[later, temporal] = [(each.get("loss"), each.get("metrics")) for each in kept]
    assert found[0, "true"] == found[5, "true"]
    assert found[0, "false"] != found[5, "false"], "there was something to see"
    assert found[0, "true"] != found[0, "false"]


def test_what_times_need_is_refused_in_one_line(graph: weft.Graph) -> None:
    timed = sampled_jobs.timed_graph("directed")
    for given, options, message in (
        (graph, {}, r"strategy\.temporal: the graph has no edge data 'time'"),
        (timed.with_data(time=None), {}, r"the graph has no node data 'time' of 'node'"),
        (
            timed.with_data(time=[torch.nan] * timed.num_nodes),
            {},
            "the time of seed 0 is not a finite number",
        ),
        (timed, {"sampler": "labor"}, r"strategy\.temporal: .* without strategy\.sampler = 'labor'"),
        (timed, {"samplers": 1}, r"strategy\.temporal: .* without strategy\.samplers"),
    ):
        strategy = {**OPTIONS, **options, "temporal": True}
        with pytest.raises((RecipeError, GraphError), match=message):
            weft.train(given, "sage", strategy=strategy, epochs=1)


@pytest.mark.parametrize("unknown", ["likes", "author likes paper"])
def test_a_recipe_with_an_unknown_relation_is_refused_in_one_line(
    unknown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = typed_recipe(tmp_path, f'{{"{unknown}" = [3, 2]}}')
    assert main(["train", str(recipe), "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"strategy.fanout: no relation '{unknown}'; the graph has: author writes paper" in told


@pytest.mark.parametrize(
    "strategy", [OPTIONS, {"name": "clustered", "clusters": 4, "together": 2, "partitioner": "range"}]
)
def test_features_in_a_store_give_the_same_run(strategy: dict[str, Any], graph: weft.Graph) -> None:
    stored = graph.with_data(x=MemoryStore(graph.x))
    runs = [weft.train(each, "sage", strategy=strategy, epochs=2, hidden=8) for each in (graph, stored)]
    assert runs[0].loss == runs[1].loss
    assert runs[1].metrics["val"] == pytest.approx(runs[0].metrics["val"], rel=1e-5)


def test_a_model_that_does_not_fit_leaves_no_folder(graph: weft.Graph, tmp_path: Path) -> None:
    for name, fanout in (("sampled", [3, 2]), ("control_variate", [3]), ("control_variate", [3, 2, 2])):
        strategy = {"name": name, "fanout": fanout}
        with pytest.raises(InputError, match="the model takes 3 hops"):
            weft.train(graph, "sage", layers=3, strategy=strategy, epochs=1, out=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("layers", "drawn"), [(1, [15]), (2, [15, 10]), (4, [15, 10, 5, 5])])
def test_by_default_there_is_a_fanout_for_each_hop(graph: weft.Graph, layers: int, drawn: list[int]) -> None:
    options: dict[str, Any] = {"layers": layers, "hidden": 4, "epochs": 1, "lr": 0.1}
    found = weft.train(graph, "sage", strategy="sampled", **options)
    given = weft.train(graph, "sage", strategy={"name": "sampled", "fanout": drawn}, **options)
    assert found.loss == given.loss


def test_a_recipe_names_the_store_of_features(graph: weft.Graph, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", graph.x.half().numpy())
    bare = graph.with_data(x=None)
    kept = graph.with_data(x=graph.x.half().float())
    whole = weft.train(kept, "sage", strategy=OPTIONS, epochs=2, hidden=8)
    path = str(tmp_path / "x.npy")
    for given, store in [
        (kept, "memory"),
        (kept, {"name": "memory", "storage": "float16"}),
        (bare, {"name": "mmap", "path": path}),
        (bare, {"name": "cached", "path": path, "capacity": 0.5, "ranker": "frequency"}),
    ]:
        out = tmp_path / str(store).translate({ord(c): None for c in "{}': /."})[:40]
        run = weft.train(given, "sage", strategy={**OPTIONS, "store": store}, epochs=2, hidden=8, out=out)
        assert run.loss == whole.loss, store
        assert run.metrics["val"] == pytest.approx(whole.metrics["val"], rel=1e-5), store
        *_, event = [each for each in read_events(out) if each["event"] == "epoch"]
        read = event["batches"]["store"]
        assert read["rows"] == event["batches"]["nodes"], store
        assert (read["hit_rate"] > 0.4) == ("cached" in str(store)), store
        assert 0 < run.batch_wait_share < 1


def test_each_node_type_has_a_store(tmp_path: Path) -> None:
    graph = halo_jobs.graph_of("typed")
    path = {kind: str(tmp_path / f"{kind}.npy") for kind in ("paper", "author")}
    for kind, file in path.items():
        np.save(file, graph.node_data[kind]["x"].numpy())
    bare = graph.with_data(x=dict.fromkeys(path))
    strategy = {"name": "sampled", "fanout": [3, 2], "batch_size": 4}
    settings: dict[str, Any] = {"epochs": 2, "hidden": 4}
    whole = weft.train(graph, "rgcn", strategy=strategy, **settings)
    for given, store in [
        (graph, "memory"),
        (graph, {"name": "cached", "capacity": 0.5}),
        (graph, {"name": "cached", "capacity": 9, "ranker": "frequency"}),
        (bare, {"name": "mmap", "path": path}),
        (bare, {"name": "cached", "path": path, "capacity": 0.4, "ranker": "importance"}),
    ]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        run = weft.train(given, "rgcn", strategy={**strategy, "store": store}, **settings, out=out)
        assert run.loss == whole.loss, store
        assert run.metrics["val"] == pytest.approx(whole.metrics["val"], rel=1e-5)
        *_, event = [each for each in read_events(out) if each["event"] == "epoch"]
        read = event["batches"]["store"]
        assert 0 < read["rows"] <= event["batches"]["nodes"], "one type has no features"
        assert (read["hit_rate"] > 0.2) == ("cached" in str(store)), store
    for wrong, message in [
        ({"name": "mmap", "path": path["paper"]}, r"store\.path: the graph has several node types"),
        ({"name": "mmap", "path": {"editor": path["paper"]}}, r"store\.path: no node type 'editor'"),
    ]:
        with pytest.raises(RecipeError, match=message):
            weft.train(bare, "rgcn", strategy={**strategy, "store": wrong}, **settings)


def test_fewer_bits_change_a_run_a_little(graph: weft.Graph) -> None:
    settings: dict[str, Any] = {"epochs": 2, "hidden": 8}
    store = {"name": "memory", "storage": "int8"}
    for strategy in (OPTIONS, {"name": "clustered", "clusters": 4, "together": 2, "partitioner": "range"}):
        whole = weft.train(graph, "sage", strategy=strategy, **settings)
        coarse = weft.train(graph, "sage", strategy={**strategy, "store": store}, **settings)
        assert coarse.loss != whole.loss
        assert coarse.loss == pytest.approx(whole.loss, rel=0.05)


def test_wrong_stores_are_refused_before_anything_is_read(graph: weft.Graph) -> None:
    for store, message in [
        ("memroy", "did you mean 'memory'"),
        ({"name": "mmap"}, r"store\.path"),
        ({"name": "cached", "ranker": "luck"}, "no ranker .luck."),
        ({"name": "memory", "path": "x.npy"}, r"unknown key strategy\.store\.path"),
    ]:
        with pytest.raises(InputError, match=message):
            weft.train(graph, "sage", strategy={**OPTIONS, "store": store}, epochs=1)


def test_a_closed_strategy_holds_no_shared_store(graph: weft.Graph) -> None:
    name = f"test-{uuid.uuid4().hex}"
    for strategy in ("sampled", "clustered"):
        made = SharedStore(name, graph.x)
        held = strategies[strategy](graph, store={"name": "shared", "store": name})  # type: ignore[call-arg]
        made.close()
        assert list(SHM.glob(f"*{name}*"))
        held.close()
        assert not list(SHM.glob(f"*{name}*"))


@pytest.mark.parametrize(
    ("layers", "options", "fanout"),
    [
        (1, {}, [15]),
        (2, {"fanout": 1}, [1, 1]),
        (2, {"fanout": [3, 2], "sampler": {"replace": True}}, [3, 2]),
    ],
)
def test_a_cache_by_frequency_counts_what_the_model_reads(
    graph: weft.Graph, layers: int, options: dict[str, Any], fanout: list[int]
) -> None:
    store = {"name": "cached", "capacity": 0.2, "ranker": "frequency"}
    strategy = Sampled(graph, batch_size=8, store=store, **options)
    strategy.batching.begin_epoch(weft.nn.Stack(8, 3, layers=layers))
    cache = strategy.graph.x
    assert isinstance(cache, CachedStore)
    drawn = NeighborSampler(graph, fanout, **options.get("sampler", {}))
    expected = best(frequency(drawn, batch_size=8), 30)
    assert torch.equal((cache.place >= 0).nonzero().flatten(), expected)
    usual = best(frequency(NeighborSampler(graph, [15, 10, 5]), batch_size=8), 30)
    assert not torch.equal(expected, usual), "or the test could not tell"


def test_a_cache_that_nobody_reads_is_refused(graph: weft.Graph) -> None:
    with pytest.raises(RecipeError, match=r"strategy\.store: samplers hold the whole graph"):
        weft.train(graph, "sage", strategy={**OPTIONS, "store": "cached", "samplers": 1}, epochs=1)


class Failing(nn.Module):
    """Fails where it is evaluated."""

    hops = 1

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 3))

    def forward(self, blocks: Any, x: Tensor) -> Tensor:
        raise RuntimeError("out of memory")


def test_an_evaluation_that_fails_leaves_no_clock_on_the_graph() -> None:
    graph = halo_jobs.graph_of("directed")
    with pytest.raises(RuntimeError, match="out of memory"):
        Sampled(graph, fanout=-1, prepare=0).evaluate(Failing(), {})
    assert graph.block().clock is None
