"""Attention against its plain definition: outputs, gradients, draws, odd shapes, hubs, masks, threads."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from kernel_checks import backward_in_sets, needs_core
from torch import Tensor

from weft import draw
from weft.errors import InputError
from weft.kernels import attention, attention_dot, attention_gatv2, native, transpose_csr
from weft.kernels import reference_attention as reference
from weft.kernels.attention import (
    attention_backward_op,
    attention_keeping_backward_op,
    attention_keeping_op,
    attention_op,
)
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2

pytestmark = pytest.mark.gpu

CLOCK = torch.tensor([7, 1, 2])
KINDS = (ADDITIVE, GATV2, DOT)


def csr(src: list[int] | Tensor, dst: list[int] | Tensor, num_dst: int) -> tuple[Tensor, Tensor]:
    src, dst = torch.as_tensor(src), torch.as_tensor(dst)
    order = torch.argsort(dst, stable=True)
    indptr = torch.zeros(num_dst + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(dst, minlength=num_dst).cumsum(0)
    return indptr, src[order].to(torch.int32)


def random_csr(num_dst: int, num_src: int, num_edges: int, hub: int = 0) -> tuple[Tensor, Tensor]:
    """Rows 1 and num_dst - 1 stay empty; `hub` edges more go into row 3, as many out of source 2."""
    dst = torch.randint(0, num_dst - 1, (num_edges,))
    dst[dst == 1] = 0
    src = torch.randint(0, num_src, (num_edges,))
    dst = torch.cat([dst, torch.full((hub,), 3), torch.randint(2, num_dst - 1, (hub,))])
    src = torch.cat([src, torch.randint(0, num_src, (hub,)), torch.full((hub,), 2)])
    return csr(src, dst, num_dst)


def arguments(
    kind: int,
    shape: tuple[int, int, int],
    *,
    graph: tuple[Tensor, Tensor],
    num_src: int,
    edge: bool = False,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> list[Any]:
    """Return random inputs of the operator, the float ones requiring gradients."""
    heads, dim, value_dim = shape
    indptr, indices = graph
    num_dst, num_edges = indptr.numel() - 1, indices.numel()

    def values(*size: int) -> Tensor:
        return torch.randn(size, dtype=torch.float64).to(dtype).requires_grad_()

    tail = (heads,) if kind == ADDITIVE else (heads, dim)
    a = values(heads, dim) if kind == GATV2 else None
    term = values(num_edges, *(tail if kind == GATV2 else (heads,))) if edge else None
    ids = torch.randperm(num_edges) * 3 if dropout else None
    inputs = [values(num_src, *tail), values(num_dst, *tail), a, values(num_src, heads, value_dim), term]
    draws = [dropout, ids, CLOCK if dropout else None, 5]
    return [kind, indptr, indices, *inputs, 0.2, *draws, None, None, None]


def leaves(args: list[Any]) -> list[Tensor]:
    return [x for x in args if isinstance(x, Tensor) and x.requires_grad]


def outcome(function: Callable[..., Any], args: list[Any], grad: Tensor) -> list[Tensor]:
    """Return the output and the gradients of all float inputs."""
    out = function(*args)[0]
    return [out.detach(), *torch.autograd.grad(out, leaves(args), grad)]


def operators(kind: int) -> tuple[Any, ...]:
    """Return the operators of a kind of score: what a call uses without gradients of scores, and with."""
    return (attention_op, attention_keeping_op) if kind == ADDITIVE else (attention_op,)


def in_double(args: list[Any]) -> list[Any]:
    return [
        x.detach().double().requires_grad_() if isinstance(x, Tensor) and x.requires_grad else x for x in args
    ]


def assert_like_definition(args: list[Any], tolerance: float, grad: Tensor | None = None) -> None:
    value = args[6]
    shape = (args[1].numel() - 1, *value.shape[1:])
    grad = torch.randn(shape, dtype=torch.float64).to(value.dtype) if grad is None else grad
    expected = outcome(reference.forward, in_double(args), grad.double())
    for operator in operators(args[0]):
        for got, want in zip(outcome(operator, args, grad), expected):
            assert got.dtype == value.dtype
            error = (got.double() - want).abs().max() if want.numel() else torch.zeros(())
            assert error <= tolerance * max(1.0, want.abs().max().item() if want.numel() else 0.0)


SHAPES = [(8, 16, 16), (1, 7, 7), (3, 5, 33), (4, 8, 4), (2, 64, 24), (5, 1, 1), (12, 40, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_are_those_of_the_definition(kind: int, shape: Any, form: str) -> None:
    torch.manual_seed(0)
    graph = random_csr(30, 20, 300)
    for edge, dropout in itertools.product((False, True), (0.0, 0.4)):
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            args = arguments(kind, shape, graph=graph, num_src=20, edge=edge, dropout=dropout, dtype=dtype)
            assert_like_definition(args, tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_hub_rows_and_hub_sources_are_merged(kind: int, form: str) -> None:
    torch.manual_seed(1)
    graph = random_csr(9, 7, 50, hub=9000)
    for edge in (False, True):
        args = arguments(kind, (2, 4, 8), graph=graph, num_src=7, edge=edge, dropout=0.3)
        assert_like_definition(args, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_sets_of_edges_that_know_the_dot_of_their_rows_add_up_to_the_whole(kind: int, form: str) -> None:
    torch.manual_seed(14)
    graph = random_csr(9, 7, 50, hub=9000)
    rows = reference.edge_rows(graph[0], graph[1].numel())
    chosen = (torch.rand(rows.shape) < 0.5) | (rows == 0)  # one set has nothing of row 0
    assert torch.bincount(rows[chosen]).max() > 4096 < torch.bincount(rows[~chosen]).max()
    for edge, dropout in itertools.product((False, True), (0.0, 0.3)):
        for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-3)):
            args = arguments(kind, (2, 4, 8), graph=graph, num_src=7, edge=edge, dropout=dropout, dtype=dtype)
            grad = torch.randn(9, 2, 8, dtype=dtype)
            expected = outcome(reference.forward, in_double(args), grad.double())[1:]
            for got, want in zip(backward_in_sets(args, grad, chosen), expected, strict=True):
                assert got.dtype == dtype
                error = (got.double() - want).abs().max()
                assert error <= tolerance * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 2e-2), (torch.float16, 3e-3)], ids=str)
def test_16_bit_values_are_summed_in_float32(
    kind: int, dtype: torch.dtype, tolerance: float, form: str
) -> None:
    torch.manual_seed(2)
    args = arguments(kind, (4, 8, 8), graph=random_csr(30, 20, 300), num_src=20, edge=True, dtype=dtype)
    assert_like_definition(args, tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: int, form: str) -> None:
    torch.manual_seed(3)
    args = arguments(kind, (2, 3, 2), graph=random_csr(6, 4, 9), num_src=4, edge=True, dropout=0.3)
    floats = leaves(args)

    def call(*values: Tensor) -> Tensor:
        given = iter(values)
        filled = [next(given) if any(x is leaf for leaf in floats) else x for x in args]
        return attention_op(*filled)[0]

    assert torch.autograd.gradcheck(call, floats)


def test_dropped_edges_are_those_of_the_numpy_draws(form: str) -> None:
    heads, num_edges, p = 11, 500, 0.3
    indptr, indices = torch.tensor([0, num_edges]), torch.arange(num_edges, dtype=torch.int32)
    ids = torch.arange(num_edges) * 2**33 + 5
    # each source has its own column, so the output is the weight of each edge
    value = torch.eye(num_edges)[:, None, :].expand(-1, heads, -1).contiguous()
    zeros = torch.zeros(num_edges, heads)
    weight = attention(
        indptr, indices, zeros, zeros[:1], value, dropout=p, edge_ids=ids, clock=CLOCK, layer=9
    )
    key = draw.fold(7, draw.Stream.ATTENTION, 1, 2, 9)
    bits = draw.draw(key, ids.cpu().numpy()[:, None], np.arange(heads)[None]).astype(np.int64)
    expected = (bits >= draw.threshold(p)).T / (1 - p) / num_edges
    np.testing.assert_allclose(weight[0].cpu().numpy(), expected, rtol=1e-5)


def test_dropout_of_one_drops_everything(form: str) -> None:
    indptr, indices = csr([0, 1], [0, 0], 2)
    value = torch.ones(2, 1, 4, requires_grad=True)
    out = attention(indptr, indices, torch.zeros(2, 1), torch.zeros(2, 1), value, dropout=1.0, clock=CLOCK)
    out.sum().backward()
    assert out.eq(0).all()
    assert value.grad is not None
    assert value.grad.eq(0).all()


def test_without_a_clock_draws_follow_torchs_generator(form: str) -> None:
    indptr, indices = random_csr(6, 5, 200)
    value = torch.ones(5, 2, 4)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(attention(indptr, indices, torch.zeros(5, 2), torch.zeros(6, 2), value, dropout=0.5))
    assert outs[0].equal(outs[1])
    assert not outs[0].equal(outs[2])


def test_a_clock_moved_after_the_call_does_not_change_its_backward(form: str) -> None:
    torch.manual_seed(4)
    args = arguments(ADDITIVE, (2, 4, 4), graph=random_csr(6, 4, 60), num_src=4, dropout=0.5)
    expected = outcome(attention_op, args, torch.ones(6, 2, 4, dtype=torch.float64))
    clock = CLOCK.clone()
    args[11] = clock
    out = attention_op(*args)[0]
    clock += 1
    for got, want in zip(torch.autograd.grad(out.sum(), leaves(args)), expected[1:]):
        torch.testing.assert_close(got, want)


def test_the_result_may_be_changed_in_place(form: str) -> None:
    args = arguments(ADDITIVE, (2, 4, 4), graph=random_csr(6, 4, 60), num_src=4)
    grads = [torch.autograd.grad(op(*args)[0].add_(1.0).sum(), leaves(args)) for op in operators(ADDITIVE)]
    for one, other in zip(*grads):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_empty_rows_give_zero(kind: int, form: str) -> None:
    args = arguments(kind, (2, 4, 4), graph=random_csr(8, 5, 40), num_src=5)
    out, top, total = attention_op(*args)
    assert out[1].eq(0).all()
    assert out[-1].eq(0).all()
    assert total[1].eq(0).all()
    assert top[1].eq(0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("num_dst", "num_src", "edges"), [(3, 2, 0), (1, 1, 1), (1, 1, 5), (1, 1, 0), (0, 4, 0)]
)
def test_smallest_graphs(kind: int, num_dst: int, num_src: int, edges: int, form: str) -> None:
    indptr = torch.full((num_dst + 1,), edges)
    indptr[0] = 0
    graph = (indptr, torch.zeros(edges, dtype=torch.int32))
    assert_like_definition(arguments(kind, (2, 3, 5), graph=graph, num_src=num_src, edge=True), 1e-12)


@pytest.mark.parametrize("slope", [0.2, 0.0, 1.5, -0.5])
def test_masked_edges_count_for_nothing(slope: float, form: str) -> None:
    torch.manual_seed(5)
    indptr, indices = csr([0, 1, 2, 0, 1], [0, 0, 0, 1, 1], 2)
    mask = torch.tensor([0.0, -torch.inf, 0.0, -torch.inf, -torch.inf])[:, None]
    src, dst, value = (torch.randn(*size, requires_grad=True) for size in ((3, 1), (2, 1), (3, 1, 4)))
    term = mask.clone().requires_grad_()
    out = attention(indptr, indices, src, dst, value, slope, edge=term)
    kept = csr([0, 2], [0, 0], 2)
    torch.testing.assert_close(out, attention(*kept, src, dst, value, slope))
    assert out[1].eq(0).all()
    for grad in torch.autograd.grad(out.square().sum(), (src, dst, value, term)):
        assert grad.isfinite().all()
    (term_grad,) = torch.autograd.grad(
        attention(indptr, indices, src, dst, value, slope, edge=term).sum(), term
    )
    assert term_grad[[1, 3, 4]].eq(0).all()


def test_masked_edges_of_dot_scores(form: str) -> None:
    indptr, indices = csr([0, 1, 2, 0], [0, 0, 0, 1], 2)
    term = torch.tensor([0.0, -torch.inf, 0.0, -torch.inf])[:, None].requires_grad_()
    key, query, value = (torch.randn(n, 1, 4, requires_grad=True) for n in (3, 2, 3))
    out = attention_dot(indptr, indices, key, query, value, edge=term)
    torch.testing.assert_close(out, attention_dot(*csr([0, 2], [0, 0], 2), key, query, value))
    for grad in torch.autograd.grad(out.square().sum(), (key, query, value, term)):
        assert grad.isfinite().all()


def test_a_wholly_masked_part_of_a_hub_is_skipped(form: str) -> None:
    num_edges = 3 * 4096
    indptr, indices = torch.tensor([0, num_edges]), torch.arange(num_edges, dtype=torch.int32) % 5
    mask = torch.full((num_edges, 1), -torch.inf)
    mask[5000:6000] = 0.0
    src, value = torch.randn(5, 1), torch.randn(5, 1, 4)
    out = attention(indptr, indices, src, torch.zeros(1, 1), value, edge=mask)
    kept = attention(torch.tensor([0, 1000]), indices[5000:6000], src, torch.zeros(1, 1), value)
    torch.testing.assert_close(out, kept)


def test_large_scores_do_not_overflow(form: str) -> None:
    torch.manual_seed(6)
    args = arguments(ADDITIVE, (2, 4, 4), graph=random_csr(8, 5, 60), num_src=5, dtype=torch.float32)
    args[3] = (args[3].detach() * 1e4).requires_grad_()
    # neighbouring float32 near 1e4 are 1e-3 apart, which is the error of a weight
    assert_like_definition(args, 5e-3)


def test_nan_scores_are_not_hidden(form: str) -> None:
    indptr, indices = csr([0, 1, 0], [0, 0, 1], 2)
    src = torch.tensor([[0.0], [torch.nan]])
    out = attention(indptr, indices, src, torch.zeros(2, 1), torch.ones(2, 1, 4))
    assert out[0].isnan().all()
    assert out[1].eq(1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_any_subset_of_inputs_may_need_gradients(kind: int, form: str) -> None:
    torch.manual_seed(7)
    args = arguments(kind, (2, 4, 3), graph=random_csr(8, 5, 60), num_src=5, edge=True)
    full = dict(zip(map(id, leaves(args)), outcome(attention_op, args, torch.ones(8, 2, 3).double())[1:]))
    floats = leaves(args)
    for size in range(1, len(floats)):
        for wanted in itertools.combinations(floats, size):
            given = [
                x.detach() if any(x is y for y in floats) and not any(x is y for y in wanted) else x
                for x in args
            ]
            grads = torch.autograd.grad(attention_op(*given)[0].sum(), wanted)
            for leaf, grad in zip(wanted, grads):
                torch.testing.assert_close(grad, full[id(leaf)])


@pytest.mark.parametrize("kind", KINDS)
def test_strided_inputs_and_expanded_gradients(kind: int, form: str) -> None:
    torch.manual_seed(8)
    args = arguments(kind, (3, 4, 5), graph=random_csr(8, 5, 60), num_src=5, edge=True, dropout=0.2)
    for place in range(3, 8):
        if args[place] is not None:
            wide = torch.stack([args[place].detach()] * 2, dim=-1)[..., 0]
            args[place] = wide.requires_grad_()
    assert_like_definition(args, 1e-12, grad=torch.ones((), dtype=torch.float64).expand(8, 3, 5))


@pytest.mark.parametrize("kind", KINDS)
def test_given_transposed_csr_and_wide_indices_change_nothing(kind: int, form: str) -> None:
    torch.manual_seed(9)
    graph = random_csr(8, 5, 60)
    # on a GPU the float64 form is the reference, whose sums have no fixed order there
    dtype = torch.float32 if form == "cuda" else torch.float64
    args = arguments(kind, (3, 4, 5), graph=graph, num_src=5, edge=True, dropout=0.2, dtype=dtype)
    grad = torch.randn(8, 3, 5, dtype=dtype)
    expected = outcome(attention_op, args, grad)
    built = transpose_csr(args[1], args[2], 5)
    for cast in (torch.int32, torch.int64):
        given = [*args[:13], built.indptr, built.indices.to(cast), built.edges.to(cast)]
        given[2] = args[2].to(cast)
        for got, want in zip(outcome(attention_op, given, grad), expected):
            assert got.equal(want)


@pytest.mark.parametrize("kind", KINDS)
def test_bits_do_not_depend_on_the_number_of_threads(kind: int) -> None:
    if not native.available():
        pytest.skip("the native core is not installed")
    torch.manual_seed(10)
    graph = random_csr(600, 500, 20_000, hub=10_000)
    threads = torch.get_num_threads()
    try:
        for edge in (False, True):
            args = arguments(
                kind, (4, 8, 8), graph=graph, num_src=500, edge=edge, dropout=0.2, dtype=torch.float32
            )
            grad = torch.randn(600, 4, 8)
            results = []
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                results.append([x for op in operators(kind) for x in outcome(op, args, grad)])
            for other in results[1:]:
                for got, want in zip(other, results[0]):
                    assert got.equal(want)
    finally:
        torch.set_num_threads(threads)


def test_uninitialised_memory_is_never_read(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(11)
    torch.use_deterministic_algorithms(True)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    try:
        for kind in KINDS:
            args = arguments(kind, (2, 4, 4), graph=random_csr(8, 5, 60), num_src=5, edge=True)
            assert torch.empty(3).isnan().all()
            assert_like_definition(args, 1e-12)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("kind", KINDS)
def test_opcheck(kind: int) -> None:
    args = arguments(kind, (2, 3, 4), graph=random_csr(6, 4, 20), num_src=4, edge=True, dropout=0.2)
    torch.library.opcheck(attention_op, tuple(args))
    plain = [x.detach() if isinstance(x, Tensor) else x for x in args]
    plain[13:] = transpose_csr(args[1], args[2], 4)
    _, top, total = attention_op(*plain)
    grad = torch.randn(6, 2, 4, dtype=torch.float64)
    torch.library.opcheck(
        attention_backward_op, (*plain, top, total, None, grad, [True, True, kind == GATV2, True, True])
    )
    torch.library.opcheck(
        attention_backward_op, (*plain, top, total, total, grad, [False, True, False, False, False])
    )


def test_opcheck_of_the_form_that_keeps_sums() -> None:
    args = arguments(ADDITIVE, (2, 3, 5), graph=random_csr(6, 4, 20), num_src=4, dropout=0.2)
    torch.library.opcheck(attention_keeping_op, tuple(args))
    plain = [x.detach() if isinstance(x, Tensor) else x for x in args]
    plain[13:] = transpose_csr(args[1], args[2], 4)
    grad = torch.randn(6, 2, 5, dtype=torch.float64)
    given = (*plain, *attention_keeping_op(*plain)[1:], grad, [True, True, False, True, False])
    torch.library.opcheck(attention_keeping_backward_op, given)


def test_the_sums_are_kept_where_scores_need_a_gradient() -> None:
    indptr, indices = random_csr(6, 4, 30)
    src, dst, value = torch.randn(4, 2), torch.randn(6, 2), torch.randn(4, 2, 4, requires_grad=True)
    term = torch.randn(30, 2)
    outs = [
        attention(indptr, indices, src, dst, value),
        attention(indptr, indices, src, dst.requires_grad_(), value, edge=term),
        attention(indptr, indices, src, dst, value, edge=term.requires_grad_()),
    ]
    assert ["keeping" in out.grad_fn.name() for out in outs if out.grad_fn] == [False, True, False]


def test_compiles_without_graph_breaks() -> None:
    indptr, indices = random_csr(6, 4, 30)
    heads = (torch.randn(4, 2, 4, requires_grad=True), torch.randn(6, 2, 4, requires_grad=True))
    a = torch.randn(2, 4)

    def model(src: Tensor, dst: Tensor, clock: Tensor) -> Tensor:
        rest = {"dropout": 0.3, "clock": clock}
        one = attention(indptr, indices, src.sum(-1), dst.sum(-1), src, **rest)
        two = attention_gatv2(indptr, indices, src, dst, a, src, **rest)
        return one + two + attention_dot(indptr, indices, src, dst, src, 0.5, **rest)

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for clock in (CLOCK, CLOCK + 1):
        expected, got = model(*heads, clock), compiled(*heads, clock)
        torch.testing.assert_close(got, expected)
        for x, y in zip(torch.autograd.grad(got.sum(), heads), torch.autograd.grad(expected.sum(), heads)):
            torch.testing.assert_close(x, y)


@needs_core
def test_nothing_of_the_size_of_edges_is_allocated() -> None:
    num_edges, heads, dim = 50_000, 4, 8
    indptr, indices = random_csr(100, 100, num_edges)
    args = arguments(ADDITIVE, (heads, 0, dim), graph=(indptr, indices), num_src=100, dtype=torch.float32)
    args[13:] = transpose_csr(indptr, indices, 100)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        attention_op(*args)[0].sum().backward()
    made = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    assert 0 < made < num_edges * heads * 4


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_equals_torch_geometric(kind: str, form: str) -> None:
    nn = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(12)
    num_nodes, heads, dim = 12, 3, 5
    indptr, indices = random_csr(num_nodes, num_nodes, 60)
    edge_index = torch.stack([indices.long(), reference.edge_rows(indptr, indices.numel())])
    x = torch.randn(num_nodes, 6)
    options = (
        {"root_weight": False} if kind == "TransformerConv" else {"add_self_loops": False, "bias": False}
    )
    conv = getattr(nn, kind)(6, dim, heads=heads, **options)

    def split(linear: Any) -> Tensor:
        return linear(x).view(num_nodes, heads, dim)

    if kind == "GATConv":
        h = split(conv.lin)
        out = attention(indptr, indices, (h * conv.att_src).sum(-1), (h * conv.att_dst).sum(-1), h)
    elif kind == "GATv2Conv":
        out = attention_gatv2(
            indptr, indices, split(conv.lin_l), split(conv.lin_r), conv.att[0], split(conv.lin_l)
        )
    else:
        key, query, value = split(conv.lin_key), split(conv.lin_query), split(conv.lin_value)
        out = attention_dot(indptr, indices, key, query, value, dim**-0.5)
    torch.testing.assert_close(out.flatten(1), conv(x, edge_index), rtol=1e-5, atol=1e-5)


def test_bad_input_is_named() -> None:
    indptr, indices = csr([0, 1], [0, 1], 2)
    scores, value = torch.zeros(2, 3), torch.zeros(2, 3, 4)
    with pytest.raises(InputError, match="destination side of shape"):
        attention(indptr, indices, scores, torch.zeros(3, 3), value)
    with pytest.raises(InputError, match="edge of shape"):
        attention(indptr, indices, scores, scores, value, edge=torch.zeros(2, 1))
    with pytest.raises(InputError, match="expected value"):
        attention(indptr, indices, scores, scores, value[0])
    with pytest.raises(InputError, match="dropout must be"):
        attention(indptr, indices, scores, scores, value, dropout=1.5)
    with pytest.raises(InputError, match="edge ids"):
        attention(indptr, indices, scores, scores, value, dropout=0.5, edge_ids=torch.arange(3))


def test_whole_numbers_are_refused() -> None:
    indptr, indices = csr([0, 1], [0, 1], 2)
    scores, value = torch.zeros(2, 3), torch.zeros(2, 3, 4)
    with pytest.raises(InputError, match="floating-point inputs, got"):
        attention(indptr, indices, scores.long(), scores.long(), value.long())
    assert attention(indptr, indices, scores, scores, value.long()).dtype == torch.float32
    with pytest.raises(InputError, match="clock"):
        attention(indptr, indices, scores, scores, value, dropout=0.5, clock=torch.arange(2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("index", [torch.uint8, torch.int16, torch.int64])
def test_indices_of_any_size_give_the_same_gradients(kind: int, index: torch.dtype, form: str) -> None:
    torch.manual_seed(3)
    indptr, indices = random_csr(8, 5, 60)
    args = arguments(kind, (3, 4, 5), graph=(indptr, indices), num_src=5, dtype=torch.float32)
    src, dst, a, value = args[3:7]
    given = (src, dst, value) if a is None else (src, dst, a, value)
    run = {ADDITIVE: attention, GATV2: attention_gatv2, DOT: attention_dot}[kind]
    (expected, got) = (
        torch.autograd.grad(run(indptr, kind_of, *given).square().sum(), given)
        for kind_of in (indices, indices.to(index))
    )
    assert all(torch.equal(a, b) for a, b in zip(expected, got))


@needs_core
def test_an_index_outside_its_rows_is_refused() -> None:
    indptr, scores, value = torch.tensor([0, 2]), torch.zeros(2, 1), torch.zeros(2, 1, 4)
    for wrong in (2, -1):
        indices = torch.tensor([0, wrong], dtype=torch.int32)
        with pytest.raises(InputError, match="outside its rows"):
            attention(indptr, indices, scores, scores[:1], value)
    with pytest.raises(InputError, match="indptr"):
        attention(torch.tensor([0, 3]), torch.tensor([0, 1]), scores, scores[:1], value)
