"""The sequential strategy: the steps of one process, with the remote rows of two parts at a time."""

from pathlib import Path

import halo_jobs
import pytest
import sequential_jobs
import torch
from ranks import run_ranks

import weft
from weft.cli.main import main
from weft.comm.group import Group
from weft.errors import InputError, RecipeError
from weft.strategies.sequential.sequential import Sequential


@pytest.mark.parametrize(("num_parts", "salt"), [(1, 0), (3, 2), (4, 4)])
def test_one_process_with_any_number_of_parts_takes_the_steps_of_single(num_parts: int, salt: int) -> None:
    assert sequential_jobs.equal_to_one_process(Group.alone(), num_parts, salt) == []


@pytest.mark.parametrize("num_parts", [1, 4])
def test_every_operation_of_a_block_and_its_gradients_are_those_of_the_whole_graph(num_parts: int) -> None:
    assert sequential_jobs.operations(Group.alone(), num_parts) == []


@pytest.fixture(
    scope="module",
    params=[
        (2, 6, 1, False),
        *(pytest.param((*case, True), marks=pytest.mark.slow) for case in ((2, 6, 1), (4, 4, 3))),
    ],
    ids=["2 ranks", "2 ranks whole", "4 ranks"],
)
def done(request: pytest.FixtureRequest) -> list[dict]:
    """What all ranks of one launch found."""
    size, *given = request.param
    return run_ranks(size, sequential_jobs.everything, *given)


def test_ranks_take_the_steps_of_one_process(done: list[dict]) -> None:
    for rank in done:
        assert rank["training"] == []
        assert rank["operations"] == []


def test_sums_cost_two_exchanges_and_all_that_needs_the_rows_again_three(done: list[dict]) -> None:
    for rank in done:
        assert rank["units"] == {
            "sum": 2.0,
            "mean": 2.0,
            "learned weights": 3.0,
            "max": 3.0,
            "attention": 3.0,
            "messages": 3.0,
            "softmax of messages": 3.0,
            "factors of destinations": 2.0,
            "numbers of edges": 2.0,
            "learned numbers": 3.0,
            "half of a row": 1.0,
            "twice": 4.0,
        }


def test_the_rows_of_two_parts_are_alive_at_a_time(done: list[dict]) -> None:
    for rank in done:
        for name, (rows, gradients, bound) in rank["live rows"].items():
            assert 0 < rows <= bound, name
            assert 0 < gradients <= bound, name


def test_the_exact_point_of_a_coded_exchange_is_exact(done: list[dict]) -> None:
    for rank in done:
        assert rank["quantised"] == []


def test_pairs_of_relations_are_made_a_part_at_a_time() -> None:
    graph = sequential_jobs.case_graph("typed")
    local = halo_jobs.local_graph(Group.alone(), graph, halo_jobs.parts_of("typed", 4), 4)
    block = Sequential(local).layout.training_block()
    made = []

    def transform(pairs: weft.Block, rows: torch.Tensor) -> torch.Tensor:
        made.append(pairs.num_src)
        return rows[pairs.rows]

    h = torch.randn(block.num_dst, 3, requires_grad=True)
    block.aggregate_pairs(transform, (h,)).sum().backward()
    assert len(made) == 8, "four parts forward, four backward"
    assert max(made) < graph.block().by_relation().num_src / 2


def test_an_input_that_does_not_change_is_reduced_once() -> None:
    graph = sequential_jobs.case_graph("directed")
    local = halo_jobs.local_graph(Group.alone(), graph, halo_jobs.parts_of("directed", 3), 3)
    strategy = Sequential(local)
    first = strategy.layout.training_block().aggregate(local.x, "mean")
    assert strategy.layout.exact_block().aggregate(local.x, "mean") is first
    assert strategy.layout.block.prefers_aggregate_first(local.x)


def test_mistakes_are_refused_in_words() -> None:
    with pytest.raises(RecipeError, match="'sequential' does not allow 'sampled'; allowed: exact, quantised"):
        Sequential.check({"exchange": {"name": "sampled", "p": 0.3}})
    graph = sequential_jobs.case_graph("hub")
    local = halo_jobs.local_graph(Group.alone(), graph, halo_jobs.parts_of("hub", 2), 2)
    block = Sequential(local).layout.training_block()
    h = torch.ones(block.num_dst, 2)
    with pytest.raises(InputError, match="takes no weight"):
        block.aggregate(h, "max", block.edge("weight"))
    with pytest.raises(InputError, match="reduce must be"):
        block.aggregate(h, "median")
    with pytest.raises(InputError, match="relation 3 asked for"):
        block.aggregate(h, "sum", relation=3)


def test_it_trains_from_python_and_from_the_command_line(tmp_path: Path) -> None:
    graph = sequential_jobs.case_graph("directed")
    options = {"hidden": 8, "heads": 2, "epochs": 3, "dropout": 0.3, "precision": "float64"}
    ours, theirs = (weft.train(graph, "gat", strategy=name, **options) for name in ("sequential", "single"))
    assert ours.val_accuracy == theirs.val_accuracy
    data = [*("--set", "data.name=community"), *("--set", "data.nodes=300"), *("--set", "train.epochs=2")]
    asked = ["--set", "strategy.name=sequential", "--parts", "4", "--out", str(tmp_path / "run")]
    assert main(["train", *data, *asked]) == 0


def test_gradients_of_gradients_are_refused_on_every_rank() -> None:
    for halo, sequential in run_ranks(2, sequential_jobs.refusals_of_second_derivatives):
        assert halo.startswith("what came from other workers has first derivatives alone")
        assert sequential.startswith("the strategy 'sequential' has first derivatives alone")
