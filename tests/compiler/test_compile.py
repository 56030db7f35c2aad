"""Messages as users write them: compiled and run, against plain torch in values and gradients."""

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.support.messages import assert_same, compiled_result, forms_of, plain_result, run_compiled
from tests.support.programs import edges_of
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from weft.compiler import compile as compile_module
from weft.compiler import stages
from weft.compiler.compile import Compiled, compile_message, compiled
from weft.compiler.graphs import aten, emit
from weft.compiler.passes import PASSES
from weft.compiler.tracing.captures import NotCompiled, captures

torch.manual_seed(0)
EDGES = edges_of(7)
WIDE = torch.float64


def rows(count: int, *shape: int) -> Tensor:
    return torch.randn(count, *shape, dtype=WIDE, requires_grad=True)


U, V, E = rows(EDGES.num_other, 8), rows(EDGES.num_rows, 8), rows(EDGES.num_edges, 1)
GATE, VALUE = nn.Linear(16, 6).to(WIDE), nn.Linear(16, 6).to(WIDE)
BOTH = nn.Linear(16, 12).to(WIDE)
MLP = nn.Sequential(nn.Linear(16, 8), nn.ReLU(inplace=True), nn.Linear(8, 5)).to(WIDE)
NARROW = nn.Linear(8, 3).to(WIDE)
NORM = nn.LayerNorm(8).to(WIDE)
MIXED = nn.Linear(8, 24, bias=False).to(WIDE)
TABLE = nn.Embedding(4, 8).to(WIDE)
HEADS = torch.randn(2, 4, dtype=WIDE, requires_grad=True)
KINDS = torch.randint(0, 4, (EDGES.num_edges,))
SLOPE = torch.full((1,), 0.3, dtype=WIDE, requires_grad=True)
SCALE, VECTOR = (torch.randn(shape, dtype=WIDE, requires_grad=True) for shape in ((), (8,)))
NORMED, FIXED = nn.BatchNorm1d(8).to(WIDE).eval(), nn.BatchNorm1d(8, affine=False).to(WIDE).eval()
for each in (NORMED, FIXED):
    each.running_mean.normal_()  # type: ignore[union-attr]
    each.running_var.uniform_(0.5, 2.0)  # type: ignore[union-attr]
MEANS = torch.randn(3, 1, dtype=WIDE, requires_grad=True)


def gated(u: Tensor, v: Tensor) -> Tensor:
    both = torch.cat([u, v], -1)
    return torch.sigmoid(GATE(both)) * VALUE(both).relu()


def halves(u: Tensor, v: Tensor) -> Tensor:
    gate, value = BOTH(torch.cat([u, v], -1)).chunk(2, -1)
    return gate.sigmoid() * value.tanh()


def edge_conv(u: Tensor, v: Tensor) -> Tensor:
    return MLP(torch.cat([v, u - v], dim=-1))  # type: ignore[no-any-return]


