"""weft.accelerate: a PyG model gives the same numbers, keeps its state, and says when it is not helped."""

import copy
import warnings
from typing import Any

import pytest
import torch
import torch_geometric
from accelerate_cases import E, Example, N, attributes, mlp, some_edges
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GENConv,
    GINConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TransformerConv,
)

import weft
from weft.errors import WeftWarning

SQUARE: dict[str, tuple[Any, dict[str, Any]]] = {
    "gcn": (lambda: GCNConv(6, 4), {}),
    "gcn widening": (lambda: GCNConv(6, 9, bias=False), {}),
    "gcn without loops": (lambda: GCNConv(6, 4, add_self_loops=False), {}),
    "gcn improved": (lambda: GCNConv(6, 4, improved=True), {}),
    "gcn cached": (lambda: GCNConv(6, 4, cached=True), {}),
    "gcn weighted": (lambda: GCNConv(6, 4), {"edge_weight": attributes(None)}),
    "gcn weighted, cached": (lambda: GCNConv(6, 4, cached=True), {"edge_weight": attributes(None)}),
    "gcn not normalised": (lambda: GCNConv(6, 4, normalize=False), {"edge_weight": attributes(None)}),
    "sage mean": (lambda: SAGEConv(6, 4), {}),
    "sage widening": (lambda: SAGEConv(6, 9), {}),
    "sage max": (lambda: SAGEConv(6, 4, aggr="max"), {}),
    "sage sum": (lambda: SAGEConv(6, 4, aggr="sum", root_weight=False), {}),
    "sage all options": (lambda: SAGEConv(6, 4, normalize=True, project=True, bias=False), {}),
    "graph": (lambda: GraphConv(6, 4), {}),
    "graph weighted mean": (lambda: GraphConv(6, 4, aggr="mean"), {"edge_weight": attributes(None)}),
    "gin": (lambda: GINConv(mlp(), eps=0.2, train_eps=True), {}),
    "sgc": (lambda: SGConv(6, 4, K=2), {}),
    "sgc widening": (lambda: SGConv(6, 9, K=2), {"edge_weight": attributes(None)}),
    "sgc cached": (lambda: SGConv(6, 4, K=2, cached=True), {}),
    "appnp": (lambda: APPNP(K=3, alpha=0.1), {}),
    "gat": (lambda: GATConv(6, 4, heads=2), {}),
    "gat averaged": (lambda: GATConv(6, 4, heads=3, concat=False, residual=True), {}),
    "gat without loops": (lambda: GATConv(6, 4, add_self_loops=False, bias=False), {}),
    "gat with edges": (lambda: GATConv(6, 4, heads=2, edge_dim=3), {"edge_attr": attributes(3)}),
    "gat filled": (lambda: GATConv(6, 4, edge_dim=1, fill_value=0.7), {"edge_attr": attributes(None)}),
    "gatv2": (lambda: GATv2Conv(6, 4, heads=2), {}),
    "gatv2 shared": (lambda: GATv2Conv(6, 4, heads=2, share_weights=True, concat=False), {}),
    "gatv2 with edges": (lambda: GATv2Conv(6, 4, heads=2, edge_dim=3), {"edge_attr": attributes(3)}),
    "transformer": (lambda: TransformerConv(6, 4, heads=2), {}),
    "transformer gated": (lambda: TransformerConv(6, 4, heads=2, concat=False, beta=True), {}),
    "rgcn": (lambda: RGCNConv(6, 4, num_relations=4), {"edge_type": torch.arange(E + 3) % 3}),
    "rgcn bases": (
        lambda: RGCNConv(6, 4, num_relations=4, num_bases=2),
        {"edge_type": torch.arange(E + 3) % 3},
    ),
    "rgcn sum": (
        lambda: FastRGCNConv(6, 4, num_relations=3, aggr="add"),
        {"edge_type": torch.arange(E + 3) % 3},
    ),
}


def _assert_same(make: Any, x: Any, edge_index: Tensor, **extra: Any) -> None:
    torch.manual_seed(0)
    plain = make().double()
    fast = weft.accelerate(copy.deepcopy(plain))
    for _ in range(2):  # the second call takes what the first one kept
        results = []
        for conv in (plain, fast):
            inputs = [t.clone().requires_grad_() for t in (x if isinstance(x, tuple) else (x,))]
            out = conv(tuple(inputs) if isinstance(x, tuple) else inputs[0], edge_index, **extra)
            conv.zero_grad()
            out.square().sum().backward()
            results.append([out, *(t.grad for t in inputs), *(p.grad for p in conv.parameters())])
        for expected, got in zip(*results):
            if expected is not None:
                torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-8)
    assert len(weft.accelerated(fast)) == 1
    assert fast.state_dict().keys() == plain.state_dict().keys()


