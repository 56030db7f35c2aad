"""Learned rows in buckets as users train them: the same bits on any number of workers and any buffer."""

import errno
import functools
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from bucket_jobs import TASK, run_rounds, strategy_of, trained, typed_links
from ranks import run_ranks
from safetensors.torch import load_file

import weft
from weft.cli.main import main
from weft.config import make_recipe
from weft.errors import InputError, RecipeError, TrainingError
from weft.strategies.buckets import partition_files as files
from weft.strategies.buckets.orders import oracle
from weft.strategies.buckets.run_tables import Tables
from weft.tasks import link_targets
from weft.tasks.among_all import AmongAll
from weft.tasks.scores.complex import complex_product
from weft.train.resolve import resolve

STRATEGY = {"name": "buckets", "batch": 40, "chunk": 20, "negatives": {"count": 8}}


def train(out: Path | None = None, *, epochs: int = 3, task: Any = TASK, **changes: Any) -> Any:
    names = ("resume", "stop", "seed", "optimizer", "precision", "weight_decay")
    train_keys = {key: changes.pop(key) for key in names if key in changes}
    settings = {"optimizer": "adagrad", "lr": 0.1, "epochs": epochs, "task": task, **train_keys}
    return weft.train(
        typed_links(), weft.nn.NoLayers(), strategy={**STRATEGY, **changes}, out=out, **settings
    )


def rows_of(run: Path) -> Any:
    return np.load(run / "embeddings" / "rows.npy")


def epochs_of(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == "epoch"]


def test_any_number_of_ranks_and_any_buffer_give_the_same_bits() -> None:
    expected = trained(None, 8, 2)
    assert trained(None, 8, 5) == expected
    assert run_ranks(2, trained, 8, 3) == [expected] * 2
    assert run_ranks(4, trained, 8, 2) == [expected] * 4


def test_a_rank_without_a_visit_takes_part_in_double_precision() -> None:
    expected = trained(None, 4, 2, 1, torch.float64)
    assert run_ranks(2, trained, 4, 2, 1, torch.float64) == [expected] * 2


def test_rows_learn_what_is_there(tmp_path: Path) -> None:
    done = train(tmp_path / "run", epochs=12, partitions=3, task={**TASK, "width": 16})
    held = epochs_of(tmp_path / "run")
    assert held[-1]["loss"] < 0.8 * held[0]["loss"]
    assert rows_of(tmp_path / "run").shape == (70, 16)
    assert {"mrr", "hits@10", "negatives"} <= {*done.metrics["test"]}


@pytest.mark.parametrize("score", ["dot", "distmult"])
def test_rows_are_of_the_precision_asked_for(tmp_path: Path, score: str) -> None:
    """A score without weights has none that tells the type."""
    for precision in ("float32", "float64"):
        out = tmp_path / precision
        train(out, epochs=1, partitions=2, task={**TASK, "score": score}, precision=precision)
        assert rows_of(out).dtype == precision


def test_an_epoch_tells_what_it_took_of_the_disk(tmp_path: Path) -> None:
    train(tmp_path / "run", partitions=4, epochs=1)
    told = epochs_of(tmp_path / "run")[0]["buckets"]
    assert told["swaps"] == oracle(4, 2) == 5
    assert told["bytes_written"] > 0
    assert told["bytes_read"] > 0
    assert 0 <= told["disk_wait_share"] <= 1
    assert [len(each) for each in told["visits"]] == [1] * 6


@pytest.mark.parametrize("order", ["inside_out", "outside_in", "chained", "random", "rounds"])
def test_every_order_trains_and_changes_the_result(order: str) -> None:
    assert train(order=order, partitions=5, epochs=1).loss != train(partitions=5, epochs=1).loss


