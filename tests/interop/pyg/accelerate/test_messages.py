"""`weft.accelerate` compiles the messages of PyG's convolutions and of a user's own: PyG's numbers."""

import copy
import importlib.util
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_checks import DEVICE
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

import weft
from weft.compiler.spent import SPENT
from weft.errors import WeftWarning
from weft.graph.message import compiled

pyg = pytest.importorskip("torch_geometric.nn")
utils = pytest.importorskip("torch_geometric.utils")
_spec = importlib.util.spec_from_file_location(
    "convolutions_page", Path(__file__).parents[4] / "docs" / "convolutions_page.py"
)
assert _spec is not None
assert _spec.loader is not None
page = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(page)


@pytest.fixture(autouse=True)
def on_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)


class Own(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """A user's convolution: a gate of both ends and the edge, a setting, an update."""

    def __init__(self, aggr: str = "add") -> None:
        super().__init__(aggr=aggr)
        self.both, self.edge = nn.Linear(12, 4), nn.Linear(3, 4)
        self.slope = 0.2

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Any:
        return self.propagate(edge_index, x=x, edge_attr=edge_attr, scale=2.0)

    def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor, scale: float) -> Tensor:
        gate = torch.sigmoid(self.both(torch.cat([x_i, x_j], -1)))
        return gate * nn.functional.leaky_relu(self.edge(edge_attr), self.slope) * scale

    def update(self, inputs: Tensor, x: Tensor) -> Tensor:
        return torch.cat([inputs, x], -1)


def results(conv: nn.Module, args: list[Any]) -> list[Tensor]:
    """Return the outputs and the gradients of all inputs and parameters."""
    leaves = [t for t in (*tree_leaves(args), *conv.parameters()) if t.requires_grad]
    made = tree_leaves(conv(*args))
    outs = [out for out in made if out.requires_grad]
    if not outs:
        return made
    grads = torch.autograd.grad(outs, leaves, [_slope(out) for out in outs], allow_unused=True)
    return [*made, *(torch.zeros_like(t) if g is None else g for t, g in zip(leaves, grads))]


def _slope(out: Tensor) -> Tensor:
    return torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).reshape(out.shape)


def _on_device(each: Tensor) -> Tensor:
    return each.detach().to(DEVICE).requires_grad_(each.requires_grad)


