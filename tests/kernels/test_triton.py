"""The Triton forms of every operator, on a GPU or, where there is none, by Triton's interpreter on the CPU.

The interpreter must be chosen before Python starts, so one test here runs this file and those of the folder
triton in a process of its own. It takes milliseconds an operation: graphs are tiny, and a row of more than 8
edges counts as a hub.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from kernel_checks import DEVICE, assert_near, backward_in_sets, compare, csr, hub_csr, values
from triton_checks import CLOCK, HALF, HERE, on_triton, rows, run_under_the_interpreter

from weft import kernels
from weft.kernels import gpu, reference_attention

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


@pytest.mark.skipif(HERE, reason="this is the process apart")
@pytest.mark.timeout(900)
def test_every_form_under_the_interpreter() -> None:
    others = ("kernels/triton", "samplers/gpu/test_device.py", "samplers/gpu/test_padded.py")
    run_under_the_interpreter(__file__, *(Path(__file__).parents[1] / name for name in others))


@on_triton
def test_operators_run_on_triton() -> None:
    assert gpu.available()
    assert "Triton" in gpu.describe()


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
    from weft.kernels.triton import attention_tiles, attention_to_sources

    kernel, seen = attention_to_sources._source_kernel, []

    class Noted:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *given, **sizes: (seen.append(sizes["WIDE"]), kernel[grid](*given, **sizes))

    # Elements of the gradient: values and sources have fewer.
    monkeypatch.setattr(attention_tiles, "NARROW", 9 * 5 * 3)
    monkeypatch.setattr(attention_to_sources, "_source_kernel", Noted())
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
