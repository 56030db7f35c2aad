"""The Triton forms of every operator, on a GPU or, where there is none, by Triton's interpreter on the CPU.

The interpreter must be chosen before Python starts, so one test here runs this file again in a process of its
own. It takes milliseconds an operation: graphs are tiny, and a row of more than 8 edges counts as a hub.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kernel_checks import DEVICE, assert_near, backward_in_sets, compare, csr, hub_csr, values

from weft import draw, kernels
from weft.errors import WeftWarning
from weft.kernels import gpu, native, reference, reference_attention

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")

HERE = gpu.INTERPRETED or DEVICE == "cuda"
on_triton = pytest.mark.skipif(
    not HERE, reason="needs a GPU or Triton's interpreter; runs in a process apart"
)
CLOCK = torch.tensor([5, 2, 3])
HALF = torch.bfloat16


@pytest.mark.skipif(HERE, reason="this is the process apart")
@pytest.mark.timeout(900)
def test_every_form_under_the_interpreter() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        __file__,
        *(
            str(Path(__file__).parents[1] / "samplers" / "gpu" / name)
            for name in ("test_device.py", "test_padded.py")
        ),
    ]
    settings = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    settings.pop("PYTEST_ADDOPTS", None)
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=settings, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "passed" in done.stdout


@pytest.fixture
def small_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut rows at 8 edges."""
    from weft.kernels.triton import plan

    monkeypatch.setattr(plan, "SEGMENT", 8)


def rows(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, device=DEVICE)


@on_triton
def test_operators_run_on_triton() -> None:
    assert gpu.available()
    assert "Triton" in gpu.describe()


@on_triton
def test_draws_are_those_of_the_counter_function() -> None:
    from triton_draws import fill

    from weft.kernels.triton.draw import signed

    ids, lanes = np.array([0, 1, 7, 2**31, 2**40 + 3, 2**62, 5, 6]), np.array([0, 1, 2, 1000])
    for seed in (0, 1, 12345, 2**62):
        key = draw.fold(seed, draw.Stream.DROPOUT, 3, 4, 5)
        out = torch.empty(8, 4, dtype=torch.int64, device=DEVICE)
        fill[(1,)](
            torch.from_numpy(ids).to(DEVICE), torch.from_numpy(lanes).to(DEVICE), out, signed(key), 8, 4
        )
        assert out.tolist() == draw.draw(key, ids[:, None], lanes[None, :]).tolist()


@on_triton
def test_a_key_is_folded_where_the_clock_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.kernels.triton import dropout
    from weft.kernels.triton.draw import folded, signed

    for clock in (CLOCK, torch.tensor([2**62, 0, 7])):
        expected = signed(draw.fold(int(clock[0]), 3, int(clock[1]), int(clock[2]), 4))
        assert folded(clock.to(DEVICE), 3, 4).tolist() == [expected]
    x, ids = values(9, 5), torch.arange(9, device=DEVICE)
    plain = dropout.dropout(x, ids, 0.4, CLOCK.cpu(), 2, 1)
    monkeypatch.setattr(dropout, "key_of", lambda clock, *rest: folded(clock.to(DEVICE), *rest))
    assert torch.equal(dropout.dropout(x, ids, 0.4, CLOCK, 2, 1), plain)


@on_triton
@pytest.mark.parametrize("num_edges", [0, 5, 60])
@pytest.mark.usefixtures("small_hubs")
def test_a_plan_that_asks_nobody_gives_the_same_bits(num_edges: int) -> None:
    from weft.kernels.triton import plan
    from weft.kernels.triton.spmm import spmm

    indptr, indices = csr(7, 9, num_edges)
    x, scale = values(7, 3), values(9)
    rest = (True, False, None, None, None)
    found = spmm(indptr, indices, None, x, None, None, scale, *rest)
    again = indptr.clone()
    plan.bounded(again, num_edges + 20)  # room for edges that are not there
    padded = torch.cat([indices, indices.new_zeros(20)])
    assert torch.equal(spmm(again, padded, None, x, None, None, scale, *rest), found)


