"""Messages in a model under torch.compile: compiled by weft, as one operator or between graphs of torch."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.errors import GraphError
from weft.graph.message import compiled, opaque


class Gated(nn.Module):
    """A layer of torch's, a message, and a layer again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(width, 8), nn.Linear(16, 6), nn.Linear(6, 3)

    def forward(self, block: Any, x: Tensor) -> Tensor:
        def message(there: Tensor, here: Tensor) -> Tensor:
            return self.gate(torch.cat([there, here], 1)).sigmoid()  # type: ignore[no-any-return]

        h = self.first(x).relu()
        return self.last(block.propagate(message, src=(h,), dst=(h,)).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "backend",
    ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)],
)
def test_torch_compile_has_the_compiled_message_inside(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=300)
    block, model, calls = graph.block(), Gated(graph.x.shape[1]), []
    plain = compiled.reduce_edges
    monkeypatch.setattr(compiled, "reduce_edges", lambda *given: (calls.append(1), plain(*given))[1])
    found = []
    for called in (model, torch.compile(model, backend=backend)):
        model.zero_grad()
        out = called(block, graph.x)
        out.square().sum().backward()
        found.append([out, *(each.grad for each in model.parameters())])
    assert calls == [1, 1], "once as it is, once between the graphs of torch.compile"
    for want, have in zip(*found):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)


class Attending(Gated):
    """The same with a message that is a method."""

    def __init__(self, width: int, reduce: str = "sum") -> None:
        super().__init__(width)
        self.reduce, self.beside = reduce, nn.Parameter(torch.ones(6))

    def message(self, there: Tensor, here: Tensor) -> Any:
        made = self.gate(torch.cat([there, here], 1))
        return (made[:, 0], made.tanh()) if self.reduce == "softmax" else made.sigmoid() * self.beside

    def forward(self, block: Any, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        made = block.propagate(self.message, src=(h,), dst=(h,), reduce=self.reduce)
        return self.last(made.tanh())  # type: ignore[no-any-return]


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("backend", "reduce"),
    [
        ("aot_eager", "mean"),
        *(pytest.param("aot_eager", each, marks=SLOW) for each in ("sum", "max", "softmax")),
        pytest.param("inductor", "softmax", marks=SLOW),
    ],
)
def test_a_method_is_one_operator_in_one_graph(
    backend: str, reduce: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch._dynamo.reset()
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0)
    model = Attending(5, reduce).double()
    fast = torch.compile(model, backend=backend, fullgraph=True)
    for nodes in (40, 60, 80):  # another number of edges: the second graph takes any
        block, found = weft.datasets.open_dataset(name="community", nodes=nodes).block(), []
        for called in (model, fast):
            x = torch.linspace(-1, 1, nodes * 5).double().reshape(nodes, 5).requires_grad_()
            model.zero_grad()
            with compiled.watched() as asked:
                out = called(block, x)
            out.square().sum().backward()
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
            found.append([out, x.grad, *grads])
            assert len(asked) == 1
            assert not isinstance(asked[0].found, str)
        with torch.no_grad():
            found[0].append(model(block, x))
            found[1].append(fast(block, x))
        for want, have in zip(*found):
            torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


def test_under_autocast_an_operator_has_the_types_and_gradients_of_the_message() -> None:
    torch._dynamo.reset()
    graph = weft.datasets.open_dataset(name="community", nodes=60)
    block, model, found = graph.block(), Attending(graph.x.shape[1]), []
    for called in (model, torch.compile(model, backend="aot_eager", fullgraph=True)):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = called(block, graph.x)
        out.float().square().sum().backward()  # outside of it, as PyTorch advises
        found.append([out, *(each.grad for each in model.parameters())])
    assert found[1][0].dtype == torch.bfloat16
    for want, have in zip(*found):
        torch.testing.assert_close(have, want, rtol=0.02, atol=0.02)


