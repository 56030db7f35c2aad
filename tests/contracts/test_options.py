"""Every option of a strategy of batches acts: another value changes numbers, or a named test shows how."""

import ast
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from weft.config import parameters
from weft.errors import RecipeError
from weft.graph.parts.assignment import Assignment
from weft.partitioners import partition
from weft.samplers import cluster
from weft.strategies.base import Strategy, strategies
from weft.train.workers import run_parts as train_parts

TESTS = Path(__file__).parents[1]
BATCHES = "strategies/minibatch"
CUT = f"{BATCHES}/test_sampled.py::test_parts_in_one_process_take_the_same_steps"
NEAR = f"{BATCHES}/test_sampled.py::test_neighbourhoods_that_all_hold_are_asked_of_nobody_and_change_nothing"
LOADER = "samplers/test_pool.py::test_threads_stay_only_so_far_ahead"
STAGES = "strategies/pipeline/test_pipeline.py::test_two_stages_compute_what_one_process_does_and_go_on"

# What each strategy runs with, and for each option another value, or the test that shows what it does.
BASE: dict[str, dict[str, Any]] = {
    "sampled": {"fanout": [3, 2], "batch_size": 16},
    "control_variate": {"fanout": [1], "batch_size": 16},
    "clustered": {"clusters": 6, "together": 2, "partitioner": "range"},
    "saint": {"size": 20, "steps": 3},
    "pipeline": {"fanout": [3, 2], "batch_size": 16},
    "sliced": {"fanout": [3, 2], "batch_size": 16, "parts": 2, "partitioner": "range"},
}
OTHER: dict[str, dict[str, Any]] = {
    "pipeline": {
        "parts": CUT,
        "partitioner": CUT,
        "stages": STAGES,
        "replicas": STAGES,
        "plan": "strategies/pipeline/test_plan.py::test_plans_differ_where_replicas_may",
        "schedule": STAGES,
        "micro_batches": STAGES,
        "versions": STAGES,
        "recompute": STAGES,
        "fanout": [3, 1],
        "batch_size": 12,
        "sampler": "labor",
        "grow": {"every": 1},
        "prepare": LOADER,
    },
    "sampled": {
        "parts": CUT,
        "partitioner": CUT,
        "fanout": [3, 1],
        "batch_size": 12,
        "sampler": "labor",
        "seeds": f"{BATCHES}/test_sampled.py::test_any_number_of_ranks_takes_the_steps_of_one_process",
        "evaluate": f"{BATCHES}/test_sampled.py::test_evaluation_on_samples_of_all_edges_is_exact",
        "prepare": LOADER,
        "store": {"name": "memory", "storage": "int8"},
        "replicate": NEAR,
        "closed": f"{BATCHES}/test_sampled.py::test_the_command_trains_on_self_reliant_parts",
        "temporal": f"{BATCHES}/test_sampled.py::test_no_run_by_time_sees_what_comes_after_its_seeds",
        "samplers": f"{BATCHES}/test_sampled.py::test_any_number_of_ranks_takes_the_steps_of_one_process",
        "sample_on": "train/test_device.py::test_weights_and_features_of_edges",
    },
    "control_variate": {
        "parts": CUT,
        "partitioner": CUT,
        "fanout": [2],
        "batch_size": 12,
        "safe": False,
        "preprocess": f"{BATCHES}/test_control_variate.py::test_sums_of_inputs_that_are_known_are_not_drawn",
        "prepare": LOADER,
    },
    "clustered": {
        "clusters": 5,
        "together": 3,
        "enhance": 0.5,
        "partitioner": "hash",
        "prepare": LOADER,
        "store": {"name": "memory", "storage": "int8"},
    },
    "saint": {
        "parts": CUT,
        "partitioner": CUT,
        "how": "node",
        "size": 24,
        "length": 3,
        "coverage": 3,
        "steps": 4,
        "prepare": LOADER,
        "store": {"name": "memory", "storage": "int8"},
    },
    "sliced": {
        "parts": CUT,
        "partitioner": CUT,
        "fanout": [3, 1],
        "batch_size": 12,
        "sampler": {"replace": True},
        "seeds": f"{BATCHES}/test_sampled.py::test_any_number_of_ranks_takes_the_steps_of_one_process",
        "evaluate": f"{BATCHES}/test_sampled.py::test_evaluation_on_samples_of_all_edges_is_exact",
        "prepare": LOADER,
        "delay": 1,
    },
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "neighbor": {"replace": True, "weight": "weight", "resample": "step"},
    "labor": {"iterations": 2, "shared_hops": True, "resample": "epoch"},
}
GIVEN = (*signature(Strategy).parameters, "part_rank", "speed", "whole")