@on_triton
@pytest.mark.parametrize(
    ("width", "dtype", "index"),
    [
        (1, torch.float32, torch.int32),
        (7, HALF, torch.int64),
        (33, torch.float16, torch.int32),
        (602, torch.float32, torch.int64),
    ],
)
@pytest.mark.usefixtures("small_hubs")
def test_sums_of_any_width_and_type(width: int, dtype: torch.dtype, index: torch.dtype) -> None:
    indptr, indices = csr(5, 6, 40, index=index)
    compare(lambda x: kernels.spmm(indptr, indices, x), [values(5, width, dtype=dtype)])


@on_triton
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.usefixtures("small_hubs")
def test_means_weights_and_scales(heads: int | None) -> None:
    indptr, indices = csr(5, 6, 40)
    weight = values(40) if heads is None else values(40, heads)
    scales = {"src_scale": values(5, seed=1), "dst_scale": values(6, seed=2)}
    run = lambda x, w: kernels.spmm(indptr, indices, x, w, "mean", **scales)  # noqa: E731
    compare(run, [values(5, 3, 5), weight])


@on_triton
@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.usefixtures("small_hubs")
def test_extremes_share_the_gradient_among_ties(reduce: str) -> None:
    indptr, indices = csr(5, 4, 30)
    x = values(5, 7)
    compare(lambda x: kernels.spmm(indptr, indices, x.round(), reduce=reduce) + x.sum(), [x])
    value, count = kernels.extreme(indptr, indices, x.round(), reduce)
    wanted = reference.extreme(indptr, indices, x.round(), reduce == "max")
    assert value.equal(wanted[0])
    assert count.equal(wanted[1])


@on_triton
def test_nan_beats_every_number_in_an_extreme() -> None:
    x = torch.tensor([[1.0], [float("nan")], [float("-inf")]], device=DEVICE)
    indptr, indices = rows(0, 2, 3, 3), rows(0, 1, 2)
    value, count = kernels.extreme(indptr, indices, x, "max")
    assert value[0].isnan().all()
    assert value[1:].flatten().tolist() == [float("-inf"), 0.0]
    assert count.flatten().tolist() == [1, 1, 0]


@on_triton
@pytest.mark.parametrize("op", ["dot", "add", "sub", "mul"])
@pytest.mark.usefixtures("small_hubs")
def test_a_value_for_every_edge(op: str) -> None:
    indptr, indices = csr(5, 4, 30)
    shape = (3, 5) if op == "dot" else (33,)
    compare(lambda a, b: kernels.sddmm(indptr, indices, a, b, op), [values(5, *shape), values(4, *shape)])


@on_triton
@pytest.mark.usefixtures("small_hubs")
def test_softmax_over_the_edges_of_a_row() -> None:
    indptr, _ = csr(5, 4, 30)
    compare(lambda scores: kernels.edge_softmax(indptr, scores), [values(30, 3)])
    masked = torch.full((30,), float("-inf"), device=DEVICE)
    assert kernels.edge_softmax(indptr, masked).eq(0).all()


@on_triton
def test_gathered_rows_get_the_sum_of_their_gradients() -> None:
    picked = rows(3, 1, 1, 5, 1)
    compare(lambda x: kernels.gather(x, picked), [values(8, 7)])
    for dtype in (torch.bool, torch.int8, torch.int64, HALF, torch.float64):
        x = values(8, 3).round().to(dtype)
        assert kernels.gather(x, picked).equal(x[picked])


@on_triton
# the interpreter's product of bfloat16 reads the bits as whole numbers
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16 if gpu.INTERPRETED else HALF])
def test_a_matrix_a_segment(dtype: torch.dtype) -> None:
    offsets = torch.tensor([0, 3, 3, 80], device="cpu")
    run = lambda x, w: kernels.segment_matmul(x, offsets, w)  # noqa: E731
    compare(run, [values(80, 7, dtype=dtype), values(3, 7, 9, dtype=dtype)], terms=100)