@pytest.mark.slow
def test_the_first_message_of_a_process_may_be_inside_of_torch_compile() -> None:
    code = """
import torch, weft
from torch import nn
class Layer(nn.Module):
    def message(self, there): return there * 2
    def forward(self, block, x): return block.propagate(self.message, src=(x,), reduce="mean").tanh()
graph = weft.datasets.open_dataset(name="community", nodes=60)
torch.compile(Layer(), backend="eager", fullgraph=True)(graph.block(), graph.x)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.slow
def test_changed_parameters_modules_and_modes_are_seen() -> None:
    torch._dynamo.reset()
    graph = weft.datasets.open_dataset(name="community", nodes=60)
    block, model = graph.block(), nn.ModuleList([Attending(graph.x.shape[1])])
    fast = torch.compile(lambda block, x: model[0](block, x), backend="aot_eager", fullgraph=True)
    fast(block, graph.x)
    with torch.no_grad():
        model[0].gate.weight.mul_(2.0)
    torch.testing.assert_close(fast(block, graph.x), model[0](block, graph.x))
    model[0].reduce = "max"
    torch.testing.assert_close(fast(block, graph.x), model[0](block, graph.x))
    model[0] = Attending(graph.x.shape[1])
    torch.testing.assert_close(fast(block, graph.x), model[0](block, graph.x))
    assert torch._dynamo.explain(model[0])(block, graph.x).graph_break_count == 0


class Dropping(Attending):
    """A message that draws."""

    def message(self, there: Tensor, here: Tensor) -> Any:
        return nn.functional.dropout(super().message(there, here), 0.5, self.training)


def test_a_message_that_draws_is_no_operator() -> None:
    torch._dynamo.reset()
    graph = weft.datasets.open_dataset(name="community", nodes=40)
    model, block = Dropping(graph.x.shape[1]), graph.block()
    fast = torch.compile(model, backend="eager")
    found = []
    for called in (model, fast):
        model.zero_grad()
        torch.manual_seed(4)
        called(block, graph.x).sum().backward()
        found.append(model.gate.weight.grad.clone())
    torch.testing.assert_close(*found)
    assert torch._dynamo.explain(model)(block, graph.x).graph_break_count > 0
    assert torch._dynamo.explain(model.eval())(block, graph.x).graph_break_count == 0


class Inherited(Attending):
    """A layer that asks for the message of its parent, beside one of its own."""

    def message(self, there: Tensor, here: Tensor) -> Any:
        return super().message(there, here).exp()

    def forward(self, block: Any, x: Tensor) -> Tensor:
        h = self.first(x).relu()
        return block.propagate(super().message, src=(h,), dst=(h,))  # type: ignore[no-any-return]


def test_the_message_of_a_parent_is_not_taken_for_that_of_the_layer() -> None:
    torch._dynamo.reset()
    graph = weft.datasets.open_dataset(name="community", nodes=40)
    model, block = Inherited(graph.x.shape[1]), graph.block()
    torch.testing.assert_close(torch.compile(model, backend="eager")(block, graph.x), model(block, graph.x))


def test_only_the_blocks_used_last_are_kept() -> None:
    opaque._blocks.clear()
    edges = [(torch.tensor([0, 1]), torch.tensor([0], dtype=torch.int32)) for _ in range(20)]
    blocks = [opaque._block(*each, 1) for each in edges]
    assert opaque._block(*edges[-1], 1) is blocks[-1]
    assert len(opaque._blocks) == opaque._KEPT
    assert opaque._block(*edges[0], 1) is not blocks[0]


class Reading(nn.Module):
    """A message that reads a number, a mode, a list, a buffer and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.k, self.powers, self.linear = 3.0, [1.0], nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("unread", torch.ones(4))

    def message(self, there: Tensor, here: Tensor) -> Tensor:
        wave = (self.linear(there) * here).sin() * self.k * self.powers[0]
        return wave * self.scale * (1.0 if self.training else 5.0)

    def forward(self, block: Any, x: Tensor) -> Tensor:
        return block.propagate(self.message, src=(x,), dst=(x,))  # type: ignore[no-any-return]


CHANGES: dict[str, Any] = {
    "k": 9.0,
    "training": False,
    "powers": [2.0],
    "scale": torch.zeros(4),
    "linear": nn.Tanh(),
    "linear.weight": nn.Parameter(torch.zeros(4, 4)),
    "unread": torch.zeros(4),
}


def test_backward_of_an_operator_reads_what_forward_read() -> None:
    torch._dynamo.reset()
    block = weft.datasets.open_dataset(name="community", nodes=12).block()
    model = Reading()
    fast = torch.compile(model, backend="aot_eager", fullgraph=True)
    start, weight = torch.linspace(-1, 1, 48).reshape(12, 4), model.linear.weight
    x = start.clone().requires_grad_()
    wanted = torch.autograd.grad(model(block, x).sum(), (x, weight))
    for name, other in CHANGES.items():
        x = start.clone().requires_grad_()
        out = fast(block, x)
        model.unread.add_(1)
        *path, last = name.split(".")
        owner = model.get_submodule(".".join(path))
        before = getattr(owner, last)
        setattr(owner, last, other)
        found = torch.autograd.grad(out.sum(), (x, weight))
        setattr(owner, last, before)
        for want, have in zip(wanted, found):
            torch.testing.assert_close(have, want, msg=f"{name} was changed before backward")
    del out
    assert not opaque._states, "kept no longer than backward may ask for it"


def test_backward_of_an_operator_refuses_a_buffer_that_was_written_to() -> None:
    torch._dynamo.reset()
    graph = weft.datasets.open_dataset(name="community", nodes=12)
    model = Reading()
    fast = torch.compile(model, backend="eager", fullgraph=True)
    out = fast(graph.block(), graph.x[:, :4])
    model.scale.mul_(7)
    with pytest.raises(GraphError, match="written to in place before backward"):
        out.sum().backward()