def test_a_small_type_may_have_one_partition(tmp_path: Path) -> None:
    """It is in memory all the time: what is read and written are the partitions of the other, as ever."""
    options = {"partitions": {"person": 5, "thing": 1}, "order": "chained", "epochs": 2}
    for buffer in (2, 4):
        train(tmp_path / str(buffer), buffer=buffer, **options)
    told = [epochs_of(tmp_path / name) for name in ("2", "4")]
    assert (rows_of(tmp_path / "2") == rows_of(tmp_path / "4")).all()
    assert (rows_of(tmp_path / "2")[40:] != 0).any(1).all()
    assert told[0][0]["buckets"]["swaps"] > told[1][0]["buckets"]["swaps"]
    assert all(visit[-1] == 5 for visits in told[0][0]["buckets"]["visits"] for visit in visits)
    assert told[0][1]["loss"] < told[0][0]["loss"]


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": 60},
        {"chunk": 10},
        {"scale": 0.1},
        {"partitions": 2},
        {"negatives": {"count": 9}},
        {"negatives": {"count": 8, "inbatch": False}},
        {"negatives": {"count": 8, "side": "dst"}},
        {"negatives": {"count": 8, "alpha": 0.75}},
        {"negatives": {"count": 8, "exclude": "own"}},
        {"seed": 5},
    ],
    ids=str,
)
def test_each_option_changes_something(changes: dict[str, Any]) -> None:
    assert train(epochs=1, **changes).loss != train(epochs=1).loss


def test_a_run_that_stops_within_an_epoch_continues_bit_for_bit(tmp_path: Path) -> None:
    options = {"partitions": 4, "epochs": 3}
    train(tmp_path / "whole", **options)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 9  # within the second epoch

    stopped = train(tmp_path / "run", stop=stop, **options)
    assert stopped.stopped == "interrupted"
    assert stopped.epochs == 1
    train(tmp_path / "run", resume=True, **options)
    assert (rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")).all()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
    assert [each["loss"] for each in epochs_of(tmp_path / "whole")] == [
        each["loss"] for each in epochs_of(tmp_path / "run")
    ]


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow), 4]
)
def test_ranks_that_stop_within_an_epoch_are_continued_by_any_number_bit_for_bit(
    tmp_path: Path, workers: int
) -> None:
    typed_links().save(tmp_path / "graph")
    run_ranks(1, run_rounds, tmp_path / "graph", tmp_path / "whole")
    run_ranks(2, run_rounds, tmp_path / "graph", tmp_path / "run", 13)
    assert len(epochs_of(tmp_path / "run")) == 1, "stopped in the second epoch"
    run_ranks(workers, functools.partial(run_rounds, resume=True), tmp_path / "graph", tmp_path / "run")
    assert (rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")).all()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "run")]
    assert weights[0] == weights[1]
    losses = [[each["loss"] for each in epochs_of(tmp_path / name)] for name in ("whole", "run")]
    assert losses[0] == losses[1]


def test_the_best_rows_are_put_back(tmp_path: Path) -> None:
    """Too large steps spoil the rows in later epochs: those of the best one are returned."""
    done = weft.train(
        typed_links(),
        weft.nn.NoLayers(),
        strategy={**STRATEGY, "partitions": 4},
        task=TASK,
        out=tmp_path / "run",
        optimizer="adagrad",
        lr=0.5,
        epochs=6,
    )
    values = [each["val"]["mrr"] for each in epochs_of(tmp_path / "run")]
    assert done.best_epoch == 1 + int(np.argmax(values)) < 6
    assert done.metrics["val"]["mrr"] == pytest.approx(max(values))


@pytest.mark.parametrize(("restore_best", "lr", "made"), [(False, 0.1, 3), (True, 0.5, 4)])
def test_ranks_are_made_again_only_where_other_weights_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restore_best: bool, lr: float, made: int
) -> None:
    """Ranks among all nodes may take longer than an epoch: those of the last epoch are the run's."""
    asked: list[int] = []

    class Counted(AmongAll):
        def __init__(self, *args: Any, **options: Any) -> None:
            asked.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(link_targets, "AmongAll", Counted)
    done = weft.train(
        typed_links(),
        weft.nn.NoLayers(),
        strategy=STRATEGY,
        task={**TASK, "evaluate": {"name": "all", "filtered": True}},
        out=tmp_path / "run",
        optimizer="adagrad",
        lr=lr,
        epochs=3,
        restore_best=restore_best,
    )
    splits = 2  # validation and test
    assert len(asked) == made * splits
    values = [each["val"]["mrr"] for each in epochs_of(tmp_path / "run")]
    assert values[-1] < max(values)
    assert done.metrics["val"]["mrr"] == pytest.approx(max(values) if restore_best else values[-1])


