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
TRAPS: dict[str, list[str]] = {
    "10 a negative that is true, and the other ends of a batch": [
        NEGATIVES + "test_in_batch_hits_are_masked_and_corrected_by_how_often_they_come",
        "tasks/test_pair_loss.py::test_a_correction_undoes_how_often_a_node_is_drawn",
    ],
    "11 links are known by their relation": [
        NEGATIVES + "test_known_links_of_the_same_relation_are_left_out_and_others_are_not"
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
    ],
    "14 what a worker holds changes no chance": [
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
    assert [int(name.split()[0]) for name in TRAPS] == list(range(10, 23))
    for name in TRAPS[trap]:
        file, _, function = name.partition("::")
        assert f"def {function}" in (TESTS / file).read_text(), f"{trap}: {name} is gone"


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
