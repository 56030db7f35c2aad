"""What becomes of a convolution after it was accelerated is honoured: PyG's own forward runs."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate_cases import N, mlp, some_edges
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch_geometric.nn import (
    FastRGCNConv,
    GATConv,
    GCNConv,
    GINConv,
    GraphConv,
    MessagePassing,
    RGCNConv,
    SAGEConv,
    SGConv,
)
from torch_geometric.nn.aggr import MaxAggregation, SumAggregation

import weft
from weft.errors import WeftWarning
from weft.graph.message import compiled

X = torch.randn(N, 6, generator=torch.Generator().manual_seed(0))


def doubled(x_j: Tensor, *others: Any, **more: Any) -> Tensor:
    return 2 * x_j


class Bent(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).tanh()


class Own(MessagePassing):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.propagate(edge_index, x=x)

    def message(self, x_j: Tensor, x_i: Tensor) -> Tensor:
        return x_j.sigmoid() * x_i


def flow(conv: Any) -> None:
    conv.flow = "target_to_source"


def message(conv: Any) -> None:
    conv.message = doubled


def reduced(conv: Any) -> None:
    conv.aggr_module.forward = lambda x, dim_size, **more: x.new_ones(dim_size, x.shape[1])


def hooked(name: str) -> Callable[[Any], None]:
    def change(conv: Any) -> None:
        getattr(conv, name).register_forward_hook(lambda module, given, out: out * 3)

    return change


def put(name: str, make: Callable[[], nn.Module]) -> Callable[[Any], None]:
    def change(conv: Any) -> None:
        torch.manual_seed(7)
        setattr(conv, name, make())

    return change


CHANGES: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], None], str]] = {
    "flow": (lambda: SAGEConv(6, 4), flow, "flow is 'target_to_source'"),
    "message": (lambda: GINConv(mlp()), message, r"its message\(\) is not PyG's"),
    "message of gcn": (lambda: GCNConv(6, 4), message, r"its message\(\) is not PyG's"),
    "map": (lambda: GCNConv(6, 4), put("lin", lambda: Bent(6, 4, bias=False)), "its lin is a Bent"),
    "map behind": (lambda: GCNConv(4, 6), put("lin", lambda: Bent(4, 6, bias=False)), "its lin is a Bent"),
    "map of sage": (lambda: SAGEConv(6, 4), put("lin_l", lambda: Bent(6, 4)), "its lin_l is a Bent"),
    "bias of gcn": (lambda: GCNConv(6, 8), put("lin", lambda: nn.Linear(6, 8)), "its lin has a bias"),
    "bias of gat": (lambda: GATConv((6, 6), 4), put("lin_dst", lambda: nn.Linear(6, 4)), "has a bias"),
    "hook of a map": (lambda: GraphConv(6, 4), hooked("lin_rel"), "its lin_rel has hooks"),
    "hook of sgc": (lambda: SGConv(6, 4, K=2), hooked("lin"), "its lin has hooks"),
    "hook of a sum": (lambda: SAGEConv(6, 4), hooked("aggr_module"), "its aggr_module has hooks"),
    "aggregation": (lambda: GCNConv(6, 4), put("aggr_module", MaxAggregation), "its aggregation is max"),
    "aggregation of rgcn": (
        lambda: RGCNConv(6, 4, 3),
        put("aggr_module", MaxAggregation),
        "aggregation than",
    ),
    "sum of rgcn": (lambda: RGCNConv(6, 4, 3), put("aggr_module", SumAggregation), ""),
    "name of fast rgcn": (lambda: FastRGCNConv(6, 4, 3), lambda conv: setattr(conv, "aggr", "sum"), ""),
    "forward of a sum": (lambda: GraphConv(6, 4), reduced, "its aggr_module is a SumAggregation"),
    "flow of an own one": (Own, flow, "flow is 'target_to_source'"),
    "own message": (Own, message, ""),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_convolution_became_since_its_first_call_is_honoured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)
    make, change, told = CHANGES[name]
    torch.manual_seed(1)
    plain = make()
    fast, edges = weft.accelerate(copy.deepcopy(plain)), some_edges()
    x = X[:, : getattr(plain, "in_channels", 6)] if not isinstance(plain, GATConv) else (X, X)
    given = (x, edges, torch.arange(edges.shape[1]) % 3) if isinstance(plain, RGCNConv) else (x, edges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(fast(*given), plain(*given))
    before = plain(*given)
    for each in (plain, fast):
        change(each)
    with warnings.catch_warnings() if not told else pytest.warns(WeftWarning, match=told):
        found = fast(*given)
    torch.testing.assert_close(found, plain(*given))
    assert not torch.allclose(found, before)


def test_a_class_that_is_patched_later_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, edges = weft.accelerate(SAGEConv(6, 4)), some_edges()
    fast(X, edges)
    monkeypatch.setattr(SAGEConv, "forward", lambda self, x, edge_index, size=None: x * 5)
    with pytest.warns(WeftWarning, match=r"its forward\(\) is not PyG's"):
        torch.testing.assert_close(fast(X, edges), X * 5)


def test_hooks_of_all_modules_that_come_later_are_called() -> None:
    plain = GraphConv(6, 4)
    fast, edges = weft.accelerate(copy.deepcopy(plain)), some_edges()
    fast(X, edges)
    hook = register_module_forward_hook(
        lambda module, given, out: out + 1 if isinstance(module, nn.Linear | type(plain.lin_rel)) else None
    )
    try:
        with pytest.warns(WeftWarning, match="hooks are registered for all modules"):
            found = fast(X, edges)
        torch.testing.assert_close(found, plain(X, edges))
    finally:
        hook.remove()


def test_what_is_made_as_before_stays_accelerated() -> None:
    """Lazy sizes, parametrisations and other numbers are no reason for PyG's forward."""
    lazy = weft.accelerate(SAGEConv(-1, 4))
    plain, edges = nn.utils.parametrizations.weight_norm(nn.Linear(6, 4, bias=False)), some_edges()
    fast = weft.accelerate(GCNConv(6, 4))
    fast.lin = plain
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(lazy(X, edges), lazy(X, edges))
        found = fast(X, edges)
    own = GCNConv(6, 4)
    own.lin, own.bias = fast.lin, fast.bias
    torch.testing.assert_close(found, own(X, edges))


def test_a_map_whose_forward_was_replaced_is_not_multiplied_with() -> None:
    from weft.interop.pyg.accelerate.as_made import changed

    conv: Any = weft.accelerate(GCNConv(6, 4))
    assert not changed(conv)
    conv.lin.forward = doubled
    assert changed(conv) == "its lin is a Linear"
