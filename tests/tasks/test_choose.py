"""Which task a run has: the one that is named, or the one that the labels suggest."""

import pytest
import torch

import weft
from weft.errors import GraphError, RecipeError
from weft.graph.parts.shard import make_shards
from weft.strategies.local import LocalGraph
from weft.tasks.choose import TaskChoice, known_metrics, usual_task


def labelled(y: object) -> weft.Graph:
    return weft.Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, y=y, train_mask=torch.tensor([True] * 3))


@pytest.mark.parametrize(
    ("y", "name"),
    [
        ([0, 1, 1], "node_classification"),
        (torch.eye(3), "node_multilabel"),
        (None, "node_classification"),
        ([0.5, -2.5, float("nan")], "node_regression"),
        ([-30.0, 5.0, 12.0], "node_regression"),
    ],
)
def test_labels_suggest_a_task(y: object, name: str) -> None:
    assert usual_task(labelled(y)).name == name


def test_options_are_checked_before_any_data_and_kept_as_they_were_given() -> None:
    section = {"name": "node_classification", "weights": "balanced", "loss": "cross_entropy"}
    chosen = TaskChoice.of(section)
    assert {**chosen.to_dict(), **section} == chosen.to_dict()
    assert TaskChoice.of(chosen.to_dict()) == chosen
    assert chosen.make(labelled([0, 1, 0])).name == "node_classification"
    assert TaskChoice.of({}).to_dict() == {"name": "auto"}


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"name": 3}, r"task\.name: expected a string, got 3"),
        ({"smoothing": 0.1}, r"task\.smoothing: name the task that it is an option of: task\.name"),
        ({"name": "node_classification", "loss": 1}, r"task\.loss: expected a name, .* got 1"),
        (
            {"name": "node_classification", "loss": {"name": "cross_entropy", "k": 1}},
            "'cross_entropy' has no",
        ),
        ({"name": "link_prediction", "loss": {"name": "margin", "k": 1}}, r"task\.loss.*k"),
        ({"name": "link_prediction", "loss": {"margin": 1.0}}, r"task\.loss: expected a name, or a table"),
        ({"name": "node_classification", "loss": "bcee"}, r"task\.loss: .*expected one of .*cross_entropy"),
        ({"name": "node_classification", "smooth": 0.1}, r"task\.smooth"),
    ],
)
def test_mistakes_are_one_line_with_their_key(section: dict[str, object], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        TaskChoice.of(section)


def test_a_metric_may_be_that_of_the_task_or_ones_own() -> None:
    chosen = TaskChoice.of({"name": "node_classification"})
    chosen.check_names("my.module:loss", "sure", {"sure": None})
    with pytest.raises(RecipeError, match=r"train\.metric: did you mean 'accuracy'"):
        chosen.check_names("auto", "acuracy", {})


def test_every_metric_of_every_task_is_known_once() -> None:
    names = known_metrics()
    assert len(names) == len({*names})
    assert {"accuracy", "roc_auc", "mae", "mrr"} <= {*names}


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (
            [0, 10**8, 1],
            r"100,000,000 at node 1, which is more .* task\.name = 'node_regression' .* numpy\.unique",
        ),
        ([0.0, float("nan"), 70_000.0], r"70,000 at node 2"),
        ([0.0, float("nan"), 3.0], r"nan at node 1 and whole numbers elsewhere"),
    ],
)
def test_whole_numbers_that_may_be_wrong_classes_are_not_guessed(y: list[float], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        usual_task(labelled(y))
    assert TaskChoice("node_regression").make(labelled(y)).name == "node_regression"


def test_a_worker_does_not_judge_by_its_own_numbers_alone() -> None:
    graph = labelled([0.0, float("nan"), 0.5])
    (part, _) = make_shards(graph, torch.tensor([0, 0, 1]))
    assert usual_task(LocalGraph(part)).name == usual_task(graph).name == "node_regression"
