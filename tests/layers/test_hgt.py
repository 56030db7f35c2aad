"""HGT against PyG's HGTConv on a graph of three node types."""

import pytest
import torch
from torch_geometric.nn import HGTConv

import weft

TYPES = ("author", "paper", "venue")
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "cites", "paper"),
    ("paper", "in", "venue"),
    ("venue", "of", "paper"),
)
COUNTS = {"author": 4, "paper": 6, "venue": 3}


def _graph(width: int) -> tuple[weft.Graph, dict, dict]:
    torch.manual_seed(3)
    x = {t: torch.randn(n, width, dtype=torch.float64) for t, n in COUNTS.items()}
    edges = {
        r: torch.stack([torch.randint(0, COUNTS[r[0]], (9,)), torch.randint(0, COUNTS[r[2]], (9,))])
        for r in RELATIONS
    }
    graph = weft.Graph.from_types(
        nodes={t: {"x": v} for t, v in x.items()}, edges={r: {"edge_index": e} for r, e in edges.items()}
    )
    return graph, x, edges


@pytest.mark.parametrize(("width", "heads"), [(8, 2), (5, 2), (8, 8)])
def test_equals_pyg(width, heads):
    graph, x, edges = _graph(width)
    conv = HGTConv(width, 8, (list(TYPES), list(RELATIONS)), heads=heads).double()
    layer = weft.nn.HGT(width, 8, node_types=TYPES, edge_types=RELATIONS, heads=heads).double()
    _copy(conv, layer)
    ours = {t: v.clone().requires_grad_() for t, v in x.items()}
    theirs = {t: v.clone().requires_grad_() for t, v in x.items()}
    out = layer(graph.block(), torch.cat([ours[t] for t in TYPES]))
    expected = conv(theirs, edges)
    rows = graph.block().type_ranges("dst")
    for name in ("paper", "venue"):
        torch.testing.assert_close(out[rows[name]], expected[name], rtol=1e-9, atol=1e-9)
    out[4:].square().sum().backward()
    sum(expected[t].square().sum() for t in ("paper", "venue")).backward()
    for name in TYPES:
        torch.testing.assert_close(ours[name].grad, theirs[name].grad, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        layer.p_rel.grad.flatten(), torch.cat([p.grad.flatten() for p in conv.p_rel.values()])
    )


@pytest.mark.parametrize("options", [{}, {"jumping": "cat"}, {"layers": 1}])
def test_layers_of_a_stack_stay_wide_and_a_linear_map_gives_the_classes(options):
    graph, _, _ = _graph(5)
    info = weft.nn.GraphInfo.of(graph)
    model = weft.nn.Stack(info.in_features, 3, layer="hgt", hidden=8, heads=4, info=info, **options).double()
    assert {(layer.in_features, layer.out_features, layer.heads) for layer in model.layers} == {(8, 8, 4)}
    assert all(len(layer.skip) == len(TYPES) for layer in model.layers)
    out = model(graph.block(), graph.x)
    assert out.shape == (13, 3)
    out.square().sum().backward()
    assert model.final.weight.grad.abs().sum() > 0


def _copy(conv, layer) -> None:
    with torch.no_grad():
        for name in TYPES:
            for ours, theirs in ((layer.kqv_lin, conv.kqv_lin), (layer.out_lin, conv.out_lin)):
                ours[f"type_{name}"].load_state_dict(theirs.lins[name].state_dict())
            if layer.skip:
                layer.skip[f"type_{name}"].copy_(conv.skip[name].uniform_())
        for ours, theirs in ((layer.k_rel, conv.k_rel), (layer.v_rel, conv.v_rel)):
            # PyG numbers its matrices head first: head · relations + relation.
            heads, width = ours.shape[1:3]
            ours.copy_(theirs.weight.view(heads, len(RELATIONS), width, width).transpose(0, 1))
        for number, relation in enumerate(RELATIONS):
            layer.p_rel[number].copy_(conv.p_rel["__".join(relation)].uniform_(0.5, 2.0)[0])


def test_width_that_heads_do_not_divide_is_refused():
    with pytest.raises(weft.InputError, match="HGT: out_features=7 must be a multiple of heads=2"):
        weft.nn.HGT(3, 7, heads=2)
