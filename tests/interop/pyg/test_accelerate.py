"""weft.accelerate: a PyG model gives the same numbers, keeps its state, and says when it is not helped."""

import copy
import io
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor, nn
from torch_geometric.nn import (
    APPNP,
    FastRGCNConv,
    GATConv,
    GATv2Conv,
    GCNConv,
    GINConv,
    GINEConv,
    GraphConv,
    RGCNConv,
    SAGEConv,
    SGConv,
    TransformerConv,
)

import weft
from weft.errors import WeftWarning

N, E = 20, 90


def _mlp(width: int = 6) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 4))


def _edges(num_src: int = N, num_dst: int = N, count: int = E) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    src = torch.randint(0, num_src - 2, (count,), generator=generator)  # the last two rows are isolated
    dst = torch.randint(0, num_dst - 2, (count,), generator=generator)
    loops = torch.tensor([3, 3, 7])
    return torch.stack([torch.cat([src, loops]), torch.cat([dst, loops])])


def _attr(width: int | None) -> Tensor:
    generator = torch.Generator().manual_seed(6)
    shape = (E + 3,) if width is None else (E + 3, width)
    return torch.rand(shape, generator=generator, dtype=torch.float64)


SQUARE: dict[str, tuple[Any, dict[str, Any]]] = {
    "gcn": (lambda: GCNConv(6, 4), {}),
    "gcn widening": (lambda: GCNConv(6, 9, bias=False), {}),
    "gcn without loops": (lambda: GCNConv(6, 4, add_self_loops=False), {}),
    "gcn improved": (lambda: GCNConv(6, 4, improved=True), {}),
    "gcn cached": (lambda: GCNConv(6, 4, cached=True), {}),
    "gcn weighted": (lambda: GCNConv(6, 4), {"edge_weight": _attr(None)}),
    "gcn weighted, cached": (lambda: GCNConv(6, 4, cached=True), {"edge_weight": _attr(None)}),
    "gcn not normalised": (lambda: GCNConv(6, 4, normalize=False), {"edge_weight": _attr(None)}),
    "sage mean": (lambda: SAGEConv(6, 4), {}),
    "sage widening": (lambda: SAGEConv(6, 9), {}),
    "sage max": (lambda: SAGEConv(6, 4, aggr="max"), {}),
    "sage sum": (lambda: SAGEConv(6, 4, aggr="sum", root_weight=False), {}),
    "sage all options": (lambda: SAGEConv(6, 4, normalize=True, project=True, bias=False), {}),
    "graph": (lambda: GraphConv(6, 4), {}),
    "graph weighted mean": (lambda: GraphConv(6, 4, aggr="mean"), {"edge_weight": _attr(None)}),
    "gin": (lambda: GINConv(_mlp(), eps=0.2, train_eps=True), {}),
    "gine": (lambda: GINEConv(_mlp()), {"edge_attr": _attr(6)}),
    "gine with edge_dim": (lambda: GINEConv(_mlp(), edge_dim=3), {"edge_attr": _attr(3)}),
    "sgc": (lambda: SGConv(6, 4, K=2), {}),
    "sgc widening": (lambda: SGConv(6, 9, K=2), {"edge_weight": _attr(None)}),
    "sgc cached": (lambda: SGConv(6, 4, K=2, cached=True), {}),
    "appnp": (lambda: APPNP(K=3, alpha=0.1), {}),
    "gat": (lambda: GATConv(6, 4, heads=2), {}),
    "gat averaged": (lambda: GATConv(6, 4, heads=3, concat=False, residual=True), {}),
    "gat without loops": (lambda: GATConv(6, 4, add_self_loops=False, bias=False), {}),
    "gat with edges": (lambda: GATConv(6, 4, heads=2, edge_dim=3), {"edge_attr": _attr(3)}),
    "gat filled": (lambda: GATConv(6, 4, edge_dim=1, fill_value=0.7), {"edge_attr": _attr(None)}),
    "gatv2": (lambda: GATv2Conv(6, 4, heads=2), {}),
    "gatv2 shared": (lambda: GATv2Conv(6, 4, heads=2, share_weights=True, concat=False), {}),
    "gatv2 with edges": (lambda: GATv2Conv(6, 4, heads=2, edge_dim=3), {"edge_attr": _attr(3)}),
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
    _assert_same(make, torch.randn(N, 6, dtype=torch.float64), _edges(), **extra)


BIPARTITE = {
    "sage": lambda: SAGEConv((6, 5), 4),
    "gat": lambda: GATConv((6, 5), 4, heads=2),
    "gat, shared": lambda: GATConv(6, 4, heads=2),
    "gatv2": lambda: GATv2Conv((6, 5), 4, heads=2),
    "graph": lambda: GraphConv((6, 5), 4),
    "gin": lambda: GINConv(_mlp()),
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


def test_node_numbers_in_place_of_features_are_those_of_pyg():
    edges, kinds = _edges(), torch.arange(E + 3) % 3
    plain = RGCNConv(N, 4, num_relations=3, num_bases=2)
    fast = weft.accelerate(copy.deepcopy(plain))
    torch.testing.assert_close(fast(None, edges, kinds), plain(None, edges, kinds))


class Example(nn.Module):
    """PyG's GAT example."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.conv1 = GATConv(width, 8, heads=8, dropout=0.6)
        self.conv2 = GATConv(64, 3, heads=1, concat=False, dropout=0.6)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = F.dropout(x, p=0.6, training=self.training)
        x = F.elu(self.conv1(x, edge_index))
        x = F.dropout(x, p=0.6, training=self.training)
        return self.conv2(x, edge_index)


def test_model_keeps_its_state_its_classes_and_its_copies():
    plain = Example()
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    fast = weft.accelerate(plain)
    assert fast is plain
    assert isinstance(fast.conv1, GATConv)
    assert weft.accelerated(fast) == ["conv1: GATConv", "conv2: GATConv"]
    assert fast.state_dict().keys() == before.keys()
    fast.load_state_dict(before)
    twin = copy.deepcopy(fast).eval()
    x, edges = torch.randn(N, 6), _edges()
    assert torch.equal(twin(x, edges), fast.eval()(x, edges))
    assert weft.accelerated(twin) == weft.accelerated(fast)
    assert twin.conv1.lin.weight is not fast.conv1.lin.weight


def test_model_can_be_saved_whole():
    fast = weft.accelerate(Example()).eval()
    buffer = io.BytesIO()
    torch.save(fast, buffer)
    again = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    x, edges = torch.randn(N, 6), _edges()
    assert torch.equal(again(x, edges), fast(x, edges))
    assert weft.accelerated(again) == weft.accelerated(fast)


def test_accelerating_twice_changes_nothing():
    fast = weft.accelerate(weft.accelerate(Example()))
    assert weft.accelerated(fast) == ["conv1: GATConv", "conv2: GATConv"]
    assert len(fast._forward_pre_hooks) == 1


def test_training_mode_drops_out_and_obeys_the_seed():
    torch.manual_seed(0)
    fast, x, edges = weft.accelerate(Example()), torch.randn(N, 6), _edges()
    fast(x, edges)
    torch.manual_seed(1)
    first = fast(x, edges)
    second = fast(x, edges)
    torch.manual_seed(1)
    assert torch.equal(fast(x, edges), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("make", [GATConv, GATv2Conv, TransformerConv])
def test_attention_weights_are_dropped_in_training_only(make):
    fast, x, edges = weft.accelerate(make(6, 4, dropout=0.5)), torch.randn(N, 6), _edges()
    assert not torch.equal(fast(x, edges), fast(x, edges))
    fast.eval()
    assert torch.equal(fast(x, edges), fast(x, edges))


class Drawing(nn.Module):
    """A network that draws a number in every call, in evaluation too."""

    def forward(self, x: Tensor) -> Tensor:
        return x + 0 * torch.rand(1)


def test_the_comparison_leaves_the_random_state_alone():
    plain, x, edges = GINConv(Drawing()), torch.randn(N, 6), _edges()
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
    fast(torch.randn(N, 6), _edges())
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
    x, edges = torch.randn(N, 6), _edges()
    torch.testing.assert_close(fast(x, edges), plain(x, edges), rtol=1e-4, atol=1e-5)


def test_sequential_of_pyg():
    torch.manual_seed(0)
    parts = [(GCNConv(6, 8), "x, edge_index -> x"), nn.ReLU(), (SAGEConv(8, 3), "x, edge_index -> x")]
    plain = torch_geometric.nn.Sequential("x, edge_index", parts)
    fast = weft.accelerate(copy.deepcopy(plain))
    assert len(weft.accelerated(fast)) == 2
    x, edges = torch.randn(N, 6), _edges()
    torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_edge_index_of_pyg():
    plain = GATConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), _edges()
    index = torch_geometric.EdgeIndex(edges, sparse_size=(N, N))
    torch.testing.assert_close(fast(x, index), plain(x, edges))


def test_a_changed_edge_index_is_seen():
    plain = SAGEConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain), check=False)
    x, edges = torch.randn(N, 6), _edges()
    fast(x, edges)
    edges[0, 0] = (edges[0, 0] + 1) % N
    torch.testing.assert_close(fast(x, edges), plain(x, edges))


def test_what_is_not_covered_runs_pygs_forward_and_says_so_once():
    plain = GATConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), _edges()
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
    x, edges = torch.randn(N, 6), torch.unique(_edges(), dim=1)
    values = torch.ones(edges.shape[1])
    adj_t = torch.sparse_coo_tensor(edges.flip(0), values, (N, N), check_invariants=True).to_sparse_csr()
    with pytest.warns(WeftWarning, match="not as a"):
        out = fast(x, adj_t)
    torch.testing.assert_close(out, plain(x, adj_t))


def test_a_subclass_with_its_own_message_is_left_alone():
    class Mine(SAGEConv):
        def message(self, x_j: Tensor) -> Tensor:
            return 2 * x_j

    model = weft.accelerate(nn.ModuleList([Mine(6, 4), SAGEConv(6, 4)]))
    assert weft.accelerated(model) == ["1: SAGEConv"]


def test_a_convolution_that_disagrees_goes_back_to_its_own_forward(monkeypatch):
    from weft.interop.pyg.accelerate import swap

    fast = weft.accelerate(GINConv(_mlp()))
    plain = copy.deepcopy(fast)
    x, edges = torch.randn(N, 6), _edges()
    monkeypatch.setattr(swap, "_difference", lambda got, expected: 0.5)
    with pytest.warns(WeftWarning, match=r"differs from PyG's own result by 5.0e-01"):
        out = fast(x, edges)
    monkeypatch.undo()
    assert weft.accelerated(fast) == []
    torch.testing.assert_close(out, plain(x, edges))
    assert torch.equal(out, fast(x, edges))


def test_message_hooks_are_called():
    fast = weft.accelerate(SAGEConv(6, 4), check=False)
    called = []
    fast.register_message_forward_pre_hook(lambda module, inputs: called.append(1))
    with pytest.warns(WeftWarning, match="hooks"):
        fast(torch.randn(N, 6), _edges())
    assert called


def test_edge_index_outside_the_graph_is_an_error():
    fast = weft.accelerate(SAGEConv(6, 4), check=False)
    with pytest.raises((IndexError, ValueError)):
        fast(torch.randn(N, 6), torch.tensor([[N], [0]]))


def test_edge_weight_gets_its_gradient():
    plain = GCNConv(6, 4)
    fast = weft.accelerate(copy.deepcopy(plain))
    x, edges = torch.randn(N, 6), _edges()
    grads = []
    for conv in (plain, fast):
        weight = _attr(None).float().requires_grad_()
        conv(x, edges, weight).square().sum().backward()
        grads.append(weight.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-5)


def test_minibatches_of_a_neighbor_loader():
    pytest.importorskip("torch_sparse", reason="NeighborLoader needs torch-sparse or pyg-lib") if not (
        torch_geometric.typing.WITH_PYG_LIB
    ) else None
    data = torch_geometric.data.Data(x=torch.randn(N, 6), edge_index=_edges())
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
    x, edges = torch.randn(N, 6), _edges()
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
        (lambda: GINEConv(_mlp(), aggr="max"), "GINEConv runs PyG's own forward: its aggregation is max"),
        (lambda: TransformerConv(6, 4, edge_dim=3), "it reads features of edges"),
        (lambda: RGCNConv(6, 4, num_relations=3, num_blocks=2), "block-diagonal"),
        (lambda: SAGEConv(6, 4, flow="target_to_source"), "flow is 'target_to_source'"),
    ],
)
def test_a_convolution_that_no_call_would_be_covered_of_is_told_and_not_listed(make: Any, reason: str):
    with pytest.warns(WeftWarning, match=reason):
        model = weft.accelerate(nn.ModuleList([make(), SAGEConv(6, 4)]))
    assert weft.accelerated(model) == ["1: SAGEConv"]


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_learned_features_of_edges_get_their_gradient(edge_dim: int | None):
    plain = GINEConv(_mlp(), edge_dim=edge_dim).double()
    fast = weft.accelerate(copy.deepcopy(plain))
    edges, x = _edges(), torch.randn(N, 6, dtype=torch.float64)
    attr = torch.randn(edges.shape[1], edge_dim or 6, dtype=torch.float64)
    found = []
    for conv in (plain, fast):
        given = attr.clone().requires_grad_()
        out = conv(x, edges, given)
        out.square().sum().backward()
        found.append((out, given.grad))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_gine_keeps_a_byte_a_message_for_backward():
    conv = weft.accelerate(GINEConv(nn.Identity()), check=False)
    x, edges = torch.randn(N, 6, requires_grad=True), _edges()
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        conv(x, edges, torch.randn(edges.shape[1], 6)).sum().backward()
    assert max(kept) <= 6 * edges.shape[1]