@pytest.mark.parametrize("name", SQUARE)
def test_outputs_and_gradients_are_those_of_pyg(name):
    make, extra = SQUARE[name]
    # SGConv with cached=True keeps its input and gives no gradient to it, ours as theirs.
    _assert_same(make, torch.randn(N, 6, dtype=torch.float64), some_edges(), **extra)


BIPARTITE = {
    "sage": lambda: SAGEConv((6, 5), 4),
    "gat": lambda: GATConv((6, 5), 4, heads=2),
    "gat, shared": lambda: GATConv(6, 4, heads=2),
    "gatv2": lambda: GATv2Conv((6, 5), 4, heads=2),
    "graph": lambda: GraphConv((6, 5), 4),
    "gin": lambda: GINConv(mlp()),
    "transformer": lambda: TransformerConv((6, 5), 4),
    "rgcn": lambda: RGCNConv((6, 5), 4, num_relations=3),
}


@pytest.mark.parametrize(("num_src", "num_dst"), [(N, 9), (9, N)])
@pytest.mark.parametrize("name", BIPARTITE)
def test_bipartite_calls_are_those_of_pyg(name, num_src, num_dst):
    widths = (6, 6) if name in ("gat, shared", "gin") else (6, 5)
    x = tuple(torch.randn(n, w, dtype=torch.float64) for n, w in zip((num_src, num_dst), widths))
    edges = torch.stack([torch.randint(0, num_src, (40,)), torch.randint(0, num_dst, (40,))])
    extra = {"edge_type": torch.arange(40) % 3} if name == "rgcn" else {}
    _assert_same(BIPARTITE[name], x, edges, **extra)


def test_training_mode_drops_out_and_obeys_the_seed():
    torch.manual_seed(0)
    fast, x, edges = weft.accelerate(Example()), torch.randn(N, 6), some_edges()
    fast(x, edges)
    torch.manual_seed(1)
    first = fast(x, edges)
    second = fast(x, edges)
    torch.manual_seed(1)
    assert torch.equal(fast(x, edges), first)
    assert not torch.equal(first, second)