@on_triton
@pytest.mark.parametrize("dtype", [torch.float32, HALF])
def test_dropout_draws_the_same_mask(dtype: torch.dtype) -> None:
    x, ids = values(30, 33, dtype=dtype), torch.arange(30, device=DEVICE) * 7
    args = (x, ids, 0.4, CLOCK, int(draw.Stream.DROPOUT), 2)
    out = kernels.dropout(x, ids, 0.4, clock=CLOCK, layer=2)
    assert out.eq(0).equal(reference.dropout(*args).eq(0))
    compare(lambda x: kernels.dropout(x, ids, 0.4, clock=CLOCK), [x])
    lanes = torch.arange(30, device=DEVICE)
    flat = kernels.dropout(x[:, 0], ids, 0.4, clock=CLOCK, layer=2, lanes=lanes)
    assert flat.eq(0).equal(reference.dropout(x[:, 0], *args[1:], lanes).eq(0))


def attend(kind: str, graph: Any, **options: Any) -> tuple[Any, list[torch.Tensor]]:
    """Return an attention of 3 heads with an edge term, as a function, and its inputs."""
    indptr, indices = graph
    ends, heads, edges = (5, indptr.numel() - 1), 3, indices.numel()
    tail = (heads,) if kind == "additive" else (heads, 7)
    near = [values(count, *tail, seed=place) for place, count in enumerate(ends)]
    a = [values(*tail, seed=4)] if kind == "gatv2" else []
    term = values(edges, *(tail if kind == "gatv2" else (heads,)), seed=5)
    call = {
        "additive": kernels.attention,
        "gatv2": kernels.attention_gatv2,
        "dot": kernels.attention_dot,
    }[kind]
    run = lambda *xs: call(indptr, indices, *xs[:-1], 0.3, edge=xs[-1], clock=CLOCK, **options)  # noqa: E731
    return run, [*near, *a, values(5, heads, 5, seed=6), term]


@on_triton
@pytest.mark.parametrize("kind", ["additive", "gatv2", "dot"])
@pytest.mark.usefixtures("small_hubs")
def test_attention_and_its_gradients(kind: str) -> None:
    run, inputs = attend(kind, csr(5, 4, 24))
    compare(run, inputs)


@on_triton
@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_attention_drops_the_weights_that_the_counters_say(kind: str) -> None:
    graph = csr(3, 2, 9)
    run, inputs = attend(kind, graph, dropout=0.4, edge_ids=torch.arange(9, device=DEVICE) * 3)
    compare(run, inputs)


@on_triton
@pytest.mark.usefixtures("small_hubs")
def test_backward_from_the_sums_that_forward_kept() -> None:
    indptr, indices = csr(3, 3, 24)
    inputs = [values(3, 3), values(3, 3), values(3, 3, 5)]
    run = lambda s, d, v: kernels.attention(indptr, indices, s, d, v, dropout=0.3, clock=CLOCK)  # noqa: E731
    leaves = [x.clone().requires_grad_() for x in inputs]
    assert "keeping" in type(run(*leaves).grad_fn).__name__
    compare(run, inputs)


