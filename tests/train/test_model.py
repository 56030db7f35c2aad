"""A model fits its graph: widths, self loops, numbered draws, weights by seed."""

import pytest
import torch

import weft
from weft.errors import RecipeError
from weft.train.model import adapt, build_model, check_options, ready, wants_self_loops


def test_self_loops_are_added_for_layers_that_are_defined_with_them(graph: weft.Graph) -> None:
    assert wants_self_loops("gcn")
    assert not wants_self_loops("sage")
    assert adapt(graph, "sage") is graph
    looped = adapt(graph, weft.nn.Stack(8, 3, layer="gat", hidden=8))
    assert looped.num_edges == graph.num_edges + graph.num_nodes
    assert adapt(looped, "gcn").num_edges == looped.num_edges


def test_weights_depend_on_the_seed_alone(graph: weft.Graph) -> None:
    torch.manual_seed(1)
    first = build_model(graph, "sage", {"hidden": 8}, seed=3)
    torch.manual_seed(2)
    again = build_model(graph, "sage", {"hidden": 8}, seed=3)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters()))


def test_every_module_that_draws_has_a_number_of_its_own(graph: weft.Graph) -> None:
    model = ready(
        build_model(graph, "gat", {"hidden": 8, "heads": 2}), device=torch.device("cpu"), dtype=torch.float64
    )
    numbers = [module.draw_layer for module in model.modules() if hasattr(module, "draw_layer")]
    assert sorted(numbers) == list(range(len(numbers)))
    assert next(model.parameters()).dtype == torch.float64


def test_options_of_the_stack_and_of_its_layer_are_checked_together() -> None:
    assert check_options("gat", {"hidden": 8, "heads": 2}) == {"hidden": 8, "heads": 2}
    with pytest.raises(RecipeError, match=r"unknown key model\.heads"):
        check_options("sage", {"heads": 2})
    with pytest.raises(RecipeError, match=r"unknown key model\.in_features"):
        check_options("sage", {"in_features": 2})
