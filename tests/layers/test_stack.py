"""Stack: the usual model."""

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.nn import SAGEConv

import weft
from weft.graph.message.block import Block


def _graph(sparse: bool = False) -> weft.Graph:
    torch.manual_seed(0)
    x = torch.rand(20, 16) * (torch.rand(20, 16) < 0.3)
    edges = torch.randint(0, 20, (2, 60))
    return weft.Graph.from_edges(edges, num_nodes=20, x=x.to_sparse_csr() if sparse else x)


def _chain(graph: weft.Graph, sizes: list[int]) -> list[Block]:
    """Return blocks whose destinations are the first rows, as a sampler makes them (all edges kept)."""
    whole, blocks, num_src = graph.block(), [], graph.num_nodes
    for num_dst in sizes:
        last = int(whole.indptr[num_dst])
        keep = Block(
            whole.indptr[: num_dst + 1], whole.indices[:last], num_src=num_src, src_ids=torch.arange(num_src),
            edge_ids=torch.arange(last), degrees=whole.degree_source,
        )  # fmt: skip
        blocks.append(keep)
        num_src = num_dst
    return blocks


def test_two_sage_layers_equal_pygs():
    graph = _graph()
    model = weft.nn.Stack(16, 3, layer="sage", hidden=8).eval()
    first, last = SAGEConv(16, 8), SAGEConv(8, 3)
    first.load_state_dict(model.layers[0].state_dict())
    last.load_state_dict(model.layers[1].state_dict())
    expected = last(F.relu(first(graph.x, graph.edge_index)), graph.edge_index)
    torch.testing.assert_close(model(graph.block(), graph.x), expected)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "batch", "residual": True},
        {"norm": "layer", "jumping": "cat"},
        {"jumping": "max", "residual": True},
        {"jumping": "sum", "activation": "elu"},
        {"layers": 1},
        {"input_dropout": 0.5, "layer": "gat", "heads": 4, "out_heads": 2},
        {"layer": "appnp", "hops": 2},
    ],
)
def test_options_train_every_parameter(options, sparse):
    graph = _graph(sparse)
    model = weft.nn.Stack(16, 3, **({"hidden": 8, "layers": 3} | options))
    out = model(graph.block(), graph.x)
    assert out.shape == (20, 3)
    out.square().sum().backward()
    assert [name for name, value in model.named_parameters() if value.grad is None] == []


@pytest.mark.parametrize("options", [{}, {"jumping": "cat", "residual": True}, {"layer": "sgc"}])
def test_a_list_of_blocks_gives_the_rows_of_the_whole(options):
    graph = _graph()
    # The chain reaches rows that are only sources, so every hop but the last keeps them all.
    model = weft.nn.Stack(16, 3, hidden=8, **options).eval()
    blocks = _chain(graph, [20, 6])
    expected = model(graph.block(), graph.x)[:6]
    torch.testing.assert_close(model(blocks, graph.x), expected)
    assert model.hops == 2


def test_wrong_number_of_blocks_is_refused():
    graph = _graph()
    with pytest.raises(weft.InputError, match="Stack: expected 1 or 2 blocks, one a hop, got 3"):
        weft.nn.Stack(16, 3)([graph.block()] * 3, graph.x)


def test_typed_graph_is_encoded_first():
    graph = weft.Graph.from_types(
        nodes={"a": {"x": torch.randn(3, 5)}, "b": {"num_nodes": 2}},
        edges={("a", "to", "b"): {"edge_index": torch.tensor([[0, 1], [0, 1]])}},
    )
    info = weft.nn.GraphInfo.of(graph)
    for layer in ("rgcn", "hgt", "sage"):
        model = weft.nn.Stack(info.in_features, 3, layer=layer, hidden=8, info=info)
        assert model(graph.block(), graph.x).shape == (5, 3)


def test_graph_without_features_learns_a_row_for_each_node():
    graph = weft.Graph.from_edges(torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    model = weft.nn.Stack(0, 2, hidden=8, info=weft.nn.GraphInfo.of(graph))
    assert model(graph.block(), None).shape == (3, 2)
    assert model.encoder.embeddings["type_node"].weight.shape == (3, 8)


def test_every_module_that_draws_has_its_own_number():
    model = weft.nn.Stack(16, 3, layer="gat", layers=3, heads=4, hidden=8)
    numbers = [module.draw_layer for module in model.modules() if hasattr(module, "draw_layer")]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len(numbers) == 3 + 2 + 1


def test_dropout_is_the_same_for_the_whole_graph_and_a_chain_of_blocks():
    graph = _graph()
    model, clock = (
        weft.nn.Stack(16, 3, hidden=8, layer="gat", heads=2, attention_dropout=0.3),
        torch.tensor([1, 2, 3]),
    )
    whole, blocks = graph.block(), _chain(graph, [20, 6])
    for block in (whole, *blocks):
        block.clock = clock
    torch.testing.assert_close(model(blocks, graph.x), model(whole, graph.x)[:6])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "Stack: hidden must be a positive integer, got 0"),
        ({"layers": -1}, "Stack: layers must be a positive integer"),
        ({"dropout": 1.0}, r"must be in \[0, 1\)"),
        ({"norm": "group"}, "norm must be one of None, batch, layer, got 'group'"),
        ({"activation": "rleu"}, "activation must be one of"),
        ({"layer": "gat", "hidden": 10, "heads": 4}, "GAT: hidden=10 must be a multiple of heads=4"),
        (
            {"layer": "sage", "agregate": "max"},
            "layer 'sage' has no option 'agregate'; did you mean 'aggregate'?",
        ),
        ({"layer": "saeg"}, "no layer 'saeg'; did you mean 'sage'?"),
    ],
)
def test_mistakes_are_refused_in_one_line(options, message):
    with pytest.raises(weft.InputError, match=message) as caught:
        weft.nn.Stack(16, 3, **options)
    assert "\n" not in str(caught.value)


def test_a_width_below_one_is_refused_under_the_name_of_the_stack():
    with pytest.raises(weft.InputError, match="Stack: in_features must be a positive integer, got -3"):
        weft.nn.Stack(-3, 3)


def test_a_width_that_is_no_number_is_refused():
    with pytest.raises(
        weft.InputError, match="in_features must be a whole number, or one a node type, got 'a'"
    ):
        weft.nn.Stack("a", 2)
