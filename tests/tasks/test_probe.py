"""The linear probe: what a ridge regression reads off rows, the same however nodes are divided."""

import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from torch import Tensor

import weft
from weft.tasks.nodes import NodeTargets
from weft.tasks.probe import RIDGE, Probe


def labelled(y: Tensor, seed: int = 0) -> weft.Graph:
    drawn = torch.rand(len(y), generator=torch.Generator().manual_seed(seed))
    masks = {"train_mask": drawn < 0.5, "val_mask": (drawn >= 0.5) & (drawn < 0.7), "test_mask": drawn >= 0.7}
    return weft.Graph.from_edges([[0], [1]], num_nodes=len(y), y=y, **masks)


def rows_of(y: Tensor, width: int = 5) -> Tensor:
    made = torch.Generator().manual_seed(3)
    centres = torch.randn(int(y.max()) + 1, width, generator=made)
    return centres[y] + 0.8 * torch.randn(len(y), width, generator=made)


def scores(graph: weft.Graph, h: Tensor) -> dict[str, float]:
    probe = Probe.of(graph, lambda value: value)
    assert probe is not None
    return probe.scores(lambda held: h[held.places], lambda value: value)


def test_accuracy_is_that_of_a_ridge_classifier() -> None:
    y = torch.arange(400) % 4
    graph, h = labelled(y), rows_of(y)
    train = graph.train_mask
    slack = RIDGE * float(h[train].double().square().sum(0).mean())
    plain = RidgeClassifier(alpha=slack).fit(h[train].double().numpy(), y[train].numpy())
    for split, score in scores(graph, h).items():
        mask = getattr(graph, f"{split}_mask")
        expected = plain.score(h[mask].double().numpy(), y[mask].numpy())
        assert score == pytest.approx(expected, abs=1e-9), split
        assert 0.4 < score < 0.99


def test_sums_of_workers_give_what_one_process_does() -> None:
    y = torch.arange(400) % 4
    whole, h = labelled(y), rows_of(y)
    alone = Probe.of(whole, lambda value: value)
    assert alone is not None
    parts = []
    for rank in range(2):
        own = torch.arange(400) % 2 == rank
        held = {split: NodeTargets(some.rows[own[some.rows]], y, 0) for split, some in alone.targets.items()}
        parts.append(Probe(held, alone.num_classes, alone.multilabel))
    gathered: list[Tensor] = []
    for part in parts:  # what each adds to the sums of training
        part.scores(lambda held: h[held.places], lambda value: gathered.append(value.clone()) or value)  # type: ignore[func-returns-value]
    together = gathered[0] + gathered[len(gathered) // 2]
    seen: list[Tensor] = []
    alone.scores(lambda held: h[held.places], lambda value: seen.append(value.clone()) or value)  # type: ignore[func-returns-value]
    torch.testing.assert_close(together, seen[0])


def test_several_labels_are_judged_by_f1_and_numbers_by_nothing() -> None:
    y = torch.arange(300) % 3
    h = rows_of(y)
    several = torch.nn.functional.one_hot(y, 3).float()
    assert 0.3 < scores(labelled(several), h)["test"] < 1
    assert Probe.of(labelled(y.double() + 0.5), lambda value: value) is None
    assert Probe.of(weft.Graph.from_edges([[0], [1]]), lambda value: value) is None


def test_rows_that_are_all_alike_have_a_probe_too() -> None:
    y = torch.arange(100) % 2
    assert 0 <= scores(labelled(y), torch.zeros(100, 3))["test"] <= 1


def test_a_score_is_that_of_the_targets_of_all_workers() -> None:
    y = torch.arange(400) % 4
    h = rows_of(y)
    probe = Probe.of(labelled(y), lambda value: value)
    assert probe is not None
    rows = {split: len(held) for split, held in probe.targets.items()}

    def total(value: Tensor) -> Tensor:  # another worker has as many targets, of which none is right
        return value + torch.tensor([0, int(value[1])]) if value.dim() == 1 else value

    shared = probe.scores(lambda held: h[held.places], total)
    assert {*shared} == {*rows}
    for split, score in scores(labelled(y), h).items():
        assert shared[split] == pytest.approx(score / 2)


def test_the_scale_of_rows_does_not_matter() -> None:
    y = (torch.arange(400) % 10 > 6).long()  # the constant beside the rows has much to tell
    graph, h = labelled(y), rows_of(y)
    found = scores(graph, h)
    assert scores(graph, 1e3 * h) == pytest.approx(found)
    assert scores(graph, 1e-3 * h) == pytest.approx(found)
