"""What a run does: learns, stops, keeps the best, continues bit for bit, and fails with one clear line."""

import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.config import make_recipe
from weft.errors import InputError, RecipeError, TrainingError
from weft.report.read import read_run
from weft.train.launch import run_recipe, train
from weft.train.resolve import check_precision, resolve
from weft.train.saved.checkpoint import Checkpoints
from weft.train.settings import Settings
from weft.train.trainer import Place


def after(epochs: int) -> Callable[[], bool]:
    """Return a request to stop after that many epochs."""
    count = itertools.count(1)
    return lambda: next(count) == epochs


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values())
    return all(torch.equal(a, b) for a, b in pairs)


def losses(folder: Path) -> list[float]:
    return [event["loss"] for event in weft.read_events(folder) if event["event"] == "epoch"]


RESUMED: list[dict[str, Any]] = [
    {"model": "gcn", "dropout": 0.5, "lr": 0.05, "schedule": "cosine"},
    {"model": "gat", "heads": 2, "hidden": 8, "dropout": 0.4, "weight_decay": 1e-3, "optimizer": "adamw"},
    {
        "model": "sage",
        "norm": "batch",
        "optimizer": "sgd",
        "momentum": 0.9,
        "schedule": "step",
        "schedule_every": 5,
    },
    {"model": "sage", "schedule": "plateau", "schedule_every": 1, "lr": 0.2},
    {"model": "sage", "lr": 0.1, "patience": 6, "eval_every": 2},
    {"model": "gcn", "embedding": {"width": 3}, "schedule": "cosine", "lr": 0.1},
]


@pytest.mark.parametrize(
    "settings", RESUMED, ids=lambda settings: f"{settings['model']}-{settings.get('schedule')}"
)
def test_a_stopped_run_continues_bit_for_bit(
    graph: weft.Graph, tmp_path: Path, settings: dict[str, Any]
) -> None:
    settings = {"hidden": 8, "epochs": 20, **settings}
    whole = train(graph, **settings, out=tmp_path / "whole")
    part = train(graph, **settings, out=tmp_path / "parts", stop=after(8))
    assert part.stopped == "interrupted"
    assert part.epochs == 8
    resumed = train(graph, **settings, out=tmp_path / "parts", resume=True)
    assert equal(whole.model, resumed.model)
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    assert resumed.metrics == whole.metrics
    assert (resumed.best_epoch, resumed.epochs, resumed.stopped) == (
        whole.best_epoch,
        whole.epochs,
        whole.stopped,
    )


def test_learned_rows_continue_bit_for_bit_within_an_epoch(graph: weft.Graph, tmp_path: Path) -> None:
    bare = graph.with_data(x=None)
    settings: dict[str, Any] = {"hidden": 8, "rows_optimizer": "rowwise_adagrad", "rows_lr": 0.1, "epochs": 4}
    settings |= {"schedule": "step", "schedule_every": 2, "strategy": {"name": "sampled", "batch_size": 20}}
    whole = train(bare, "sage", **settings)
    part = train(bare, "sage", **settings, out=tmp_path, stop=after(12))
    assert (part.stopped, part.epochs) == ("interrupted", 1)
    assert equal(whole.model, train(bare, "sage", **settings, out=tmp_path, resume=True).model)


