"""Messages compiled and run, against the same in plain torch on all edges at once."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from tests.support.programs import transposed
from torch import Tensor

from weft.compiler.annotate import residency
from weft.compiler.compile import Compiled, compile_message
from weft.compiler.execute import execute, read_by_pairs, shaped
from weft.compiler.graphs import name_of
from weft.compiler.passes import PASSES
from weft.compiler.programs.program import Edges
from weft.compiler.programs.run import reduce_edges
from weft.compiler.tracing.captures import captures
from weft.compiler.tracing.trace import Form
from weft.compiler.unread import twins_of

Message = Callable[..., Any]


def forms_of(
    src: Sequence[Tensor] = (),
    dst: Sequence[Tensor] = (),
    edge: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
) -> list[Form]:
    """Return the forms of the arguments of a message."""
    roles = (("source", src), ("destination", dst), ("edge", edge), ("shared", params))
    return [Form.of(role, tensor) for role, tensors in roles for tensor in tensors]  # type: ignore[arg-type]


def compiled_result(
    message: Message,
    edges: Edges,
    reduce: str,
    *,
    without: Collection[str] = (),
    **given: Sequence[Tensor],
) -> Tensor:
    """Return the reduced messages by the compiler's stages and programs alone."""
    forms = forms_of(**given)
    tensors = [t for name in ("src", "dst", "edge", "params") for t in given.get(name, ())]
    twins = twins_of([form.role for form in forms], tensors)
    made = compile_message(message, forms, reduce, without=without, twins=twins)
    return run_compiled(made, made.inputs(tensors, captures(message, made.executed)), edges)


def rewritten(message: Message, reduce: str, *names: str, **given: Sequence[Tensor]) -> list[tuple[str, str]]:
    """Return the operators of a message, with where they live, after the passes of these names alone."""
    made = compile_message(
        message, forms_of(**given), reduce, without=[each for each in PASSES if each not in names]
    )
    nodes = [node for node in made.graph.nodes if node.op == "call_function"]
    return [(name_of(node), residency(node)) for node in nodes]


def run_compiled(made: Compiled, inputs: Sequence[Tensor], edges: Edges) -> Tensor:
    """Return what a compiled message gives."""
    if made.by_relation is not None:
        kind, values = read_by_pairs(made, inputs, edges)
        pairs = made.by_relation.pairs(kind, edges)
        inputs, edges = [*inputs, *pairs.inputs(values)], pairs.edges

    def one(reduction: Any, values: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
        if reduction.program is None:
            return _smaller_result(reduction, values, edges), None
        loads = [values[place] for place in reduction.loads]
        out, beside = reduce_edges(reduction.program, edges, lambda: transposed(edges), loads)
        return shaped(reduction, out, edges.num_rows), beside

    return execute(made, inputs, edges, one)[0]


def _smaller_result(reduction: Any, values: Sequence[Tensor], edges: Edges) -> Tensor:
    """Return what is left of a message on edges, reduced in plain torch."""
    taken = {role: [values[place] for place in places] for role, places in reduction.inputs.items()}

    def message(*rows: Tensor) -> Any:
        made = reduction.message(0, 0, edges.num_edges, *rows)
        return tuple(made) if reduction.kind == "softmax" else made[0]

    named = {"src": "source", "dst": "destination", "edge": "edge", "params": "shared"}
    return plain_result(message, edges, reduction.kind, **{name: taken[role] for name, role in named.items()})


def plain_result(
    message: Message,
    edges: Edges,
    reduce: str,
    *,
    src: Sequence[Tensor] = (),
    dst: Sequence[Tensor] = (),
    edge: Sequence[Tensor] = (),
    params: Sequence[Tensor] = (),
) -> Tensor:
    """Return the reduced messages, by torch's own operators and autograd."""
    rows = torch.repeat_interleave(torch.arange(edges.num_rows), edges.indptr.diff())
    made = message(*(t[edges.other.long()] for t in src), *(t[rows] for t in dst), *edge, *params)
    if reduce == "softmax":
        return _attended(*made, rows, edges.num_rows)
    index = rows.view(-1, *[1] * (made.dim() - 1)).expand_as(made)
    out = made.new_zeros(edges.num_rows, *made.shape[1:])
    if reduce == "sum":
        return out.index_add(0, rows, made)
    return out.scatter_reduce(0, index, made, "a" + reduce, include_self=False)


def _attended(score: Tensor, value: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    index = rows.view(-1, *[1] * (score.dim() - 1)).expand_as(score)
    top = score.detach().new_zeros(num_rows, *score.shape[1:])
    top = top.scatter_reduce(0, index, score.detach(), "amax", include_self=False)
    weight = torch.exp(score - top[rows])
    mass = torch.zeros_like(top).index_add(0, rows, weight)
    share = (weight / mass[rows]).reshape(*score.shape, *[1] * (value.dim() - score.dim()))
    return value.new_zeros(num_rows, *value.shape[1:]).index_add(0, rows, share * value)


def assert_same(
    message: Message,
    edges: Edges,
    reduce: str,
    captured: Sequence[Tensor] = (),
    *,
    without: Collection[str] = (),
    **given: Sequence[Tensor],
) -> None:
    """Hold a compiled message to plain torch: its result and the gradients of all that it reads."""
    want = plain_result(message, edges, reduce, **given)
    have = compiled_result(message, edges, reduce, without=without, **given)
    torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
    leaves = [t for tensors in (*given.values(), captured) for t in tensors if t.requires_grad]
    grad = torch.randn(want.shape, dtype=want.dtype, generator=torch.Generator().manual_seed(3))
    found = [torch.autograd.grad(out, leaves, grad, allow_unused=True) for out in (have, want)]
    for leaf, ours, theirs in zip(leaves, *found, strict=True):
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(
            zero if ours is None else ours, zero if theirs is None else theirs, rtol=1e-8, atol=1e-8
        )
