"""What every layer of the registry promises, whatever it computes."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.graph.message.block import Block
from weft.layers.base import layers

N, IN, OUT, EDGE = 12, 6, 4, 3
OPTIONS: dict[str, dict[str, Any]] = {
    "gat": {"heads": 2, "concat": False, "attention_dropout": 0.5},
    "gatv2": {"heads": 2, "concat": False, "attention_dropout": 0.5},
    "gine": {"edge_features": EDGE},
    "rgcn": {"num_relations": 3, "bases": 2},
    "hgt": {
        "edge_types": tuple(("node", name, "node") for name in "abc"),
        "heads": 2,
        "attention_dropout": 0.5,
    },
    "appnp": {"hops": 3, "hidden": 5, "dropout": 0.5},
}
DRAWING = ["appnp", "gat", "gatv2", "hgt"]

everyone = pytest.mark.parametrize("name", layers.names())


def make(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    return layers[name](IN, OUT, **(OPTIONS.get(name, {}) | options))


def edges_of(num_nodes: int = N, count: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(
        0, max(1, num_nodes - 2), (2, count), generator=generator
    )  # the last two are isolated


def graph_of(edges: Tensor, num_nodes: int = N, dtype: torch.dtype = torch.float64) -> weft.Graph:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(num_nodes, IN, generator=generator, dtype=dtype)
    attr = torch.randn(edges.shape[1], EDGE, generator=generator, dtype=dtype)
    kinds = torch.arange(edges.shape[1]) % 3
    return weft.Graph.from_edges(
        edges, num_nodes=num_nodes, x=x, edge_attr=attr, edge_type=kinds, num_relations=3
    )


@everyone
@pytest.mark.parametrize(("num_nodes", "count"), [(N, 40), (N, 0), (1, 0), (1, 2)])
def test_gives_finite_rows_for_every_destination(name, num_nodes, count):
    graph = graph_of(edges_of(num_nodes, count), num_nodes)
    out = make(name).double()(graph.block(), graph.x)
    assert out.shape == (num_nodes, OUT)
    assert out.isfinite().all()


@everyone
def test_gradient_reaches_every_parameter_and_the_input(name):
    graph = graph_of(edges_of())
    layer, x = make(name).double().eval(), graph.x.clone().requires_grad_()
    layer(graph.block(), x).square().sum().backward()
    missing = [key for key, value in layer.named_parameters() if value.grad is None or not value.grad.any()]
    assert missing == []
    assert x.grad.any()


@everyone
def test_renaming_the_nodes_renames_the_rows(name):
    edges = edges_of()
    graph, order = graph_of(edges), torch.randperm(N, generator=torch.Generator().manual_seed(1))
    place = order.argsort()
    renamed = weft.Graph.from_edges(
        place[edges], num_nodes=N, x=graph.x[order], edge_type=torch.arange(40) % 3, num_relations=3,
        edge_attr=graph_of(edges).to_pyg().edge_attr,
    )  # fmt: skip
    layer = make(name).double().eval()
    torch.testing.assert_close(layer(renamed.block(), renamed.x), layer(graph.block(), graph.x)[order])


@everyone
def test_isolated_nodes_depend_on_themselves_alone(name):
    graph, layer = graph_of(edges_of()), make(name).double().eval()
    before = layer(graph.block(), graph.x)
    changed = graph.x.clone()
    changed[: N - 2] += 1.0
    torch.testing.assert_close(layer(graph.block(), changed)[N - 2 :], before[N - 2 :])


@everyone
def test_bfloat16_and_float32_run(name):
    graph = graph_of(edges_of(), dtype=torch.float32)
    expected = make(name).eval()(graph.block(), graph.x)
    half = graph.to(dtype=torch.bfloat16)
    out = make(name).bfloat16().eval()(half.block(), half.x)
    assert out.dtype == torch.bfloat16
    assert (out.float() - expected).abs().max() < 0.1 * max(1.0, expected.abs().max())


@everyone
def test_a_part_of_the_destinations_gives_the_rows_of_the_whole(name):
    graph, layer = graph_of(edges_of()), make(name).double().eval()
    expected = layer(graph.block(), graph.x)
    out = layer([_rows_upto(graph, size) for size in _sizes(layer)], graph.x) if layer.hops > 1 else None
    out = layer(_rows_upto(graph, 5), graph.x) if out is None else out
    torch.testing.assert_close(out, expected[: out.shape[0]])
    assert out.shape[0] == 5


def _sizes(layer: Any) -> list[int]:
    return [N] * (layer.hops - 1) + [5]


def _rows_upto(graph: weft.Graph, num_dst: int) -> Block:
    """Return the block of the first destinations with all sources; degrees are the whole graph's."""
    whole = graph.block()
    last = int(whole.indptr[num_dst])
    return Block(
        whole.indptr[: num_dst + 1],
        whole.indices[:last],
        num_src=N,
        edge_ids=torch.arange(last),
        edge_type=whole.edge_type[:last],
        num_relations=whole.num_relations,
        edge_data=graph.edge_data,
        degrees=whole.degree_source,
    )