class Drawing(nn.Module):
    """A network that draws a number in every call, in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0 * torch.rand(1)


def test_the_comparison_leaves_the_random_state_alone():
    plain, x, edges = GINConv(Drawing()), torch.randn(N, 6), some_edges()
    fast = weft.accelerate(copy.deepcopy(plain))
    numbers = []
    for conv in (plain, fast):
        torch.manual_seed(1)
        conv(x, edges)
        numbers.append(torch.rand(1))
    assert torch.equal(*numbers)


def test_the_comparison_leaves_running_statistics_alone():
    inner = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    fast = weft.accelerate(GINConv(inner))
    fast(torch.randn(N, 6), some_edges())
    assert int(fast.nn[1].num_batches_tracked) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch_geometric.nn.models.GAT(6, 8, 2, 3, heads=2, v2=True),
        lambda: torch_geometric.nn.models.GCN(6, 8, 2, 3, jk="cat"),
        lambda: torch_geometric.nn.models.GraphSAGE(6, 8, 2, 3, norm="batch"),
        lambda: torch_geometric.nn.models.GIN(6, 8, 2, 3),
    ],
)
def test_models_of_pyg(make):
    torch.manual_seed(0)
    plain = make().eval()
    fast = weft.accelerate(copy.deepcopy(plain))
    assert len(weft.accelerated(fast)) == 2
    x, edges = torch.randn(N, 6), some_edges()
    torch.testing.assert_close(fast(x, edges), plain(x, edges), rtol=1e-4, atol=1e-5)


def test_sequential_of_pyg():
    torch.manual_seed(0)
    parts = [(GCNConv(6, 8), "x, edge_index -> x"), nn.ReLU(), (SAGEConv(8, 3), "x, edge_index -> x")]
    plain = torch_geometric.nn.Sequential("x, edge_index", parts)
    fast = weft.accelerate(copy.deepcopy(plain))
    assert len(weft.accelerated(fast)) == 2
    x, edges = torch.randn(N, 6), some_edges()
    torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_edge_index_of_pyg():
    plain = GATConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), some_edges()
    index = torch_geometric.EdgeIndex(edges, sparse_size=(N, N))
    torch.testing.assert_close(fast(x, index), plain(x, edges))


def test_a_changed_edge_index_is_seen():
    plain = SAGEConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain), check=False)
    x, edges = torch.randn(N, 6), some_edges()
    fast(x, edges)
    edges[0, 0] = (edges[0, 0] + 1) % N
    torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_what_is_not_covered_runs_pygs_forward_and_says_so_once():
    plain = GATConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), some_edges()
    with pytest.warns(WeftWarning, match="GATConv runs PyG's own forward: attention weights are asked for"):
        _, (_, alpha) = fast(x, edges, return_attention_weights=True)
    torch.testing.assert_close(alpha, plain(x, edges, return_attention_weights=True)[1][1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(x, edges, return_attention_weights=True)
        torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_a_sparse_adjacency_runs_pygs_forward():
    plain = SAGEConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), torch.unique(some_edges(), dim=1)
    values = torch.ones(edges.shape[1])
    adj_t = torch.sparse_coo_tensor(edges.flip(0), values, (N, N), check_invariants=True).to_sparse_csr()
    with pytest.warns(WeftWarning, match="not as a"):
        out = fast(x, adj_t)
    torch.testing.assert_close(out, plain(x, adj_t))


def test_edge_index_outside_the_graph_is_an_error():
    fast = weft.accelerate(SAGEConv(6, 4), check=False)
    with pytest.raises((IndexError, ValueError)):
        fast(torch.randn(N, 6), torch.tensor([[N], [0]]))


def test_minibatches_of_a_neighbor_loader():
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib") if not (
        torch_geometric.typing.WITH_PYG_LIB
    ) else None
    data = torch_geometric.data.Data(x=torch.randn(N, 6), edge_index=some_edges())
    loader = torch_geometric.loader.NeighborLoader(data, [3, 3], batch_size=5)
    plain = torch_geometric.nn.models.GraphSAGE(6, 8, 2, 3)
    fast = weft.accelerate(copy.deepcopy(plain))
    for batch in loader:
        torch.testing.assert_close(fast(batch.x, batch.edge_index), plain(batch.x, batch.edge_index))


def test_no_graph_edges_and_one_node():
    for make in (
        lambda: GATConv(6, 4),
        lambda: SAGEConv(6, 4),
        lambda: GCNConv(6, 4),
        lambda: GATv2Conv(6, 4),
    ):
        plain = make()
        fast = weft.accelerate(copy.deepcopy(plain))
        x, edges = torch.randn(1, 6), torch.empty(2, 0, dtype=torch.long)
        torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_compiled_models_run_as_before():
    plain = SAGEConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), some_edges()
    compiled = torch.compile(fast, backend="eager")
    torch.testing.assert_close(compiled(x, edges), plain(x, edges))


def test_a_model_that_gains_nothing_says_which_classes_are_covered():
    with pytest.warns(
        WeftWarning, match="nothing in Linear could be accelerated; covered are .*GATConv, .*SAGEConv"
    ):
        weft.accelerate(nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [(3, "expected a PyG model, a torch.nn.Module, got 3"), (GCNConv, "got the class GCNConv; call it")],
)
def test_what_is_no_model_is_refused(given: Any, message: str):
    with pytest.raises(weft.InputError, match=message):
        weft.accelerate(given)
    with pytest.raises(weft.InputError, match=message):
        weft.accelerated(given)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            lambda: SAGEConv(6, 4, aggr="lstm"),
            "SAGEConv runs PyG's own forward: aggregation is LSTMAggregation",
        ),
        (lambda: GENConv(6, 4, aggr="median"), "GENConv runs PyG's own forward: its aggregation is Median"),
        (lambda: SAGEConv(6, 4, flow="target_to_source"), "flow is 'target_to_source'"),
    ],
)
def test_a_convolution_that_no_call_would_be_covered_of_is_told_and_not_listed(make: Any, reason: str):
    with pytest.warns(WeftWarning, match=reason):
        model = weft.accelerate(nn.ModuleList([make(), SAGEConv(6, 4)]))
    assert weft.accelerated(model) == ["1: SAGEConv"]
