"""Small graphs and comparisons for the tests of the kernels.

The oracle is the reference form in float64, on the values that the tested type holds.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from weft import kernels
from weft.kernels import native
from weft.kernels.attention import attention_backward_op, attention_op

Csr = tuple[Tensor, Tensor]

# `make test-gpu` runs the same tests on a GPU; random numbers are drawn on the CPU in any case.
DEVICE = os.environ.get("WEFT_TEST_DEVICE", "cpu")
WIDTHS = (1, 2, 3, 7, 8, 16, 33, 40, 64, 130, 301)
needs_core = pytest.mark.skipif(
    DEVICE != "cpu" or not native.available(), reason="needs the native core, which serves the CPU"
)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def csr(num_src: int, num_dst: int, num_edges: int, seed: int = 0, index: torch.dtype = torch.int32) -> Csr:
    """Return a random CSR with multi-edges; its last rows are empty."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(max(num_src, 1), (num_edges,), generator=generator, device="cpu")
    dst = torch.randint(max(num_dst - num_dst // 4, 1), (num_edges,), generator=generator, device="cpu")
    indptr, indices, _ = kernels.build_csr(src.to(DEVICE), dst.to(DEVICE), num_dst)
    return indptr, indices.to(index)


def hub_csr(num_src: int, hub_edges: int) -> Csr:
    """Return three rows: two edges, a hub, none."""
    degrees = torch.tensor([0, 2, 2 + hub_edges, 2 + hub_edges], device=DEVICE)
    generator = torch.Generator().manual_seed(1)
    shape = (2 + hub_edges,)
    indices = torch.randint(num_src, shape, generator=generator, dtype=torch.int32, device="cpu")
    return degrees, indices.to(DEVICE)


def values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = False) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    return drawn.to(device=DEVICE, dtype=dtype).requires_grad_(grad)


def tolerance(dtype: torch.dtype, terms: int) -> float:
    """Return the relative error to allow in a sum of so many terms of order one that is stored as `dtype`."""
    wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    return 2 * torch.finfo(dtype).eps + 4 * terms**0.5 * torch.finfo(wide).eps


def assert_near(got: Tensor, expected: Tensor, dtype: torch.dtype, terms: int = 64) -> None:
    assert got.shape == expected.shape
    if not expected.numel():
        return
    got, expected = got.detach(), expected.detach().double()
    scale = max(1.0, float(expected.abs().max()))
    error = float((got.double() - expected).abs().max()) / scale
    assert error <= tolerance(dtype, terms), f"error {error:.2e}, allowed {tolerance(dtype, terms):.2e}"


def compare(run: Callable[..., Tensor], inputs: Sequence[Tensor], terms: int = 64) -> None:
    """Hold the result and all gradients of `run` on `inputs` to the reference in float64."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = run(*leaves)
    up = values(*out.shape, dtype=out.dtype, seed=9)
    grads = torch.autograd.grad(out, leaves, up)
    with native.disabled():
        exact = [x.detach().double().requires_grad_() for x in inputs]
        expected = run(*exact)
        expected_grads = torch.autograd.grad(expected, exact, up.double())
    assert_near(out, expected, out.dtype, terms)
    for leaf, grad, wanted in zip(leaves, grads, expected_grads):
        assert grad.dtype == leaf.dtype
        assert_near(grad, wanted, leaf.dtype, terms)


def backward_in_sets(args: Sequence[Any], grad: Tensor, chosen: Tensor) -> list[Tensor]:
    """Return the gradients of attention made from two sets of its edges, those `chosen` and the others.

    Each set is told the maximum, the sum and the dot of whole rows. `args` are the operator's; what is not
    given has no gradient.
    """
    args = [x.detach() if isinstance(x, Tensor) else x for x in args]
    out, top, total = attention_op(*args)
    wanted = [x is not None for x in args[3:8]]
    told = (top, total, (grad * out).sum(-1), grad, wanted)
    one, other = (attention_backward_op(*_some_edges(args, set_), *told) for set_ in (chosen, ~chosen))
    grads = [x + y for x, y, want in zip(one[:4], other[:4], wanted) if want]
    if wanted[4]:
        grads.append(torch.empty_like(args[7]))
        grads[-1][chosen], grads[-1][~chosen] = one[4], other[4]
    return grads


def _some_edges(args: Sequence[Any], chosen: Tensor) -> list[Any]:
    """Return the arguments of attention with the chosen edges alone."""
    before = torch.cat([chosen.new_zeros(1, dtype=torch.int64), chosen.cumsum(0)])
    indptr, indices, (edge, edge_ids) = args[1], args[2], (args[7], args[10])
    some = [*args]
    some[1], some[2] = before[indptr], indices[chosen]
    some[7], some[10] = (None if x is None else x[chosen] for x in (edge, edge_ids))
    return some


def same_bits(run: Callable[[], Sequence[Tensor]]) -> None:
    """Run with 1, 2 and 5 threads and hold every result to the same bits."""
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append([x.detach().clone() for x in run()])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other):
            assert torch.equal(a.view(torch.uint8) if a.dim() else a, b.view(torch.uint8) if b.dim() else b)