def test_the_page_has_all_of_pygs_list() -> None:
    assert page.untried(list(page.cases())) == []


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(page.cases()))
def test_a_convolution_gives_pygs_outputs_and_gradients(name: str) -> None:
    make, names = page.cases()[name]
    torch.manual_seed(0)
    conv = make().double().eval().to(DEVICE)
    args = tree_map_only(Tensor, _on_device, page.arguments(names))
    fast = copy.deepcopy(conv)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WeftWarning)
        weft.accelerate(fast)
        found = results(fast, args)
    for ours, theirs in zip(found, results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min"])
def test_a_users_own_is_compiled(aggr: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    conv = Own(aggr).double()
    fast, args = weft.accelerate(copy.deepcopy(conv)), page.arguments(("edge_attr",))
    assert weft.accelerated(fast) == ["model: Own"]
    first = results(fast, args)
    monkeypatch.setattr(pyg.aggr.Aggregation, "__call__", None)  # PyG's own way is not taken
    for again in (first, results(fast, args)):
        monkeypatch.undo()
        for ours, theirs in zip(again, results(conv, args), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
@pytest.mark.parametrize("name", ["GATConv", "GCNConv", "GINConv", "RGCNConv", "SAGEConv", "TransformerConv"])
def test_hand_made_forwards_run_on_a_gpu(name: str) -> None:
    make, names = page.cases()[name]
    fast = weft.accelerate(make().to(DEVICE))
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeftWarning)
        assert fast(*(each.to(DEVICE) for each in page.arguments(names, torch.float32))).is_cuda


class Attending(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """A user's convolution that takes the softmax of its rows."""

    def __init__(self, aggr: Any = "add") -> None:
        super().__init__(aggr=aggr)
        self.both = nn.Linear(12, 4)

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.propagate(edge_index, x=x)

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        score = self.both(torch.cat([x_i, x_j], -1))
        return utils.softmax(score.tanh(), index, ptr, size_i) * x_j[:, :4]  # type: ignore[no-any-return]


class Gating(Attending):
    """The same, of rows that two other values of the edge weigh."""

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        attended = super().message(x_i, x_j, index, ptr, size_i)
        return attended * x_j[:, 2:] * 0.5  # type: ignore[no-any-return]


def test_a_softmax_among_several_factors_is_one_reduction_of_all_of_them() -> None:
    torch.manual_seed(0)
    conv = Gating().double()
    fast, args = weft.accelerate(copy.deepcopy(conv)), page.arguments(())
    with compiled.watched() as asked:
        found = results(fast, args)
    made = asked[0].found[0]
    assert [each.kind for each in made.reductions] == ["softmax"]
    for ours, theirs in zip(found, results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("aggr", ["add", "max", ["mean", "std", "max"], "softmax", "powermean"])
def test_a_softmax_of_rows_and_any_aggregation_are_compiled(aggr: Any) -> None:
    torch.manual_seed(0)
    conv = Attending(aggr).double()
    fast, args = weft.accelerate(copy.deepcopy(conv)), page.arguments(())
    with warnings.catch_warnings(), compiled.watched() as asked:
        warnings.simplefilter("error", WeftWarning)
        found = results(fast, args)
    assert page.on_edges(asked[0].found) == "program"
    for ours, theirs in zip(found, results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_a_forward_that_insists_on_attention_weights_runs_again() -> None:
    conv = pyg.RGATConv(6, 4, 2).double().eval()
    fast, args = weft.accelerate(copy.deepcopy(conv)), page.arguments(("edge_type",))
    for _ in range(2):  # the first call compares, and runs PyG's own message for it
        torch.testing.assert_close(fast(*args), conv(*args))


def test_attention_weights_are_pygs_own() -> None:
    torch.manual_seed(0)
    conv = pyg.TransformerConv(6, 4, edge_dim=3).double()
    fast, args = weft.accelerate(copy.deepcopy(conv)), page.arguments(("edge_attr",))
    for keyword in (True, False):
        asked = {"return_attention_weights": True}
        ours, theirs = (
            each(*args, **asked) if keyword else each(*args, *asked.values()) for each in (fast, conv)
        )
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(fast(*args), conv(*args))
    assert weft.accelerated(fast) == ["model: TransformerConv"]


def test_switched_off_pygs_own_runs() -> None:
    fast, args = weft.accelerate(Attending().double()), page.arguments(())
    on = fast(*args)
    before = weft.compile_messages(False)
    try:
        with compiled.watched() as asked:
            torch.testing.assert_close(fast(*args), on)
    finally:
        weft.compile_messages(before)
    assert not asked


def test_rows_of_static_graphs_are_along_the_second_axis() -> None:
    torch.manual_seed(0)
    conv = pyg.SimpleConv("max").double()
    fast, (_, edge_index) = weft.accelerate(copy.deepcopy(conv)), page.arguments(())
    x = torch.randn(3, page.NODES, 6, dtype=torch.float64, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WeftWarning)
        found = results(fast, [x, edge_index])
    for ours, theirs in zip(found, results(conv, [x, edge_index]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("edge_dim", [None, 3])
def test_fewer_edges_than_nodes_are_compiled_where_nothing_runs_on_nodes(edge_dim: int | None) -> None:
    torch.manual_seed(0)
    conv = pyg.GINEConv(nn.Linear(6, 4), edge_dim=edge_dim).double()
    fast, width = weft.accelerate(copy.deepcopy(conv)), edge_dim or 6
    args = [torch.randn(20, 6), torch.randint(0, 20, (2, 15)), torch.randn(15, width)]
    args = [each.double().requires_grad_() if each.is_floating_point() else each for each in args]
    with compiled.watched() as asked:
        found = results(fast, args)
    assert page.on_edges(asked[-1].found) == "program"
    for ours, theirs in zip(found, results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
    with compiled.watched() as asked:
        weft.accelerate(Attending().double())(*args[:2])
    assert not asked, "its linear maps would run on all nodes"


def test_messages_are_not_kept_for_backward() -> None:
    conv = weft.accelerate(pyg.GINEConv(nn.Identity()), check=False)
    x, edges, attr = torch.randn(20, 6, requires_grad=True), torch.randint(0, 20, (2, 90)), torch.randn(90, 6)
    conv(x, edges, attr)  # which compiles it
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        conv(x, edges, attr).sum().backward()
    assert sum(kept.values()) < 2 * attr.numel() * attr.element_size()


def test_a_changed_setting_is_seen() -> None:
    fast, args = weft.accelerate(Own().double()), page.arguments(("edge_attr",))
    before = fast(*args)
    fast.slope = 0.9
    assert not torch.allclose(fast(*args), before)


def test_copies_and_pickles_stay_accelerated() -> None:
    fast, args = weft.accelerate(Own().double()), page.arguments(("edge_attr",))
    expected = fast(*args)
    for made in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        assert weft.accelerated(made) == ["model: Own"]
        torch.testing.assert_close(made(*args), expected)
        assert isinstance(made, Own)


def test_convolutions_of_one_class_share_what_was_compiled() -> None:
    args = page.arguments(("edge_attr",))
    weft.accelerate(Own().double())(*args)
    before = SPENT.messages
    for _ in range(3):
        weft.accelerate(Own().double())(*args)
    assert SPENT.messages == before


class InTraining(Attending):
    """Compiled in training, in evaluation not."""

    def message(self, x_i: Tensor, x_j: Tensor, index: Tensor, ptr: Any, size_i: Any) -> Tensor:
        return x_j - x_i if self.training else nn.functional.dropout(x_j, 0.5, True) * 0 - x_i


def test_what_cannot_be_compiled_to_be_compared_runs_as_pyg_has_it() -> None:
    conv, args = InTraining().double(), page.arguments(())
    fast = weft.accelerate(copy.deepcopy(conv))
    with pytest.warns(WeftWarning, match="runs PyG's own propagate: its message is not compiled: it draws"):
        torch.testing.assert_close(fast(*args), conv(*args))


def test_what_is_not_compiled_says_why_once_and_runs() -> None:
    class Drawing(Own):
        def message(self, x_i: Tensor, x_j: Tensor, edge_attr: Tensor, scale: float) -> Tensor:
            return nn.functional.dropout(super().message(x_i, x_j, edge_attr, scale), 0.5)

    fast, args = weft.accelerate(Drawing().double()), page.arguments(("edge_attr",))
    with pytest.warns(WeftWarning, match="Drawing runs PyG's own propagate: its message is not compiled"):
        fast(*args)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(*args)


def test_the_page_of_convolutions_is_up_to_date() -> None:
    assert page.PAGE.read_text() == "\n".join(page.lines()) + "\n", "run python docs/convolutions_page.py"


class ByRelation(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """A user's convolution with a matrix by relation, as PyG's own FastRGCNConv has it."""

    def __init__(self, aggr: str) -> None:
        super().__init__(aggr=aggr)
        self.weight, self.bias = nn.Parameter(torch.randn(4, 6, 3)), nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Any:
        return self.propagate(edge_index, x=x, edge_type=edge_type)

    def message(self, x_j: Tensor, edge_type: Tensor) -> Tensor:
        return torch.bmm(x_j.unsqueeze(-2), self.weight[edge_type]).squeeze(-2) + self.bias[edge_type]


@pytest.mark.parametrize("aggr", ["add", "mean", "max"])
def test_a_matrix_by_relation_is_a_product_of_pairs(aggr: str) -> None:
    torch.manual_seed(0)
    conv = ByRelation(aggr).double()
    x, edge_index = page.arguments(())[:2]
    args = [x, edge_index, torch.arange(edge_index.shape[1]) % 3]  # the last relation has no edges
    fast = weft.accelerate(copy.deepcopy(conv))
    with compiled.watched() as asked:
        found = results(fast, args)
    assert asked
    assert all(not isinstance(each.found, str) and each.found[0].by_relation for each in asked)
    for ours, theirs in zip(found, results(conv, args), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)