def test_a_model_that_draws_from_torch_continues_bit_for_bit_too(graph: weft.Graph, tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.drop = weft.nn.Linear(8, 3), nn.Dropout(0.5)

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return blocks[0].aggregate(self.layer(self.drop(x)), "mean")  # type: ignore[no-any-return]

    whole = train(graph, Net(), epochs=12)
    train(graph, Net(), epochs=12, out=tmp_path, stop=after(5))
    assert equal(whole.model, train(graph, Net(), epochs=12, out=tmp_path, resume=True).model)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(graph: weft.Graph) -> None:
    first, again, other = (train(graph, "gcn", hidden=8, epochs=5, seed=seed) for seed in (3, 3, 4))
    assert equal(first.model, again.model)
    assert not equal(first.model, other.model)


def test_training_leaves_the_callers_random_state_alone(graph: weft.Graph) -> None:
    torch.manual_seed(7)
    before = torch.get_rng_state()
    train(graph, "sage", hidden=4, epochs=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_learns_what_a_linear_model_cannot(graph: weft.Graph) -> None:
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            return self.layer(x)  # type: ignore[no-any-return]

    linear = train(graph, Linear(), epochs=60)
    sage = train(graph, "sage", hidden=16, epochs=60)
    assert sage.test_accuracy is not None
    assert linear.test_accuracy is not None
    assert sage.test_accuracy > linear.test_accuracy + 0.05


def test_the_best_epoch_is_restored(graph: weft.Graph, tmp_path: Path) -> None:
    summary = train(graph, "sage", hidden=16, lr=0.1, epochs=40, out=tmp_path)
    epochs = [event for event in weft.read_events(tmp_path) if event["event"] == "epoch"]
    best = max(epochs, key=lambda event: (event["val"]["accuracy"], -event["val"]["loss"]))
    assert summary.best_epoch == best["epoch"]
    assert summary.val_accuracy == best["val"]["accuracy"]
    assert summary.test_accuracy == best["test"]["accuracy"]
    assert summary.epochs == 40
    model = train(graph, "sage", hidden=16, lr=0.1, epochs=summary.best_epoch, restore_best=False).model
    assert equal(model, summary.model)


def test_the_best_epoch_may_be_that_of_the_lowest_loss(graph: weft.Graph, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": 16, "lr": 0.1, "epochs": 40}
    summary = train(graph, "sage", best_by="loss", out=tmp_path, **options)
    epochs = [event for event in weft.read_events(tmp_path) if event["event"] == "epoch"]
    assert summary.best_epoch == min(epochs, key=lambda event: event["val"]["loss"])["epoch"]
    assert summary.metric == "accuracy"
    by_metric = train(graph, "sage", **options)
    assert by_metric.best_epoch != summary.best_epoch, "the two must differ here for the test to tell"
    best = read_run(tmp_path).best
    assert best is not None
    assert best.number == summary.best_epoch


def test_patience_ends_the_run(graph: weft.Graph) -> None:
    summary = train(graph, "sage", hidden=16, lr=0.1, epochs=200, patience=5)
    assert summary.stopped == "patience"
    assert summary.epochs == summary.best_epoch + 5


def test_without_validation_nodes_the_last_weights_are_kept(graph: weft.Graph) -> None:
    bare = weft.Graph.from_edges(
        graph.edge_index,
        num_nodes=300,
        x=graph.x,
        y=graph.y,
        train_mask=graph.train_mask,
        test_mask=graph.test_mask,
    )
    summary = train(bare, "sage", hidden=8, epochs=4)
    assert summary.val_accuracy is None
    assert summary.best_epoch == 4
    assert summary.test_accuracy is not None


def test_evaluation_may_be_rarer_than_epochs(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, "sage", hidden=8, epochs=7, eval_every=3, out=tmp_path)
    epochs = [event for event in weft.read_events(tmp_path) if event["event"] == "epoch"]
    assert [event["epoch"] for event in epochs if "val" in event] == [3, 6, 7]


def test_several_labels_are_judged_by_micro_f1(graph: weft.Graph) -> None:
    y = torch.nn.functional.one_hot(graph.y, 3)
    y[:, 0] = 1
    summary = train(graph.with_data(y=y), "sage", hidden=8, epochs=10)
    assert summary.metric == "micro_f1"
    assert set(summary.metrics["test"]) == {"accuracy", "micro_f1", "macro_f1", "roc_auc", "loss"}


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    graph: weft.Graph, tmp_path: Path
) -> None:
    class Breaks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = nn.Linear(8, 3), 0

        def forward(self, blocks: Any, x: Tensor) -> Tensor:
            self.calls += self.training
            return self.layer(x) * (float("nan") if self.training and self.calls == 4 else 1.0)  # type: ignore[no-any-return]

    with pytest.raises(TrainingError) as caught:
        train(graph, Breaks(), epochs=9, out=tmp_path, checkpoint_every=1)
    message = str(caught.value)
    assert "the loss became nan in epoch 4: lower train.lr (0.01)" in message
    assert "the checkpoint of epoch 3 is kept" in message
    assert "\n" not in message
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "failed"
    assert weft.read_events(tmp_path)[-1]["event"] == "error"


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (ValueError("shapes differ\nby much"), "failed", "ValueError: shapes differ by much"),
        (InputError("no features"), "failed", "no features"),
        (KeyboardInterrupt(), "interrupted", "interrupted"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_ends_a_run_is_told_in_its_folder(
    graph: weft.Graph, tmp_path: Path, error: BaseException, status: str, told: str
) -> None:
    def progress(event: dict[str, Any]) -> None:
        if event["event"] == "epoch":
            raise error

    with pytest.raises(type(error)):
        train(graph, "sage", hidden=4, epochs=3, out=tmp_path, progress=progress)
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["status"], run["error"]) == (status, told)
    last = weft.read_events(tmp_path)[-1]
    assert (last["event"], last["message"]) == ("error", told)
    assert train(graph, "sage", hidden=4, epochs=3, out=tmp_path, resume=True).epochs == 3


def test_a_run_that_cannot_tell_its_end_raises_what_ended_it(graph: weft.Graph, tmp_path: Path) -> None:
    def progress(event: dict[str, Any]) -> None:
        if event["event"] in ("epoch", "error"):
            (tmp_path / "run.json").unlink(missing_ok=True)
            (tmp_path / "run.json").mkdir(exist_ok=True)  # it can no longer be written
            raise ValueError(event["event"])

    with pytest.raises(ValueError, match="epoch"):
        train(graph, "sage", hidden=4, epochs=3, out=tmp_path, progress=progress)


def test_weights_that_are_not_finite_are_never_saved(graph: weft.Graph, tmp_path: Path) -> None:
    large = graph.with_data(x=graph.x * 1000)
    settings: dict[str, Any] = {"optimizer": "sgd", "lr": 3e38, "eval_every": 9, "checkpoint_every": 1}
    with pytest.raises(TrainingError, match=r"the weights .* are not finite after epoch 1"):
        train(large, "sage", hidden=8, epochs=9, **settings, out=tmp_path)
    assert not (tmp_path / "checkpoint" / "latest").exists()


def test_settings_of_learned_rows_are_refused_where_nobody_reads_them(graph: weft.Graph) -> None:
    with pytest.raises(RecipeError, match=r"train.rows_lr: the model has no learned rows; leave it out"):
        train(graph, "gcn", hidden=8, epochs=1, rows_lr=0.1)
    learned: dict[str, Any] = {"embedding": {"width": 3}, "rows_optimizer": "sgd", "strategy": "vertex_cut"}
    with pytest.raises(RecipeError, match=r"train.rows_optimizer: 'vertex_cut' trains learned rows as all"):
        train(graph, "gcn", hidden=8, epochs=1, **learned)


def test_learned_rows_have_a_rate_of_their_own(graph: weft.Graph) -> None:
    options: dict[str, Any] = {"hidden": 8, "embedding": {"width": 3}, "epochs": 2}
    first = train(graph, "gcn", **options, lr=1e-12).model.state_dict()
    after = train(graph, "gcn", **options, lr=1e-12, rows_lr=0.1).model.state_dict()
    moved = {name for name, value in after.items() if (value - first[name]).abs().max() > 1e-3}
    assert moved == {"encoder.embeddings.type_node.weight"}


def test_a_run_folder_is_never_written_over(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, "sage", hidden=8, epochs=2, out=tmp_path)
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(
        InputError, match=r"already holds a run; .* continue it with --resume \(in Python: resume=True\)"
    ):
        train(graph, "sage", hidden=8, epochs=2, out=tmp_path)
    assert (tmp_path / "run.json").read_bytes() == before


def test_a_finished_run_can_be_asked_for_again_and_given_more_epochs(
    graph: weft.Graph, tmp_path: Path
) -> None:
    first = train(graph, "sage", hidden=8, epochs=4, out=tmp_path)
    again = train(graph, "sage", hidden=8, epochs=4, out=tmp_path, resume=True)
    assert again.metrics == first.metrics
    longer = train(graph, "sage", hidden=8, epochs=9, out=tmp_path, resume=True)
    assert longer.epochs == 9
    assert equal(longer.model, train(graph, "sage", hidden=8, epochs=9).model)


def test_resume_to_fewer_epochs_than_are_done_is_refused(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, "sage", hidden=8, epochs=4, out=tmp_path)
    with pytest.raises(RecipeError, match=r"train\.epochs: 2 asked for, 4 are done already"):
        train(graph, "sage", hidden=8, epochs=2, out=tmp_path, resume=True)


def test_resume_with_another_recipe_is_refused_by_key(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, "sage", hidden=8, epochs=2, lr=0.01, out=tmp_path)
    with pytest.raises(RecipeError, match=r"train\.lr: 0\.01 → 0\.02"):
        train(graph, "sage", hidden=8, epochs=2, lr=0.02, out=tmp_path, resume=True)
    with pytest.raises(RecipeError, match=r"model\.hidden: 8 → 16"):
        train(graph, "sage", hidden=16, epochs=2, lr=0.01, out=tmp_path, resume=True)


def test_a_cosine_cannot_be_given_more_epochs(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, "sage", hidden=8, epochs=2, schedule="cosine", out=tmp_path)
    with pytest.raises(RecipeError, match=r"train\.epochs: 2 → 5"):
        train(graph, "sage", hidden=8, epochs=5, schedule="cosine", out=tmp_path, resume=True)


def test_a_checkpoint_of_another_model_names_the_tensors(graph: weft.Graph, tmp_path: Path) -> None:
    def net(width: int) -> nn.Module:
        made = nn.Module()
        made.layer = weft.nn.Linear(8, width)
        made.forward = lambda blocks, x: made.layer(x)  # type: ignore[method-assign]
        return made

    train(graph, net(3), epochs=2, out=tmp_path)
    with pytest.raises(InputError, match=r"is of another model: layer\.bias is \[3\], the model's is \[4\]"):
        train(graph, net(4), epochs=2, out=tmp_path, resume=True)


def test_a_built_stack_tells_its_settings(graph: weft.Graph, tmp_path: Path) -> None:
    train(graph, weft.nn.Stack(8, 3, hidden=8, layer="gat", heads=2), epochs=2, out=tmp_path)
    told = json.loads((tmp_path / "run.json").read_text())["recipe"]["model"]
    assert told["class"] == "Stack"
    assert (told["layer"], told["layers"], told["hidden"], told["heads"]) == ("gat", 2, 8, 2)
    with pytest.raises(RecipeError, match=r"model\.hidden: 8 → 16"):
        train(
            graph, weft.nn.Stack(8, 3, hidden=16, layer="gat", heads=2), epochs=2, out=tmp_path, resume=True
        )


def test_resume_where_there_is_no_run_is_refused_unless_a_launcher_restarted_it(
    graph: weft.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match=r"new holds no run to continue; .*resume=True"):
        train(graph, "sage", hidden=8, epochs=2, out=tmp_path / "new", resume=True)
    assert not (tmp_path / "new").exists()
    monkeypatch.setenv("WEFT_ATTEMPT", "1")
    assert train(graph, "sage", hidden=8, epochs=2, out=tmp_path / "new", resume=True).epochs == 2
    with pytest.raises(InputError, match="resume needs the folder"):
        train(graph, "sage", hidden=8, epochs=2, resume=True)


def test_events_of_epochs_that_are_done_again_are_dropped(graph: weft.Graph, tmp_path: Path) -> None:
    # Killed some epochs after a checkpoint, in the middle of a line.
    train(graph, "sage", hidden=8, epochs=6, checkpoint_every=4, out=tmp_path, stop=after(4))
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "epoch", "epoch": 5, "loss": 0.1, "seconds": {}}\n{"event": "epo')
    train(graph, "sage", hidden=8, epochs=6, checkpoint_every=4, out=tmp_path, resume=True)
    epochs = [event["epoch"] for event in weft.read_events(tmp_path) if event["event"] == "epoch"]
    assert epochs == [1, 2, 3, 4, 5, 6]


def test_run_folder_holds_what_was_done(graph: weft.Graph, tmp_path: Path) -> None:
    summary = train(graph, "gat", hidden=8, heads=2, epochs=3, out=tmp_path, trace=True)
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["status"] == "done"
    assert run["recipe"]["model"] == {
        "name": "gat",
        "layers": 2,
        "hidden": 8,
        "dropout": 0.5,
        "input_dropout": None,
        "norm": None,
        "residual": False,
        "jumping": None,
        "activation": "relu",
        "embedding": None,
        "heads": 2,
    }
    assert run["recipe"]["train"]["epochs"] == 3
    assert run["summary"]["test_accuracy"] == summary.test_accuracy
    assert {"python", "torch", "weft"} <= set(run["versions"])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"run.json", "events.jsonl", "checkpoint", "model.safetensors", "trace.json"}
    phases = {entry["name"] for entry in json.loads((tmp_path / "trace.json").read_text())}
    assert {"forward", "backward", "optimizer", "evaluate"} <= phases


def test_saved_weights_load_into_a_plain_stack(graph: weft.Graph, tmp_path: Path) -> None:
    summary = train(graph, "gcn", hidden=8, epochs=3, out=tmp_path)
    model = weft.nn.Stack(8, 3, layer="gcn", hidden=8)
    weft.train.load_weights(tmp_path / "model.safetensors", model)
    assert equal(model, summary.model)


def test_extra_files_need_a_run_folder(graph: weft.Graph) -> None:
    for option in ({"trace": True}, {"tensorboard": True}):
        with pytest.raises(InputError, match="needs the folder of the run"):
            train(graph, "sage", hidden=4, epochs=2, **option)  # type: ignore[arg-type]


def test_progress_sees_every_event(graph: weft.Graph) -> None:
    seen: list[dict[str, Any]] = []
    train(graph, "sage", hidden=4, epochs=2, progress=seen.append)
    kinds = [event["event"] for event in seen if event["event"] != "phase"]
    assert kinds == ["graph", "start", "epoch", "epoch", "end"]
    assert seen[1]["why"] == "one process, as no more were asked for"


@pytest.mark.parametrize("layer", ["gcn", "sage", "gat"])
@pytest.mark.parametrize("precision", ["float64", "bfloat16", "float16"])
def test_other_precisions_train_to_nearly_the_same_loss(
    graph: weft.Graph, precision: str, layer: str
) -> None:
    reference = train(graph, layer, hidden=8, epochs=5)
    other = train(graph, layer, hidden=8, epochs=5, precision=precision)  # type: ignore[arg-type]
    assert other.loss == pytest.approx(reference.loss, rel=1e-4 if precision == "float64" else 0.1)
    dtype = torch.float64 if precision == "float64" else torch.float32
    assert {value.dtype for value in other.model.parameters()} == {dtype}


def test_float16_is_refused_where_gradients_of_several_steps_meet() -> None:
    settings = Settings(precision="float16")
    check_precision(settings, {"exchange": {"name": "sampled", "p": 0.5}})
    for late, key in (
        ({"exchange": {"name": "stale", "lag": 1}}, "exchange"),
        ({"staleness": 1}, "staleness"),
    ):
        with pytest.raises(RecipeError, match=f"float16 scales the gradients of each step.* strategy.{key}"):
            check_precision(settings, late)
    recipe = {"data": {"name": "community"}, "train": {"precision": "float16"}}
    with pytest.raises(RecipeError, match="use bfloat16 or float32"):
        resolve(make_recipe({**recipe, "strategy": {"name": "halo", "exchange": "skip"}}), workers=2)


def test_a_run_in_float16_continues_with_its_scale(graph: weft.Graph, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": 8, "precision": "float16", "lr": 0.01}
    whole = train(graph, "sage", epochs=6, **options)
    train(graph, "sage", epochs=6, out=tmp_path / "run", stop=after(3), **options)
    saved = Checkpoints(tmp_path / "run" / "checkpoint").load()
    assert saved is not None
    assert saved.state["loss_scale"]["good"] == 3
    resumed = train(graph, "sage", epochs=6, out=tmp_path / "run", resume=True, **options)
    assert equal(resumed.model, whole.model)


def test_the_time_of_a_run_counts_from_where_the_user_began_to_wait(tmp_path: Path) -> None:
    recipe = make_recipe({"data": {"name": "community", "nodes": 60}, "train": {"epochs": 1}})
    waited = run_recipe(recipe, Place(out=tmp_path / "run", began=time.time() - 500)).seconds
    assert 500 < waited < 600
    more = make_recipe({"data": {"name": "community", "nodes": 60}, "train": {"epochs": 2}})
    again = run_recipe(more, Place(out=tmp_path / "run", resume=True, began=time.time() - 300)).seconds
    # it counts on from the first one's last epoch, a moment before its end
    assert 500 + 300 < again < waited + 400, "both sessions count"
