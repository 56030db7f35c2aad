"""Linear maps, the order of aggregation, and numbers of draws."""

import pytest
import torch
from torch import nn

import weft
from weft.layers.base import Linear, aggregate_linear, aggregates_first, gcn_scales, number_draws


def _graph() -> weft.Graph:
    torch.manual_seed(0)
    return weft.Graph.from_edges(torch.randint(0, 9, (2, 20)), num_nodes=9, x=torch.randn(9, 4).double())


def test_sparse_and_dense_rows_give_the_same_product():
    lin, x = Linear(5, 3), torch.randn(7, 5)
    torch.testing.assert_close(lin(weft.SparseFeatures.from_dense(x)), lin(x))
    torch.testing.assert_close(lin(x), nn.functional.linear(x, lin.weight, lin.bias))


@pytest.mark.parametrize("shape", [(2, 4), (8, 4)])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_both_orders_give_the_same(shape, reduce):
    graph, matrix, bias = _graph(), torch.randn(shape).double(), torch.randn(shape[0]).double()
    h = graph.x.clone()  # not the graph's own x: nothing is remembered
    expected = graph.block().aggregate(h, reduce) @ matrix.t() + bias
    torch.testing.assert_close(aggregate_linear(graph.block(), h, matrix, reduce, bias=bias), expected)
    assert aggregates_first(graph.block(), h, matrix) == (shape[1] <= shape[0])
    assert aggregates_first(graph.block(), graph.x, matrix)


def test_scales_are_the_same_tensors_each_time():
    block = _graph().block()
    first, second = gcn_scales(block, torch.float32), gcn_scales(block, torch.float32)
    assert first["src_scale"] is second["src_scale"]
    assert gcn_scales(block, torch.float64)["src_scale"].dtype == torch.float64


def test_draws_are_numbered_in_module_order():
    model = nn.ModuleList([weft.nn.Dropout(), nn.Linear(2, 2), weft.nn.GAT(2, 2), weft.nn.Dropout()])
    number_draws(model)
    assert [model[0].draw_layer, model[2].draw_layer, model[3].draw_layer] == [0, 1, 2]


def test_names_of_nn_resolve_and_a_wrong_one_is_an_attribute_error():
    for name in weft.nn.__all__:
        assert getattr(weft.nn, name) is not None
    with pytest.raises(AttributeError, match="SAEG"):
        _ = weft.nn.SAEG
