"""Settings of a run that cannot be are refused with their key."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.node_classification import NodeClassification
from weft.train.settings import Settings, check_validation, choose_device

NODES = NodeClassification()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"momentum": 0.9}, r"train\.momentum: 'adam' takes none; use optimizer = 'sgd'"),
        ({"metrics": {"accuracy": "a:b"}}, r"train\.metrics\.accuracy: weft has that name already"),
        ({"metrics": {"mrr": "a:b"}}, r"train\.metrics\.mrr: weft has that name already"),
        ({"metrics": {"loss": "a:b"}}, r"train\.metrics\.loss: weft has that name already"),
        (
            {"metrics": {"mine": "function"}},
            r"train\.metrics\.mine: expected a function as 'module:function'",
        ),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        Settings(**settings)  # type: ignore[arg-type]


def test_momentum_is_for_sgd() -> None:
    assert Settings(optimizer="sgd", momentum=0.9).momentum == 0.9


@pytest.mark.parametrize(
    ("settings", "key"), [({"patience": 3}, "patience"), ({"schedule": "plateau"}, "schedule")]
)
def test_what_goes_by_validation_needs_it(settings: dict[str, object], key: str) -> None:
    asked = Settings(**settings)  # type: ignore[arg-type]
    check_validation(asked, ["train", "val"], NODES)
    check_validation(Settings(), ["train"], NODES)
    with pytest.raises(RecipeError, match=rf"train\.{key}: goes by validation targets.* some: val_mask"):
        check_validation(asked, ["train", "test"], NODES)
    with pytest.raises(RecipeError, match=r"give some: task\.split"):
        check_validation(asked, ["train"], LinkPrediction())


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_device_that_is_not_there_is_refused() -> None:
    assert choose_device("auto") == choose_device("cpu") == torch.device("cpu")
    for name, said in (
        ("abacus", "expected auto, cpu, cuda or cuda:N"),
        ("cuda:1", "this machine has no CUDA devices, use 'cpu'"),
        ("meta", "is not supported; use 'cpu' or 'cuda'"),
        ("cpu:1", "is not supported"),
    ):
        with pytest.raises(RecipeError, match=rf"train\.device: .*{said}"):
            choose_device(name)


@pytest.mark.parametrize("asked", [{"metric": "macro_f1"}, {"best_by": "loss"}])
def test_the_best_epoch_by_a_name_needs_validation_targets(asked: dict[str, str]) -> None:
    with pytest.raises(RecipeError, match=rf"train\.{next(iter(asked))}: goes by validation targets"):
        check_validation(Settings(**asked), ["train", "test"], NODES)  # type: ignore[arg-type]
    check_validation(Settings(**asked, restore_best=False), ["train"], NODES)  # type: ignore[arg-type]


def test_a_run_without_validation_or_test_targets_says_so_once() -> None:
    edges = [[0, 1, 2, 3], [1, 2, 3, 0]]
    train = torch.tensor([True, True, False, False])
    graph = weft.Graph.from_edges(edges, x=torch.eye(4), y=[0, 1, 0, 1], train_mask=train)
    with pytest.warns(weft.DataNote) as told:
        weft.train(graph, "gcn", hidden=2, epochs=1)
    assert [str(note.message) for note in told] == [
        "no validation targets: the weights of the last epoch are kept; no test targets: the end of the run "
        "is not tested"
    ]
    links = {"name": "link_prediction", "split": {"val": 0.0, "test": 0.4}}
    with pytest.warns(
        weft.DataNote, match=r"^no validation targets: the weights of the last epoch are kept$"
    ):
        weft.train(graph, "gcn", hidden=2, epochs=1, task=links)


def test_a_process_that_was_forked_after_a_gpu_began_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    for name in ("auto", "cuda", "cuda:1"):
        with pytest.raises(RecipeError, match=r"train\.device: this process was forked .* start it by spawn"):
            choose_device(name)
    assert choose_device("cpu").type == "cpu"