@pytest.fixture(autouse=True)
def cut_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the graph once for each way of cutting it: runs differ in other things."""

    @cache
    def cut(clusters: int, *given: tuple[str, Any]) -> Assignment:
        return partition(graph(), clusters, **dict(given))

    for module in (cluster, train_parts):
        monkeypatch.setattr(module, "partition", lambda _, count, **given: cut(count, *given.items()))


@cache
def graph() -> weft.Graph:
    made = weft.datasets.open_dataset(name="community", nodes=90, degree=8, classes=3, features=8, seed=1)
    weight = torch.rand(made.num_edges, generator=torch.Generator().manual_seed(1)) + 0.1
    return weft.Graph.from_edges(
        made.edge_index,
        x=made.x,
        y=made.y,
        edge_weight=weight,
        train_mask=made.train_mask,
        val_mask=made.val_mask,
        test_mask=made.test_mask,
    )


def loss(name: str, **options: Any) -> float:
    strategy = {"name": name, **BASE[name], **options}
    done = weft.train(graph(), "gcn", strategy=strategy, epochs=2, hidden=4, layers=2, eval_every=2)
    return done.loss


def shown_elsewhere(value: Any) -> bool:
    return isinstance(value, str) and "::" in value


@pytest.mark.parametrize("name", [name for name in strategies.names() if name in BASE])
def test_each_option_of_a_strategy_changes_something(name: str) -> None:
    assert set(parameters(strategies[name], given=GIVEN)) == set(OTHER[name]), "enter what it changes"
    usual = loss(name)
    changes = {option: value for option, value in OTHER[name].items() if not shown_elsewhere(value)}
    same = [option for option, value in changes.items() if loss(name, **{option: value}) == usual]
    assert same == [], "these do nothing"


def test_no_strategy_of_batches_is_left_out() -> None:
    known = {name for name in strategies.names() if strategies[name].in_batches}
    elsewhere = {"records", "buckets"}  # with the files that one reads, and the pairs of the other
    assert known == {*BASE} | elsewhere


@pytest.mark.parametrize("name", SAMPLERS)
def test_each_option_of_a_sampler_changes_what_is_drawn(name: str) -> None:
    usual = loss("sampled", sampler=name)
    same = [
        option
        for option, value in SAMPLERS[name].items()
        if loss("sampled", sampler={"name": name, option: value}) == usual
    ]
    assert same == [], "these do nothing"


def test_what_is_shown_elsewhere_is_shown_there() -> None:
    named = {value for options in OTHER.values() for value in options.values() if shown_elsewhere(value)}
    for each in named:
        file, function = each.split("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, each


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("saint", {"how": "node", "length": 3}, r"strategy\.length: is that of walks, nodes have none"),
        ("sampled", {"seeds": "local"}, r"strategy\.seeds: in one process all seeds are its own"),
        (
            "sampled",
            {"store": {"name": "cached", "path": "x.npy", "storage": "int8"}},
            r"store\.storage: rows of a file come in its bits",
        ),
    ],
)
def test_an_option_that_cannot_act_is_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        loss(name, **options)
