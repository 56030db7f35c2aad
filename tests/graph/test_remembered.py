"""What a block remembers: the aggregate of its constant input, and nothing else."""

import weakref
from typing import Any

import pytest
import torch

from weft import kernels
from weft.graph import Graph, SparseFeatures

EDGES = [[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every call of spmm, as it happens."""
    made: list[Any] = []
    spmm = kernels.spmm

    def counted(*args: Any, **options: Any) -> Any:
        made.append(args)
        return spmm(*args, **options)

    monkeypatch.setattr(kernels, "spmm", counted)
    return made


@pytest.fixture
def graph() -> Graph:
    return Graph.from_edges(EDGES, x=torch.arange(6.0).reshape(3, 2))


def test_aggregate_of_the_graphs_features_is_computed_once(graph: Graph, calls: list[Any]) -> None:
    block = graph.block()
    assert block.constant(graph.x)
    first = block.aggregate(graph.x, "mean")
    assert block.aggregate(graph.x, "mean") is first
    assert graph.block().aggregate(graph.x, "mean") is first
    assert len(calls) == 1


def test_every_reduction_has_its_own_answer(graph: Graph, calls: list[Any]) -> None:
    block, scale = graph.block(), torch.tensor([1.0, 2.0, 3.0])
    for _ in range(2):
        assert block.aggregate(graph.x, "sum").tolist() == [[4, 5], [0, 1], [6, 9]]
        assert block.aggregate(graph.x, "max").tolist() == [[4, 5], [0, 1], [4, 5]]
        assert block.aggregate(graph.x, dst_scale=scale).tolist() == [[4, 5], [0, 2], [18, 27]]
    assert len(calls) == 3


def test_a_change_in_place_is_noticed(graph: Graph, calls: list[Any]) -> None:
    block, scale = graph.block(), torch.ones(3)
    block.aggregate(graph.x, src_scale=scale)
    graph.x[0, 0] = 100.0
    assert block.aggregate(graph.x, src_scale=scale)[1, 0] == 100
    scale.mul_(2)
    assert block.aggregate(graph.x, src_scale=scale)[1, 0] == 200
    assert block.aggregate(graph.x, src_scale=scale)[1, 0] == 200
    assert len(calls) == 3


@pytest.mark.parametrize("inference", [False, True])
def test_an_answer_changed_by_its_user_is_computed_again(graph: Graph, inference: bool) -> None:
    block = graph.block()
    with torch.inference_mode(inference):
        block.aggregate(graph.x).add_(100)
    assert block.aggregate(graph.x).tolist() == [[4, 5], [0, 1], [6, 9]]


def test_hidden_states_and_copies_are_computed_each_time(graph: Graph, calls: list[Any]) -> None:
    block, hidden = graph.block(), torch.relu(graph.x)
    assert not block.constant(hidden)
    for _ in range(2):
        block.aggregate(hidden)
    assert len(calls) == 2


def test_inputs_and_weights_with_a_gradient_are_computed_each_time(graph: Graph, calls: list[Any]) -> None:
    block = graph.block()
    weight = torch.ones(5, requires_grad=True)
    for _ in range(2):
        block.aggregate(graph.x, weight=weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [18, 2, 2, 10, 18]
    graph.x.requires_grad_()
    assert not block.constant(graph.x)
    for _ in range(2):
        block.aggregate(graph.x)
    assert len([call for call in calls if call[2].shape == (3, 2)]) == 4


def test_any_input_can_be_marked(graph: Graph, calls: list[Any]) -> None:
    block, half = graph.block(), graph.x.to(torch.float64)
    block.mark_constant(half)
    assert block.aggregate(half) is block.aggregate(half)
    assert len(calls) == 1


def test_an_answer_made_in_inference_mode_serves_training(graph: Graph) -> None:
    block = graph.block()
    with torch.inference_mode():
        first = block.aggregate(graph.x)
    weight = torch.ones(2, 1, requires_grad=True)
    again = block.aggregate(graph.x)
    assert again is first
    (again @ weight).sum().backward()
    assert weight.grad is not None
    assert weight.grad.flatten().tolist() == [10, 15]


def test_an_answer_goes_with_the_weight_it_was_given_for(graph: Graph) -> None:
    block, results = graph.block(), []
    for _ in range(50):
        results.append(weakref.ref(block.aggregate(graph.x, src_scale=torch.ones(3))))
    assert len([result for result in results if result() is not None]) <= 1


def test_answers_do_not_fill_memory(graph: Graph) -> None:
    block, scales = graph.block(), [torch.ones(3) for _ in range(50)]
    for scale in scales:
        block.aggregate(graph.x, src_scale=scale)
    assert len(block._memory._answers) <= 8


def test_sparse_features_are_remembered_too() -> None:
    dense = torch.zeros(3, 64)
    dense[1, 5] = 1.0
    graph = Graph.from_edges(EDGES, x=SparseFeatures.from_dense(dense))
    block = graph.block()
    first = block.aggregate(graph.x)
    assert block.aggregate(graph.x) is first
    graph.x.values.mul_(3)
    changed = block.aggregate(graph.x)
    assert isinstance(changed, SparseFeatures)
    assert changed.values.tolist() == [3]
