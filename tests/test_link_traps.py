"""Ways in which systems of links and embeddings were wrong, and the tests that hold weft to better.

`TRAPS` names for each the tests elsewhere that would fail; those that nothing else tests are tested here.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.tasks.choose import TaskChoice

TESTS = Path(__file__).parent
HERE = "test_link_traps.py::"
NEGATIVES, LINKS = "tasks/test_negatives.py::", "tasks/test_link_prediction.py::"
AMONG_ALL = "tasks/test_among_all.py::"
SPLIT, BY_TIME = "tasks/test_split.py::", "strategies/minibatch/test_pair_limits.py::"
EDGES, HIDDEN = "samplers/test_edges.py::", "samplers/core/test_hidden.py::"
BUCKETS = "strategies/buckets/"
TRAPS: dict[str, list[str]] = {
    "1 a hidden edge is a removed edge, in degrees and scales too": [
        EDGES + "test_a_batch_with_hidden_edges_is_that_of_a_graph_without_them_for_every_layer",
        HIDDEN + "test_both_ends_of_a_hidden_edge_have_a_degree_less",
    ],
    "2 reverses are found by their ends, and hidden beside the targets": [
        EDGES + "test_node_types_and_their_reverses_are_hidden_by_endpoints",
        BY_TIME + "test_the_targets_of_a_step_and_their_reverses_are_no_messages_of_it",
        SPLIT + "test_a_target_relation_is_named_and_its_reverse_relation_hidden",
    ],
    "3 both directions are in one split, and negatives are no mirror of each other": [
        SPLIT + "test_both_directions_of_a_pair_fall_into_one_split",
        SPLIT + "test_each_pair_of_an_undirected_graph_is_a_target_once",
        NEGATIVES + "test_the_two_sides_of_a_pair_are_drawn_apart",
    ],
    "4 validation and test edges are no messages": [
        SPLIT + "test_validation_and_test_pairs_their_reverses_and_copies_are_no_messages",
        LINKS + "test_pairs_of_validation_and_test_and_targets_are_no_messages",
        SPLIT + "test_a_validation_pair_that_is_joined_in_train_is_no_message",
    ],
    "5 where the graph is the same in every step some training pairs are no messages": [
        SPLIT + "test_a_disjoint_share_of_the_training_pairs_are_targets_and_no_messages",
        LINKS + "test_a_graph_that_is_fixed_hides_no_batches",
        HERE + "test_5_a_share_is_kept_out_of_messages_unless_said",
    ],
    "6 every parallel copy is hidden": [
        EDGES + "test_no_message_flows_along_an_edge_that_is_to_be_predicted_or_its_reverse",
        SPLIT + "test_parallel_labelled_edges_are_all_targets_of_one_split",
    ],
    "7 nothing that a model reads was computed from edges of the test": [
        HERE + "test_7_other_links_in_the_test_change_no_step_of_training"
    ],
    "8 no message is later than its target, of true and false pairs alike": [
        BY_TIME + "test_nothing_of_a_later_edge_flows_back_to_a_pair",
        "samplers/core/test_temporal.py::test_no_edge_is_later_than_its_seed",
        "samplers/core/test_pair_ends.py::test_negatives_of_both_sides_have_the_times_of_their_pairs",
        SPLIT + "test_by_time_nothing_later_than_validation_is_a_message",
        "graph/test_untimed.py::"
        "test_temporal_runs_see_a_reverse_without_times_as_one_with_the_times_of_its_edges",
    ],
    "9 what is hidden is left out before neighbours are drawn": [
        HIDDEN + "test_what_is_hidden_is_not_drawn_and_fanouts_stay_whole"
    ],
    "10 a negative that is true, and the other ends of a batch": [
        NEGATIVES + "test_in_batch_hits_are_masked_and_corrected_by_how_often_they_come",
        "tasks/test_pair_loss.py::test_a_correction_undoes_how_often_a_node_is_drawn",
        BUCKETS + "test_true_ends.py::test_candidates_that_make_a_true_edge_are_left_out",
    ],
    "11 links are known by their relation": [
        NEGATIVES + "test_known_links_of_the_same_relation_are_left_out_and_others_are_not",
        BUCKETS + "test_training.py::test_gradients_are_those_of_the_loss_written_out",
    ],
    "12 a negative must have been there": [
        NEGATIVES + "test_only_nodes_that_are_there_already_stand_for_an_end",
        LINKS + "test_negatives_can_be_nodes_that_were_there_also_on_workers",
    ],
    "13 ends of the right type, a type of one node, a source joined to all": [
        NEGATIVES + "test_ends_are_of_the_type_of_the_relation",
        NEGATIVES + "test_a_type_with_one_node_is_refused_and_its_other_side_is_not",
        NEGATIVES + "test_a_source_that_is_joined_to_all_has_its_negatives_masked",
        AMONG_ALL + "test_candidates_are_of_the_type_of_the_end_that_is_asked_for",
        BUCKETS + "test_chunks.py::test_candidates_are_nodes_of_the_type",
    ],
    "14 what a worker or a partition holds changes no chance, and no rank": [
        HERE + "test_14_pairs_are_ranked_among_all_nodes_however_these_are_divided",
        NEGATIVES + "test_the_chance_of_a_node_does_not_depend_on_who_holds_the_pair",
        NEGATIVES + "test_any_number_of_holders_draws_the_same",
    ],
    "15 scores that are all alike give chance": [
        AMONG_ALL + "test_scores_that_are_all_alike_give_what_chance_gives",
        "tasks/test_ranking.py::test_a_model_that_scores_everything_alike_gets_what_chance_gives",
        "tasks/test_ranking.py::test_scores_that_a_sigmoid_would_make_alike_are_kept_apart",
        LINKS + "test_a_model_that_tells_no_node_from_another_ranks_by_chance",
    ],
    "16 the filter has train, validation and test": [
        LINKS + "test_what_is_true_in_any_split_is_left_out_of_filtered_ranks"
    ],
    "17 raw and filtered ranks have names, and no pair counts itself": [
        AMONG_ALL + "test_places_are_those_of_a_loop_over_candidates",
        LINKS + "test_filtered_ranks_are_told_with_raw_ones_by_end_and_by_relation_on_any_number_of_workers",
    ],
    "18 the same negatives during and after training, and how many": [
        LINKS + "test_negatives_of_an_evaluation_stay_the_same",
        HERE + "test_18_the_last_epoch_and_the_summary_have_the_same_ranks_and_tell_among_how_many",
    ],
    "19 entities that training never saw stay in the test": [
        AMONG_ALL + "test_filtered_ranks_of_wordnet_are_those_of_a_plain_script",
        HERE + "test_19_an_entity_that_training_never_saw_is_tested_and_a_candidate",
    ],
    "20 no rank of NaN; every pair once over workers; both ends": [
        AMONG_ALL + "test_a_score_that_is_no_number_is_refused",
        "tasks/test_ranking.py::test_what_cannot_be_ranked_is_refused_in_one_line",
        LINKS + "test_filtered_ranks_are_told_with_raw_ones_by_end_and_by_relation_on_any_number_of_workers",
    ],
    "21 gradients of one id are summed before a step that is not linear": [
        "stores/test_optim.py::test_one_rank_learns_as_torch_does",
        "stores/test_row_steps.py::test_a_step_is_that_of_summed_gradients_on_any_number_of_threads",
        "stores/test_optim.py::test_a_step_without_gradients_changes_no_row",
        "strategies/test_learned.py::test_rows_are_learned_as_torch_does_from_sparse_gradients",
    ],
    "22 units are those of training targets, metrics the user's": [
        "tasks/test_numbers.py::test_the_units_are_those_of_training_nodes_alone",
        "tasks/test_node_regression.py::test_numbers_are_learned_and_given_back_in_their_units",
    ],
}
FILTERED = {"name": "all", "filtered": True}


def facts() -> weft.Graph:
    """Eleven entities in a ring, some facts held out; a twelfth is in test facts alone."""
    src = torch.arange(12)
    dst = torch.cat([(src[:11] + 1) % 11, src[11:]])
    src = torch.cat([src[:11], torch.tensor([3])])
    split = torch.tensor([0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2])
    edges: dict[Any, Any] = {
        ("e", "next", "e"): {"edge_index": torch.stack([src, dst]), "split": split},
        ("e", "back", "e"): {"edge_index": torch.stack([dst, src]), "split": split.flip(0).roll(1)},
    }
    edges["e", "back", "e"]["split"][11] = 2
    return weft.Graph.from_types({"e": {"num_nodes": 12}}, edges)


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_names_tests_that_exist(trap: str) -> None:
    assert [int(name.split()[0]) for name in TRAPS] == list(range(1, 23))
    for name in TRAPS[trap]:
        file, _, function = name.partition("::")
        assert f"def {function}" in (TESTS / file).read_text(), f"{trap}: {name} is gone"


def test_5_a_share_is_kept_out_of_messages_unless_said() -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=80, seed=2)
    task: Any = TaskChoice.of({"name": "link_prediction"}).make(graph)
    task.hides(batches=False)
    shown = task.prepared(graph)
    pairs = task.pairs["train"]
    assert len(pairs) > 0
    joined = set(zip(*shown.edge_index.tolist()))
    assert not joined & {*zip(pairs.src.tolist(), pairs.dst.tolist())}
    assert not joined & {*zip(pairs.dst.tolist(), pairs.src.tolist())}


def ring(test: list[int]) -> weft.Graph:
    """A ring of 24 nodes with chords, of which those from 0 and 12 to some nodes are for the test."""
    src = torch.cat([torch.arange(24), torch.arange(0, 24, 3), torch.tensor([0, 12])])
    dst = torch.cat([(torch.arange(24) + 1) % 24, (torch.arange(0, 24, 3) + 5) % 24, torch.tensor(test)])
    split = torch.zeros(len(src), dtype=torch.int64)
    split[[3, 9, 20]], split[-2:] = 1, 2
    return weft.Graph.from_edges(torch.stack([src, dst]), num_nodes=24, edge_data={"split": split})


@pytest.mark.parametrize("strategy", ["single", "sampled"])
@pytest.mark.parametrize(
    "task",
    [
        {"name": "link_prediction", "negatives": {"name": "degree", "count": 3, "exclude": "known"}},
        {"name": "unsupervised", "walks": 3, "length": 3},
    ],
    ids=lambda task: task["name"],
)
def test_7_other_links_in_the_test_change_no_step_of_training(task: dict[str, Any], strategy: str) -> None:
    settings = {"strategy": strategy, "task": {**task, "width": 8}, "epochs": 2, "hidden": 8, "eval_every": 2}
    one, other = (weft.train(ring(test), "gcn", **settings) for test in ([7, 19], [9, 22]))  # type: ignore[arg-type]
    assert one.metrics["val"] == other.metrics["val"]
    assert one.loss == other.loss
    assert one.metrics["test"] != other.metrics["test"], "these are other links"


def test_18_the_last_epoch_and_the_summary_have_the_same_ranks_and_tell_among_how_many(
    tmp_path: Path,
) -> None:
    for evaluate in (FILTERED, {"name": "uniform", "count": 5}):
        out = tmp_path / str(evaluate["name"])
        task = {"name": "link_prediction", "width": 8, "hide": "none", "evaluate": evaluate}
        done = weft.train(facts(), "rgcn", hidden=8, epochs=2, task=task, restore_best=False, out=str(out))
        last = [event for event in weft.read_events(out / "events.jsonl") if event["event"] == "epoch"][-1]
        assert last["test"]["mrr"] == done.metrics["test"]["mrr"]
        assert done.scores["negatives"] > 0
        assert done.to_dict()["negatives"] == done.scores["negatives"]


def test_19_an_entity_that_training_never_saw_is_tested_and_a_candidate() -> None:
    graph = facts()
    task: Any = TaskChoice.of({"name": "link_prediction", "hide": "none", "evaluate": FILTERED}).make(graph)
    task.hides(batches=False)
    task.targets(task.prepared(graph), lambda value: value)
    train, test = task.pairs["train"], task.pairs["test"]
    assert 11 not in torch.cat([train.src, train.dst])
    assert 11 in test.dst
    assert 11 in task.candidates()
    done = weft.train(
        graph, "rgcn", hidden=8, epochs=1, task={"name": "link_prediction", "width": 8, "evaluate": FILTERED}
    )
    assert sum(held["pairs"] for held in done.details["test"]["by_end"].values()) == 2 * len(test)


def test_14_pairs_are_ranked_among_all_nodes_however_these_are_divided() -> None:
    found = []
    for partitions in (1, 4):
        strategy = {"name": "buckets", "partitions": partitions, "negatives": {"count": 4}}
        task = {"name": "link_prediction", "width": 4, "split": {"by": "given"}, "evaluate": FILTERED}
        settings: dict[str, Any] = {"optimizer": "adagrad", "lr": 0.1, "epochs": 1}
        task |= {"score": "distmult", "loss": "softmax"}
        done = weft.train(facts(), weft.nn.NoLayers(), strategy=strategy, task=task, **settings)
        found.append((done.scores["negatives"], done.details["test"]["by_end"]["dst"]["pairs"]))
    assert found[0] == found[1]
    assert found[0][0] > 10
