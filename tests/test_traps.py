"""Eighteen ways in which published systems of this kind were wrong, and the tests that hold weft to better.

`TRAPS` names for each the tests elsewhere that would fail; those that nothing else tests are tested here.
"""

from pathlib import Path

import empty_jobs
import pytest
import ranks
import torch
import trap_jobs
from ranks import run_ranks

from weft.comm.group import Group
from weft.layers.base import layers
from weft.strategies.base import strategies
from weft.strategies.norm import make_global
from weft.train.model import adapt, build_model, ready
from weft.train.proof import legal_pairs
from weft.train.proof.graphs import GRAPHS, make_graph, node_parts

TESTS = Path(__file__).parent
PROOF = "train/proof/test_proving.py::test_every_legal_pair_takes_the_steps_of_one_process"
HERE = "test_traps.py::"
TRAPS: dict[str, list[str]] = {
    "1 a local mean of the loss, summed over ranks, depends on the partition": [PROOF],
    "2 1/p belongs into both directions, and never into attention": [
        "strategies/halo/test_halo.py::test_a_sampled_epoch_drops_edges_and_scales_sums_and_means_alone",
        "strategies/halo/test_halo.py::test_a_sampled_halo_is_right_in_the_mean_for_every_layer_that_adds_up",
        "interop/pyg/test_weighing.py::test_edges_that_stand_for_others_count_as_often_in_sums_and_means",
        HERE + "test_2_a_sampled_row_is_weighed_in_both_directions_and_not_in_attention",
    ],
    "3 degrees are those of the whole graph": [
        PROOF,
        "strategies/halo/test_halo.py::test_a_sampled_epoch_drops_edges_and_scales_sums_and_means_alone",
        HERE + "test_3_degrees_are_the_whole_graphs_in_every_strategy_and_exchange",
    ],
    "4 a halo row is dropped as its owner drops it": [PROOF],
    "5 batch normalisation counts the rows of all ranks once": [PROOF],
    "6 the adjoint of a gather is a scatter-add, of an all-gather a reduce-scatter": [
        "comm/test_collectives.py::test_adjoint_identity_holds_over_all_ranks",
        "contracts/test_exchanges.py",
    ],
    "7 a vertex cut exchanges gradients too": [
        PROOF,
        HERE + "test_7_a_strategy_that_cuts_edges_is_held_to_gradients",
    ],
    "8 gradients of slices add up": [
        "strategies/minibatch/test_sliced.py::test_ranks_take_the_steps_of_sampled_and_send_what_the_formula_says"
    ],
    "9 a parameter that was moved is still a leaf": [
        HERE + "test_9_parameters_stay_leaves_however_a_model_is_made_ready"
    ],
    "10 ids are integers on the wire": [
        HERE + "test_10_ids_beyond_the_reach_of_floats_arrive",
    ],
    "11 empty sets, few edges, ranks without nodes": [
        PROOF,
        HERE + "test_11_a_rank_may_have_no_node",
        HERE + "test_11_layers_train_by_every_strategy_with_an_empty_rank",
        HERE + "test_11_the_graphs_of_the_proof_have_what_breaks_others",
    ],
    "12 all ranks enter the same collectives": [
        PROOF,
        "exchanges/test_sampled.py::test_rows_are_drawn_by_id_so_that_ranks_agree_without_a_message",
    ],
    "13 every draw has a key of its own": ["test_draw.py"],
    "14 nothing that backward needs is written into": [
        HERE + "test_14_exchanges_and_blocks_leave_rows_and_gradients_alone"
    ],
    "15 the first step of an exchange that remembers": [
        HERE + "test_15_the_first_step_of_an_exchange_that_remembers_is_exact",
        HERE + "test_15_what_a_delayed_exchange_reads_later_is_what_its_schedule_says",
    ],
    "16 the transpose of a directed graph is another graph": [PROOF],
    "17 evaluation is exact, distributed and leaves no trace": [
        HERE + "test_17_evaluation_is_exact_and_leaves_no_trace"
    ],
    "18 a lost or late rank ends the run": [
        "faults/test_workers.py::test_kill_of_rank_0_ends_all_names_it_and_frees_every_port",
        "faults/test_workers.py::test_a_stopped_rank_is_noticed_named_and_shown_with_all_stacks",
    ],
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Return what is wrong on any of four ranks, by job."""
    wrong: dict[str, list[str]] = {}
    for told in run_ranks(4, trap_jobs.everything):
        for job, words in told.items():
            wrong.setdefault(job, []).extend(words)
    return wrong


def test_every_trap_names_tests_that_exist() -> None:
    assert [int(trap.split()[0]) for trap in TRAPS] == list(range(1, 19))
    for trap, tests in TRAPS.items():
        assert tests, f"{trap}: nothing holds it"
        for name in tests:
            file, _, function = name.partition("::")
            assert f"def {function}" in (TESTS / file).read_text(), f"{trap}: {name} is gone"


def test_2_a_sampled_row_is_weighed_in_both_directions_and_not_in_attention(
    found: dict[str, list[str]],
) -> None:
    assert found["scale_both_ways"] == []


def test_3_degrees_are_the_whole_graphs_in_every_strategy_and_exchange(found: dict[str, list[str]]) -> None:
    assert found["whole_degrees"] == []


def test_7_a_strategy_that_cuts_edges_is_held_to_gradients() -> None:
    cutting = [name for name in strategies.names() if getattr(strategies[name], "cuts", "") == "edges"]
    for name in cutting:
        assert legal_pairs(2, names=[name]), f"{name} is proved nowhere"


@pytest.mark.parametrize("layer", sorted(set(layers.names()) - {"gine", "monet"}))
def test_9_parameters_stay_leaves_however_a_model_is_made_ready(layer: str) -> None:
    graph = adapt(make_graph("typed"), layer)
    model = build_model(graph, layer, {"hidden": 8, "norm": "batch"})
    ready(model, device=torch.device("cpu"), dtype=torch.float64)
    make_global(model, Group.alone())
    held = list(model.parameters())
    assert held
    assert all(parameter.is_leaf and parameter.requires_grad for parameter in held)
    assert all(parameter.dtype == torch.float64 for parameter in held)


def test_10_ids_beyond_the_reach_of_floats_arrive(found: dict[str, list[str]]) -> None:
    assert found["large_ids"] == []


def test_11_a_rank_may_have_no_node(found: dict[str, list[str]]) -> None:
    assert found["more_parts_than_nodes"] == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("hgt", "sage"), ("typed",)),
        pytest.param(tuple(sorted(layers.names())), ("plain", "typed"), marks=pytest.mark.slow),
    ],
)
def test_11_layers_train_by_every_strategy_with_an_empty_rank(
    names: tuple[str, ...], kinds: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three ranks one has all training nodes, one has none of them, and the last has no node at all."""
    monkeypatch.setattr(ranks, "LIMIT", 850.0)
    for wrong in run_ranks(3, empty_jobs.everywhere, names, kinds):
        assert wrong == []


def test_11_the_graphs_of_the_proof_have_what_breaks_others() -> None:
    def parts_with(name: str, nodes: torch.Tensor) -> int:
        return len(node_parts(name, 4)[nodes].unique())

    lopsided = make_graph("lopsided")
    assert parts_with("lopsided", lopsided.train_mask.nonzero().flatten()) == 1
    disconnected = make_graph("disconnected")
    source, target = node_parts("disconnected", 4)[disconnected.edge_index]
    assert torch.equal(source, target), "no part of four has a halo"
    relations = make_graph("relations")
    assert relations.edge_type is not None
    rows = torch.arange(relations.num_nodes).repeat_interleave(relations.indptr.diff())  # of each edge
    assert parts_with("relations", rows[relations.edge_type == 3]) == 1
    assert make_graph("hub").in_degree().max() >= 36
    assert all(make_graph(name).num_edges < 200 for name in GRAPHS)


def test_14_exchanges_and_blocks_leave_rows_and_gradients_alone(found: dict[str, list[str]]) -> None:
    assert found["gradients_left_alone"] == []


def test_15_the_first_step_of_an_exchange_that_remembers_is_exact(found: dict[str, list[str]]) -> None:
    assert found["first_step_exact"] == []


def test_15_what_a_delayed_exchange_reads_later_is_what_its_schedule_says(
    found: dict[str, list[str]],
) -> None:
    assert found["later_steps_as_told"] == []


def test_17_evaluation_is_exact_and_leaves_no_trace(found: dict[str, list[str]]) -> None:
    assert found["exact_evaluation"] == []