def weighed(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
    return edge_conv(u, v) * e


def distance(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
    return (u - v).norm(dim=-1, keepdim=True) * torch.exp(-e) * u


def attention(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    u, v = u.view(-1, 2, 4), v.view(-1, 2, 4)
    return F.leaky_relu((u * HEADS).sum(-1) + (v * HEADS).sum(-1), 0.2), u


def attention_v2(u: Tensor, v: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    u, v = u.view(-1, 2, 4), v.view(-1, 2, 4)
    return (F.leaky_relu(u + v + e.unsqueeze(-1), 0.2) * HEADS).sum(-1), u


def one_head(u: Tensor, v: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
    return (u * v).sum(-1) / 3 + e[:, 0], NARROW(u - v)


def gaussians(u: Tensor, e: Tensor) -> Tensor:
    weight = (-0.5 * (e.unsqueeze(1) - MEANS).square()).sum(-1).exp()  # [E, 3]
    return (weight.unsqueeze(-1) * u.unsqueeze(1)).sum(1)


def mixture(u: Tensor, e: Tensor) -> Tensor:
    weight = (-0.5 * (e.unsqueeze(1) - MEANS).square()).sum(-1).exp()  # [E, 3]
    return (weight.unsqueeze(-1) * MIXED(u).view(-1, 3, 8)).sum(1)  # type: ignore[no-any-return]


def mixture_of_pairs(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
    return (MIXED((u * v).relu()).view(-1, 3, 8) * (e.unsqueeze(1) - MEANS)).sum(-2)  # type: ignore[no-any-return]


def normalised(u: Tensor, v: Tensor) -> Tensor:
    return NORM(u + v).relu()  # type: ignore[no-any-return]


def joined(u: Tensor, v: Tensor) -> Tensor:
    return torch.cat([u, u - v], -1)


def per_head(u: Tensor, v: Tensor) -> Tensor:
    return torch.matmul((u - v).tanh().view(-1, 2, 4), HEADS.t()).flatten(1)


def typed(u: Tensor, e: Tensor, kind: Tensor) -> Tensor:
    return u * TABLE(kind) * torch.where((kind == 2).unsqueeze(-1), e, e.exp())


def moved(u: Tensor, v: Tensor, e: Tensor) -> Tensor:
    return NARROW((u * v).relu() * e) * v[:, :1] + v[:, :3]


def learned_slope(u: Tensor, v: Tensor) -> Tensor:
    return F.prelu(u - v, SLOPE)  # an operator that torch does not tag as elementwise


def tempered(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return (u @ VECTOR + torch.mv(v, VECTOR)) / SCALE.exp(), u.view(-1, 2, 4) @ VECTOR[:4] * SCALE


def batch_normed(u: Tensor, v: Tensor) -> Tensor:
    return FIXED(NORMED(u - v)).relu()  # type: ignore[no-any-return]


def unbound(u: Tensor, v: Tensor) -> Tensor:
    gate, value = torch.unbind((u - v).view(-1, 2, 4), dim=1)
    return gate.sigmoid() * value


MESSAGES: dict[str, tuple[Callable[..., Any], str, dict[str, Any], int]] = {
    "gated": (gated, "sum", {"src": [U], "dst": [V]}, 0),
    "halves": (halves, "sum", {"src": [U], "dst": [V]}, 0),
    "edge_conv max": (edge_conv, "max", {"src": [U], "dst": [V]}, 1),
    "edge_conv sum": (edge_conv, "sum", {"src": [U], "dst": [V]}, 0),
    "weighed": (weighed, "sum", {"src": [U], "dst": [V], "edge": [E]}, 0),
    "distance": (distance, "min", {"src": [U], "dst": [V], "edge": [E]}, 0),
    "attention": (attention, "softmax", {"src": [U], "dst": [V]}, 0),
    "attention_v2": (attention_v2, "softmax", {"src": [U], "dst": [V], "edge": [E]}, 0),
    "one_head": (one_head, "softmax", {"src": [U], "dst": [V], "edge": [E]}, 0),
    "gaussians": (gaussians, "sum", {"src": [U], "edge": [E]}, 0),
    "mixture": (mixture, "sum", {"src": [U], "edge": [E]}, 0),
    "mixture_of_pairs": (mixture_of_pairs, "sum", {"src": [U], "dst": [V], "edge": [E]}, 0),
    "normalised": (normalised, "sum", {"src": [U], "dst": [V]}, 0),
    "joined": (joined, "max", {"src": [U], "dst": [V]}, 0),
    "per_head": (per_head, "max", {"src": [U], "dst": [V]}, 1),
    "typed": (typed, "sum", {"src": [U], "edge": [E, KINDS]}, 0),
    "learned_slope": (learned_slope, "sum", {"src": [U], "dst": [V]}, 0),
    "tempered": (tempered, "softmax", {"src": [U], "dst": [V]}, 0),
    "batch_normed": (batch_normed, "max", {"src": [U], "dst": [V]}, 0),
    "unbound": (unbound, "sum", {"src": [U], "dst": [V]}, 0),
    "moved": (moved, "sum", {"src": [U], "dst": [V], "edge": [E]}, 0),
}
CAPTURED = [p for module in (GATE, VALUE, BOTH, MLP, NARROW, NORM, TABLE, MIXED) for p in module.parameters()]
CAPTURED += [HEADS, MEANS, SLOPE, SCALE, VECTOR, *NORMED.parameters()]


@pytest.mark.parametrize("name", MESSAGES)
def test_compiled_equals_plain_torch(name: str) -> None:
    message, reduce, given, products = MESSAGES[name]
    assert_same(message, EDGES, reduce, CAPTURED, **given)
    made = compile_message(message, forms_of(**given), reduce)
    assert _products(made) == products, "linear maps that stay on edges"


@pytest.mark.parametrize("without", [name for name in PASSES if name != "normal"])
@pytest.mark.parametrize(
    "name", ["edge_conv max", "edge_conv sum", "weighed", "moved", "gaussians", "mixture", "per_head"]
)
def test_passes_may_be_left_out(name: str, without: str) -> None:
    message, reduce, given, _ = MESSAGES[name]
    made = compile_message(message, forms_of(**given), reduce, without=[without])
    reasons = [each.reason for each in made.reductions if each.program is None]
    if reasons:  # without its pass, a joined value has no program
        assert without == "split"
        assert reasons == ["no step for cat"]
    else:
        assert_same(message, EDGES, reduce, CAPTURED, without=[without], **given)


def _products(made: Compiled) -> int:
    programs = [each.program for each in made.reductions]
    return sum(step.op in ("dot", "dot_t") for each in programs if each for step in each.steps)


def test_terms_of_one_end_are_one_load() -> None:
    made = compile_message(edge_conv, forms_of(src=[U], dst=[V]), "max")
    program = made.reductions[0].program
    assert program is not None
    assert sorted(load.source for load in program.loads) == ["other", "row", "shared", "weight"]


class Noted(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


def test_what_is_made_alike_of_one_tensor_at_both_ends_is_made_once() -> None:
    edges, x = edges_of(7, num_other=9), rows(9, 8)
    found: list[list[Tensor]] = []
    for dst, products in ((x, 1), (x.clone(), 2)):
        made = compiled(edge_difference, ["source", "destination"], [x, dst], "max")
        assert not isinstance(made, str)
        with Noted() as noted:
            out = run_compiled(made[0], made[0].inputs([x, dst], made[1]), edges)
        assert noted.names.count("aten::mm") == products
        found.append([out, *torch.autograd.grad(out.sum(), [x, *NARROW.parameters()])])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_products_of_the_same_rows_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_NARROW", 0)  # or narrow ones would be made together
    made = compile_message(edge_conv, forms_of(src=[U], dst=[V]), "max")
    with Noted() as noted:
        made.before(
            EDGES.num_other, EDGES.num_rows, EDGES.num_edges, *made.inputs([U, V], captures(edge_conv))
        )
    assert noted.names.count("aten::mm") == 2


def edge_difference(u: Tensor, v: Tensor) -> Tensor:
    return (NARROW(u) - NARROW(v)).tanh()


def test_scores_of_one_tensor_are_one_product() -> None:
    x = rows(9, 8)
    made = compiled(attention, ["source", "destination"], [x, x], "softmax")
    assert not isinstance(made, str)
    with Noted() as noted:
        made[0].before(9, 9, 30, *made[0].inputs([x, x], made[1]))
    assert noted.names.count("aten::mm") == 1
    edges = edges_of(7, num_other=9)
    out = run_compiled(made[0], made[0].inputs([x, x], made[1]), edges)
    apart = compiled(attention, ["source", "destination"], [x, x.clone()], "softmax")
    assert not isinstance(apart, str)
    expected = run_compiled(apart[0], apart[0].inputs([x, x.clone()], apart[1]), edges)
    for ours, theirs in zip(
        torch.autograd.grad(out.square().sum(), [x, HEADS]),
        torch.autograd.grad(expected.square().sum(), [x, HEADS]),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)


def test_scores_of_nodes_are_matrix_products() -> None:
    made = compile_message(attention, forms_of(src=[U], dst=[V]), "softmax")
    with Noted() as noted:
        made.before(
            EDGES.num_other, EDGES.num_rows, EDGES.num_edges, *made.inputs([U, V], captures(attention))
        )
    assert noted.names.count("aten::mm") == 2
    assert not {"aten::mul.Tensor", "aten::sum.dim_IntList"} & set(noted.names)


def test_an_edge_reads_the_rows_of_a_mixture_before_they_are_mapped() -> None:
    made = compile_message(mixture, forms_of(src=[U], edge=[E]), "sum")
    program = made.reductions[0].program
    assert program is not None
    assert [load.shape for load in program.loads if load.source == "other"] == [(1, 8)]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (lambda u, v: u if u.sum() > 0 else v, "reads the values of a tensor"),
        (lambda u, v: F.dropout(u + v, 0.5), "random"),
        (lambda u, v: u - u.mean(0), "over edges"),
        (lambda u, v: u / u.shape[0], "number of edges"),
        (lambda u, v: u @ v.t() @ v, "edges"),
        (lambda u, v: u.flip(0), "not known"),
        (lambda u, v: u[:1] + v, "edges are picked"),
        (lambda u, v: u.t().t() + v.t().reshape(-1, 8), "axis of edges is moved|pairs of them"),
        (lambda u, v: (u + v).sum(), "row per edge"),
        (lambda u, v: v.mul_(2.0), "in-place|in place"),
        (lambda u, v: _written_behind_a_view(u - v), "in place"),
        (lambda u, v: torch.cumsum(u, 0), "over edges"),
        (lambda u, v: F.softmax(u, 0), "over edges"),
        (lambda u, v: _Doubled.apply(u), "backward of its own"),  # type: ignore[no-untyped-call]
        (lambda u, v: (u, v), "softmax message returns"),
    ],
)
def test_what_cannot_be_compiled_says_why(message: Any, reason: str) -> None:
    with pytest.raises(NotCompiled, match=reason):
        compile_message(message, forms_of(src=[U], dst=[V]), "sum")


def _written_behind_a_view(x: Tensor) -> Tensor:
    heads = x.view(-1, 2, 4)
    x.mul_(2.0)
    return heads.flatten(1)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 5


def test_parts_without_gradients_are_not_compiled() -> None:
    def message(u: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.autograd.set_grad_enabled(mode=False):
            top = u.exp()
        return u * top

    with pytest.raises(NotCompiled, match="backward of its own, or none"):
        compile_message(message, forms_of(src=[U]), "sum")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_gradient_that_the_recorded_operators_do_not_show_is_not_lost() -> None:
    scripted = torch.jit.script(scaled)
    for _ in range(3):  # it has a backward of its own when it has run before
        scripted(U, U)
    with pytest.raises(NotCompiled, match="backward of its own"):
        compile_message(scripted, forms_of(src=[U], dst=[V]), "sum")


def scaled(u: Tensor, v: Tensor) -> Tensor:
    return torch.sigmoid(u) * v


def test_a_message_that_changes_its_object_is_not_compiled_and_leaves_it_as_it_was() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.seen = 0, [1]

        def message(self, u: Tensor) -> Tensor:
            self.seen.append(u)  # type: ignore[arg-type]
            self._last = u
            return u * 2

    counting = Counting()
    with pytest.raises(NotCompiled, match="changes what it captures"):
        compile_message(counting.message, forms_of(src=[U]), "sum")
    assert counting.seen == [1]
    assert not hasattr(counting, "_last")


def test_a_detached_value_keeps_no_gradient() -> None:
    assert_same(lambda u, v: u.detach() * v, EDGES, "sum", src=[U], dst=[V])


def test_the_same_code_is_compiled_once() -> None:
    def make(scale: float) -> Callable[..., Tensor]:
        return lambda u: u * scale

    first = compiled(make(2.0), ["source"], [U], "sum")
    assert not isinstance(first, str)
    again, other = compiled(make(2.0), ["source"], [U], "sum"), compiled(make(3.0), ["source"], [U], "sum")
    assert again[0] is first[0]
    assert other[0] is not first[0]


def test_a_message_that_changes_at_every_call_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(scale: float) -> Callable[..., Tensor]:
        return lambda u: u + scale

    found = [compiled(make(float(each)), ["source"], [U], "sum") for each in range(40)]
    assert all(not isinstance(each, str) for each in found), "layers may hold a number of their own"
    monkeypatch.setattr(compile_module, "_MOST_OF_CODE", 40)
    another = compiled(make(40.0), ["source"], [U], "sum")
    assert isinstance(another, str)
    assert another.startswith("its code was compiled in 40 ways before")
    assert compiled(make(3.0), ["source"], [U], "sum")[0] is found[3][0]  # which was compiled before


@pytest.mark.parametrize("shape", [(1,), (4, 1), (1, 2), (4, 2), (2,)])
def test_a_score_that_is_no_number_a_head_is_left_to_be_refused(shape: tuple[int, ...]) -> None:
    def message(u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return (u * v).sum(1).reshape(-1, *[1] * len(shape)).expand(-1, *shape), u.view(-1, 4, 2)

    with pytest.raises(NotCompiled, match=r"score \[E\] or \[E, H\]"):
        compile_message(message, forms_of(src=[U], dst=[V]), "softmax")


@pytest.mark.parametrize("bias", [True, False])
def test_a_map_of_one_number_an_edge(bias: bool) -> None:
    one = nn.Linear(1, 8, bias=bias).to(WIDE)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return one((u - v).square().sum(1, keepdim=True)).relu()  # type: ignore[no-any-return]

    assert_same(message, EDGES, "sum", [*one.parameters()], src=[U], dst=[V])


def test_messages_without_features_are_not_compiled() -> None:
    with pytest.raises(NotCompiled, match="no features"):
        compile_message(lambda u: u[:, :0], forms_of(src=[U]), "sum")
    with pytest.raises(NotCompiled, match="no features"):
        compile_message(lambda u, e: torch.cat([u, e], 1), forms_of(src=[U], edge=[E[:, :0]]), "sum")


def test_what_fails_inside_the_compiler_is_the_reason_not_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(graph: object) -> None:
        raise RuntimeError("a pass failed\nat length")

    monkeypatch.setitem(PASSES, "scores", failing)
    found = compiled(lambda u, v: u - v, ["source", "destination"], [U, V], "sum")
    assert found == "rewriting failed: RuntimeError: a pass failed"


def test_a_rewriting_to_another_shape_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def wider(graph: fx.Graph) -> None:
        output = next(node for node in graph.nodes if node.op == "output")
        made = output.args[0]
        assert isinstance(made, fx.Node)
        output.args = (emit(output, aten.cat.default, [made, made], 1),)

    monkeypatch.setitem(PASSES, "scores", wider)
    with pytest.raises(NotCompiled, match=r"rewriting gives \[\[1000003, 16\]\] in the place of"):
        compile_message(lambda u, v: u * v + 1, forms_of(src=[U], dst=[V]), "sum")


def test_a_stage_that_gives_another_shape_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def transposed(*given: Any) -> Any:
        made = stages.stage(*given)
        return lambda *rows: [each.transpose(0, 1) for each in made(*rows)]

    monkeypatch.setattr("weft.compiler.compile.stage", transposed)
    with pytest.raises(NotCompiled, match="a stage gives"):
        compile_message(lambda u, v: u - v, forms_of(src=[U], dst=[V]), "sum")


def test_what_is_kept_of_a_message_lets_its_parameters_go() -> None:
    message, gone = _mapped()
    found = compiled(message, ["source"], [U], "sum")
    assert isinstance(found, tuple)
    made = found[0]
    assert all(not part.requires_grad for node in made.graph.nodes for part in _parts(node.meta.get("val")))
    del message, found
    gc.collect()
    assert gone() is None


def _mapped() -> tuple[Callable[[Tensor], Tensor], weakref.ref[Tensor]]:
    linear = nn.Linear(8, 6).to(WIDE)
    return lambda u: linear(u).relu(), weakref.ref(linear.weight)


@pytest.fixture
def restless() -> Iterator[None]:
    """Have threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def _scaled(linear: nn.Linear, number: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda u, v: torch.sigmoid(number * linear(u) + linear(v)) + torch.ones(len(u), 3, dtype=WIDE)


@pytest.mark.usefixtures("restless")
def test_threads_compile_messages_at_once_and_leave_no_mode_behind() -> None:
    def one(number: int) -> tuple[Any, type]:
        found = compiled(_scaled(NARROW, number + 0.25), ["source", "destination"], [U, V], "sum")
        return found, type(torch.zeros(1))

    with ThreadPoolExecutor(3) as threads:
        made = list(threads.map(one, range(12)))
    assert [str(found) for found, _ in made if isinstance(found, str)] == []
    assert {kind for _, kind in made} == {Tensor}


def test_a_message_that_is_first_run_in_inference_mode_is_compiled_as_any_other() -> None:
    linear = nn.Linear(16, 6).to(WIDE)
    with torch.inference_mode():
        first = compiled(
            lambda u, v: linear(torch.cat([u, v], 1)).relu(), ["source", "destination"], [U, V], "sum"
        )
    assert isinstance(first, tuple), first
    assert first[0].reductions[0].program is not None


def _parts(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value or ())


def test_whole_numbers_are_compared_as_such() -> None:
    def message(u: Tensor, there: Tensor, here: Tensor) -> Tensor:
        return torch.where((there == here).view(-1, 1), u, -u)

    there, here = (2**24 + torch.arange(n) % 5 for n in (EDGES.num_other, EDGES.num_rows))
    rows = U.detach().float()
    given = {"src": [rows, there], "dst": [here]}
    have, want = (made(message, EDGES, "sum", **given) for made in (compiled_result, plain_result))
    torch.testing.assert_close(have, want)


def test_a_matrix_that_is_used_twice_has_the_gradients_of_both() -> None:
    matrix = rows(8, 8)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return ((u * v) @ matrix).tanh() @ matrix

    assert_same(message, EDGES, "max", [matrix], src=[U], dst=[V])


def test_a_learned_power_of_zero_has_a_gradient() -> None:
    power = torch.tensor([1.0, 0.5, 2.0, 3.0] * 2, dtype=WIDE, requires_grad=True)

    def message(u: Tensor, v: Tensor) -> Tensor:
        return (u * v).relu() ** power + u * v

    have, want = (made(message, EDGES, "max", src=[U], dst=[V]) for made in (compiled_result, plain_result))
    ours, theirs = (torch.autograd.grad(out.sum(), power)[0] for out in (have, want))
    assert ours.isfinite().all()
    torch.testing.assert_close(ours, theirs)


def test_each_type_of_autocast_is_compiled_by_itself() -> None:
    narrow, x = nn.Linear(8, 3), torch.ones(5, 8)

    def message(u: Tensor) -> Tensor:
        return narrow(u)  # type: ignore[no-any-return]

    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            made = compiled(message, ["source"], [x], "max")
        assert not isinstance(made, str)
        assert made[0].dtype == dtype