@everyone
def test_sparse_features_give_what_dense_ones_give(name):
    graph, layer = graph_of(edges_of()), make(name).double().eval()
    x = graph.x * (graph.x > 0.3)
    sparse = weft.SparseFeatures.from_dense(x)
    torch.testing.assert_close(layer(graph.block(), sparse), layer(graph.block(), x))


@everyone
def test_evaluation_repeats_and_state_round_trips(name):
    graph, layer = graph_of(edges_of()), make(name).double().eval()
    out = layer(graph.block(), graph.x)
    assert torch.equal(layer(graph.block(), graph.x), out)
    other = make(name).double().eval()
    with torch.no_grad():
        for value in other.parameters():
            value.add_(1.0)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(graph.block(), graph.x), out)


@pytest.mark.parametrize("name", DRAWING)
def test_dropout_is_a_function_of_the_clock(name):
    graph, layer = graph_of(edges_of()), make(name).double().train()
    block = graph.block()
    block.clock = torch.tensor([7, 0, 0])
    first = layer(block, graph.x)
    assert torch.equal(layer(block, graph.x), first)
    block.clock[1] = 1
    assert not torch.equal(layer(block, graph.x), first)


@everyone
@pytest.mark.parametrize("widths", [(0, 4), (4, 0), (-1, 4), (4, 2.5), ("4", 4)])
def test_widths_that_cannot_be_are_refused_in_one_line(name, widths):
    with pytest.raises(weft.InputError, match="must be a positive integer, got") as caught:
        layers[name](*widths, **OPTIONS.get(name, {}))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("p", [-0.1, 1.0, 2, "half"])
def test_dropout_outside_its_range_is_refused(name, p):
    option = "dropout" if name == "appnp" else "attention_dropout"
    with pytest.raises(weft.InputError, match=r"must be in \[0, 1\)"):
        make(name, **{option: p})


@pytest.mark.parametrize("name", ["gat", "gatv2", "hgt"])
@pytest.mark.parametrize("heads", [0, -2, 1.5])
def test_heads_must_be_positive(name, heads):
    with pytest.raises(weft.InputError, match="heads must be a positive integer"):
        make(name, heads=heads)


@everyone
def test_stacks_build_and_train(name):
    graph = graph_of(edges_of(), dtype=torch.float32)
    model = weft.nn.Stack(IN, OUT, layer=name, hidden=8, info=weft.nn.GraphInfo.of(graph))
    out = model(graph.block(), graph.x)
    out.sum().backward()
    assert out.shape == (N, OUT)
    assert isinstance(model.self_loops, bool)


@everyone
def test_says_what_it_computes(name):
    assert layers[name].__doc__
    assert repr(make(name)).startswith(layers[name].__name__)