def test_ranks_among_all_read_one_partition_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rising ids every piece of candidates would read some rows of all partitions."""
    asked: list[list[int]] = []
    rows_of = Tables.rows_of

    def noted(tables: Tables, ids: torch.Tensor) -> torch.Tensor:
        asked.append(np.unique(tables.files.division.places(ids.numpy())[0]).tolist())
        return rows_of(tables, ids)

    monkeypatch.setattr(Tables, "rows_of", noted)
    monkeypatch.setattr(Tables, "export", lambda *_: None)
    monkeypatch.setattr(link_targets, "PIECE", 6 * 10)  # ten rows of the 17 or 18 of a partition
    task = {**TASK, "target": TASK["target"][1:2], "evaluate": {"name": "all", "filtered": True}}
    train(tmp_path / "run", task=task, epochs=1, partitions=4)
    ends, *candidates = asked[: len(asked) // 2]
    assert ends == [0, 1, 2, 3]
    assert candidates == [[0], [1], [2], [3]], "persons alone, ten of each partition"


RECIPE = """
[data]
path = "{graph}"
[task]
name = "link_prediction"
width = 8
score = "complex"
loss = "softmax"
target = [["person", "likes", "thing"], ["person", "knows", "person"], ["thing", "beside", "thing"]]
[strategy]
name = "buckets"
partitions = 4
batch = 20
chunk = 10
negatives = {{count = 5}}
[train]
optimizer = "adagrad"
lr = 0.1
epochs = {epochs}
checkpoint_every = 1
"""


def cli(*arguments: Any, **given: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weft", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **given)


def test_a_run_of_a_recipe_answers_by_its_rows(tmp_path: Path) -> None:
    typed_links().save(tmp_path / "graph")
    (tmp_path / "recipe.toml").write_text(RECIPE.format(graph=tmp_path / "graph", epochs=1))
    run = tmp_path / "run"
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(run)]) == 0
    asked = tmp_path / "pairs.csv"
    asked.write_text("source,relation,target\n3,likes,5\n7,likes,2\n")
    command = ["infer", str(run), "--pairs", str(asked), "--out", str(tmp_path / "said")]
    assert main(command) == 0
    said = pq.read_table(tmp_path / "said" / "pairs.parquet").to_pydict()
    rows, weight = torch.from_numpy(rows_of(run)), load_file(run / "model.safetensors")["task_head.weight"]
    for place, (person, thing) in enumerate([(3, 5), (7, 2)]):
        turned = complex_product(rows[[person]], weight[:1], conjugate=False)
        assert said["score"][place] == pytest.approx(float((turned * rows[[40 + thing]]).sum()), rel=1e-5)
    assert (
        main(["infer", str(run), "--graph", str(tmp_path / "graph"), "--out", str(tmp_path / "other")]) == 2
    )


@pytest.mark.parametrize("when", [2, 7, 16])
def test_a_run_that_dies_while_writing_a_partition_continues_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
) -> None:
    """Nothing is done after the failure, as when a process is killed: what was written so far stays."""
    options = {"partitions": 4, "epochs": 3}
    train(tmp_path / "whole", **options)
    poured, count = files._pour, 0

    def failing(file: Any, part: Any) -> None:
        nonlocal count
        count += 1
        if count == when:
            file.write(b"torn")
            raise OSError(errno.ENOSPC, "No space left on device")
        poured(file, part)

    monkeypatch.setattr(files, "_pour", failing)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)  # a process that is killed tidies nothing up
    with pytest.raises(TrainingError, match="No space left on device; free some space and continue"):
        train(tmp_path / "run", **options)
    monkeypatch.undo()
    train(tmp_path / "run", resume=True, **options)
    assert (rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")).all()
    assert not [*(tmp_path / "run" / "tables").glob("*.partial")]


@pytest.mark.slow
def test_a_killed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    typed_links().save(tmp_path / "graph")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(graph=tmp_path / "graph", epochs=40))
    assert cli("train", recipe, "--out", tmp_path / "whole").returncode == 0
    command = [sys.executable, "-m", "weft", "train", str(recipe), "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + 120
        while not (tmp_path / "run" / "checkpoint" / "latest").exists() and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.05)  # wherever it is now: within a bucket, or while a partition is written
        os.kill(process.pid, signal.SIGKILL)
    (tmp_path / "run" / "tables" / "partition-00000.999999999.partial").write_bytes(b"torn")
    done = cli("train", recipe, "--out", tmp_path / "run", "--resume")
    assert done.returncode == 0, done.stderr
    assert (rows_of(tmp_path / "whole") == rows_of(tmp_path / "run")).all()
    left = sorted(path.name for path in (tmp_path / "run" / "tables").iterdir())
    assert len(left) <= 1 + 2 * 4, left
    assert not any(name.endswith("partial") for name in left)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"partitions": 31}, "30 nodes of type 'thing' are too few for 31 partitions"),
        (
            {"partitions": {"person": 4, "thing": 1}, "order": "rounds"},
            r"strategy\.partitions\.thing: its one partition is in every bucket",
        ),
        ({"partitions": {"person": 4, "thing": 3}}, r"strategy\.partitions: types that are divided have one"),
        ({"partitions": {"person": 4, "thing": 0}}, r"strategy\.partitions: expected whole numbers of"),
        ({"buffer": 1}, r"strategy\.buffer: expected a number >= 2, got 1"),
        ({"order": "backwards"}, r"strategy\.order: expected one of"),
        ({"negatives": {"count": 0, "inbatch": False}}, r"strategy\.negatives: there are none"),
        ({"negatives": {"count": 0, "alpha": 0.5}}, r"strategy\.negatives\.alpha: is that of nodes"),
        ({"negatives": {"count": 8, "weighted": True}}, r"strategy\.negatives\.weighted: only nodes"),
        (
            {"negatives": {"count": 8, "inbatch": False, "weighted": True}, "task": {**TASK, "loss": "bpr"}},
            r"strategy\.negatives\.weighted: is that of a softmax; the loss is 'bpr'",
        ),
        ({"negatives": {"counts": 3}}, r"strategy\.negatives\.counts"),
        (
            {"optimizer": "adam"},
            r"train\.optimizer: 'buckets' trains rows and relations by 'adagrad', got 'adam'",
        ),
        ({"weight_decay": 0.1}, r"train\.weight_decay: rows that are not read do not change"),
        ({"task": {**TASK, "score": "mlp"}}, r"task\.score: 'mlp' has no product"),
        ({"task": {**TASK, "negatives": "joint"}}, r"task\.negatives: 'buckets' compares with"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as raised:
        train(epochs=1, **changes)
    assert "\n" not in str(raised.value)


def test_an_optimiser_that_cannot_be_is_refused_before_anything_is_read_or_written(tmp_path: Path) -> None:
    text = RECIPE.format(graph=tmp_path / "absent", epochs=1).replace('"adagrad"', '"sgd"')
    with pytest.raises(RecipeError, match=r"train\.optimizer: 'buckets' trains .* by 'adagrad', got 'sgd'"):
        resolve(make_recipe(tomllib.loads(text)))


def test_a_task_that_is_not_of_links_is_refused() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=30, classes=2)
    with pytest.raises(RecipeError, match=r"task\.name: 'buckets' learns rows from links"):
        weft.train(graph, weft.nn.NoLayers(), strategy=STRATEGY, task="unsupervised", optimizer="adagrad")


def test_a_model_of_layers_is_refused() -> None:
    with pytest.raises(RecipeError, match="'buckets' learns a row for each node and has no layers"):
        weft.train(typed_links(), "sage", strategy=STRATEGY, task=TASK, optimizer="adagrad", epochs=1)


def test_too_few_partitions_for_workers_are_refused() -> None:
    graph = typed_links()
    with pytest.raises(InputError, match="2 workers train buckets without a partition in common"):
        weft.train(
            graph,
            weft.nn.NoLayers(),
            workers=2,
            strategy={**STRATEGY, "partitions": 3},
            task=TASK,
            optimizer="adagrad",
            epochs=1,
        )


def test_rows_without_a_folder_leave_nothing_behind() -> None:
    found, strategy = strategy_of(None, epochs=1, partitions=3)
    folder = strategy.layout.tables.files.folder
    assert folder.is_dir()
    strategy.close()
    assert not folder.exists()
    assert torch.tensor(found["rows"]).isfinite().all()


def test_all_nodes_are_candidates_where_that_is_asked_for() -> None:
    for given, named in (
        ({}, r"strategy\.chunk"),
        ({"alpha": 0.5}, r"negatives\.alpha"),
        ({"inbatch": True}, r"negatives\.inbatch"),
    ):
        with pytest.raises(RecipeError, match=named):
            train(epochs=1, negatives={"count": "all", **given})
    strategy = {"name": "buckets", "batch": 40, "negatives": {"count": "all"}}
    settings: dict[str, Any] = {"optimizer": "adagrad", "lr": 0.1, "task": TASK, "strategy": strategy}
    first, last = (weft.train(typed_links(), weft.nn.NoLayers(), epochs=n, **settings).loss for n in (1, 8))
    assert last < 0.97 * first < 0.97 * np.log(41)  # at first chance among the nodes of a type