@on_triton
@pytest.mark.parametrize("kind", ["additive", "gatv2", "dot"])
@pytest.mark.usefixtures("small_hubs")
def test_sets_of_edges_that_know_the_dot_of_their_rows_add_up_to_the_whole(kind: str) -> None:
    indptr, indices = csr(5, 2, 40)
    _, (src, dst, *a, value, term) = attend(kind, (indptr, indices))
    number = {"additive": 0, "gatv2": 1, "dot": 2}[kind]
    inputs = (src, dst, a[0] if a else None, value, term)
    draws = (0.3, torch.arange(40, device=DEVICE) * 3, CLOCK, 2)
    args = [number, indptr, indices, *inputs, 0.3, *draws, None, None, None]
    grad = values(2, 3, 5, seed=7)
    _, top, total = reference_attention.forward(*args)
    whole = reference_attention.backward(*args, top, total, None, grad, [True] * 5)
    found = backward_in_sets(args, grad, torch.arange(40, device=DEVICE) % 2 == 0)
    for got, want in zip(found, [x for x in whole if x.numel()], strict=True):
        assert_near(got, want, torch.float32)


@on_triton
@pytest.mark.parametrize(("heads", "wide"), [(2, False), (3, True)])
def test_backward_counts_in_64_bits_where_the_gradient_is_large(
    heads: int, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weft.kernels.triton import attention, attention_backward

    kernel, seen = attention_backward._source_kernel, []

    class Noted:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *given, **sizes: (seen.append(sizes["WIDE"]), kernel[grid](*given, **sizes))

    monkeypatch.setattr(attention, "NARROW", 9 * 5 * 3)  # of the gradient: values and sources have fewer
    monkeypatch.setattr(attention_backward, "_source_kernel", Noted())
    indptr, indices = csr(2, 9, 24)
    inputs = [values(2, heads), values(9, heads), values(2, heads, 5)]
    compare(lambda s, d, v: kernels.attention(indptr, indices, s, d, v), inputs)
    assert seen == [wide]


@on_triton
def test_attention_in_half_precision_without_an_edge_term() -> None:
    indptr, indices = csr(5, 4, 24)
    inputs = [values(5, 4, dtype=HALF), values(4, 4, dtype=HALF), values(5, 4, 8, dtype=HALF)]
    compare(lambda s, d, v: kernels.attention(indptr, indices, s, d, v), inputs)


@on_triton
def test_masked_edges_and_empty_rows_count_for_nothing() -> None:
    indptr, indices = rows(0, 3, 5, 5), rows(0, 1, 2, 0, 1)
    mask = torch.tensor([0.0, float("-inf"), 0.0, float("-inf"), float("-inf")], device=DEVICE)[:, None]
    src, dst, value = values(3, 1), values(3, 1), values(3, 1, 4)
    term, leaf = mask.clone().requires_grad_(), value.clone().requires_grad_()
    out = kernels.attention(indptr, indices, src, dst, leaf, 0.0, edge=term)
    kept = kernels.attention(rows(0, 2, 2, 2), rows(0, 2), src, dst, value, 0.0)
    torch.testing.assert_close(out, kept)
    for grad in torch.autograd.grad(out.square().sum(), (term, leaf)):
        assert grad.isfinite().all()


@on_triton
def test_views_are_read_in_their_own_order() -> None:
    indptr, indices = csr(6, 4, 20)
    compare(lambda x: kernels.spmm(indptr, indices, x.T), [values(13, 6)])
    compare(lambda x: kernels.spmm(indptr, indices, x[::2, 1:4]), [values(12, 6)])
    x = values(6, 5, grad=True)
    kernels.spmm(indptr, indices, x).sum().backward()  # the gradient of a sum has strides of 0
    assert x.grad is not None
    assert x.grad[:, 0].tolist() == torch.bincount(indices, minlength=6).tolist()


@on_triton
@pytest.mark.usefixtures("small_hubs")
def test_scales_of_hubs_are_read_in_their_own_order() -> None:
    indptr, indices = csr(5, 6, 40)
    strided = (values(10)[::2], values(12, seed=1)[::2])
    expanded = (values(1).expand(5), values(1, seed=1).expand(6))
    for src, dst in (strided, expanded):
        run = lambda x: kernels.spmm(indptr, indices, x, src_scale=src, dst_scale=dst)  # noqa: B023, E731
        compare(run, [values(5, 3)])
    pointers = torch.stack([indptr, indptr], 1)[:, 0]
    compare(lambda x: kernels.spmm(pointers, indices, x, reduce="mean"), [values(5, 3)])


@on_triton
@pytest.mark.usefixtures("nan_memory")
def test_edges_of_no_row_have_a_weight_without_gradient() -> None:
    indptr, indices = csr(5, 6, 30)
    padded = torch.cat([indices, indices.new_zeros(4)])
    weight = values(34, grad=True)
    (grad,) = torch.autograd.grad(kernels.spmm(indptr, padded, values(5, 3), weight).sum(), weight)
    assert grad[:30].isfinite().all()
    assert grad[30:].eq(0).all()


@on_triton
@pytest.mark.usefixtures("nan_memory", "small_hubs")
def test_all_of_the_result_is_written() -> None:
    indptr, indices = csr(5, 6, 30)
    x = torch.ones(5, 33, device=DEVICE, requires_grad=True)
    out = kernels.spmm(indptr, indices, x, values(30))
    (grad,) = torch.autograd.grad(out.sum(), x)
    value, _ = kernels.extreme(indptr, indices, x.detach())
    for made in (out, grad, value, kernels.edge_softmax(indptr, values(30, 3))):
        assert not made.isnan().any()


@on_triton
@pytest.mark.parametrize(("num_src", "num_dst"), [(0, 0), (0, 3), (3, 0), (3, 3)])
def test_no_edges_and_no_nodes(num_src: int, num_dst: int) -> None:
    x = torch.ones(num_src, 4, device=DEVICE, requires_grad=True)
    indptr = torch.zeros(num_dst + 1, dtype=torch.int64, device=DEVICE)
    indices = torch.zeros(0, dtype=torch.int32, device=DEVICE)
    for reduce in ("sum", "mean", "max"):
        out = kernels.spmm(indptr, indices, x, reduce=reduce)
        assert out.shape == (num_dst, 4)
        assert not out.any()
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert not grad.any()
    scores = torch.ones(num_src, 2, device=DEVICE, requires_grad=True)
    near = torch.ones(num_dst, 2, device=DEVICE, requires_grad=True)
    out = kernels.attention(indptr, indices, scores, near, x.view(num_src, 2, 2))
    grads = torch.autograd.grad(out.sum(), (scores, near, x))
    assert all(not grad.any() for grad in grads)


@pytest.mark.skipif(DEVICE != "cuda", reason="needs a GPU")
@pytest.mark.parametrize("kind", ["additive", "gatv2", "dot"])
def test_the_bits_are_those_of_every_run(kind: str) -> None:
    graph = hub_csr(5, 20_000)
    run, inputs = attend(kind, graph)
    leaves = [x.requires_grad_() for x in inputs]
    first = torch.autograd.grad(run(*leaves).square().sum(), leaves)
    for _ in range(3):
        again = torch.autograd.grad(run(*leaves).square().sum(), leaves)
        assert all(a.equal(b) for a, b in zip(first, again))


def test_without_triton_the_reference_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_triton", gpu._Triton())
    monkeypatch.setattr(gpu, "_obstacle", lambda: "this GPU is too old")
    run = gpu.form("spmm.spmm", lambda *given: "the reference's")
    with pytest.warns(WeftWarning, match="slower reference kernels on the GPU: this GPU is too old"):
        assert run(1, 2) == "the reference's"
    assert run(1, 2) == "the reference's"  # a second warning would be an error


@pytest.mark.skipif(HERE, reason="nothing of a device in it")
def test_importing_the_operators_imports_no_triton() -> None:
    code = "import sys, weft.kernels; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_reference_can_be_asked_for() -> None:
    run = gpu.interpreted(lambda *given: "Triton's", lambda *given: "the reference's")
    assert run(1, 2) == "Triton's"
    with native.disabled():
        assert run(1, 2) == "the reference's"
    assert run(1, 2) == "Triton's"
