"""The native core against the definition, on generated graphs and shapes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft import kernels
from weft.kernels import native

pytestmark = pytest.mark.skipif(not native.available(), reason="needs the native core")

EXAMPLES = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SIZES = st.integers(1, 6) | st.sampled_from([8, 16, 17, 33, 70])
CLOCK = torch.tensor([3, 1, 4])


@st.composite
def csrs(draw: st.DrawFn) -> tuple[Tensor, Tensor, int]:
    """Return (indptr, indices, num_src): empty rows, repeated edges, sometimes a hub that is cut."""
    num_src = draw(st.integers(1, 20))
    degrees = draw(st.lists(st.integers(0, 9) | st.sampled_from([0, 0, 40]), min_size=0, max_size=12))
    if degrees and draw(st.integers(0, 9)) == 0:
        degrees[draw(st.integers(0, len(degrees) - 1))] = draw(st.sampled_from([4096, 4097, 8193]))
    indptr = torch.tensor([0, *degrees]).cumsum(0)
    make = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    indices = torch.randint(num_src, (sum(degrees),), generator=make)
    return indptr, indices.to(draw(st.sampled_from([torch.int32, torch.int64]))), num_src


def inputs(seed: int, *shapes: tuple[int, ...] | None) -> list[Tensor | None]:
    make = torch.Generator().manual_seed(seed)
    return [
        None if shape is None else torch.randn(shape, dtype=torch.float64, generator=make) for shape in shapes
    ]


def agree(run: Callable[..., Tensor], given_inputs: list[Tensor | None]) -> None:
    """Hold result and gradients of the core to those of the reference."""

    def outcome() -> list[Tensor]:
        leaves = [None if x is None else x.clone().requires_grad_() for x in given_inputs]
        out = run(*leaves)
        up = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).reshape(out.shape)
        return [out.detach(), *torch.autograd.grad(out, [x for x in leaves if x is not None], up)]

    got = outcome()
    with native.disabled():
        expected = outcome()
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@EXAMPLES
@given(csrs(), SIZES, st.sampled_from([None, 1, 2, 3, 8]), st.data())
def test_spmm(graph: tuple[Tensor, Tensor, int], width: int, heads: int | None, data: st.DataObject) -> None:
    indptr, indices, num_src = graph
    reduce = data.draw(st.sampled_from(["sum", "mean", "max", "min"]))
    plain = reduce in ("max", "min")
    weighted, scaled = (data.draw(st.booleans()) and not plain for _ in range(2))
    scales: dict[str, Any] = {}
    if scaled:
        src, dst = inputs(1, (num_src,), (len(indptr) - 1,))
        scales = {"src_scale": src, "dst_scale": dst}
    shape = (num_src, width) if heads is None else (num_src, heads, width)
    weight = (len(indices),) if heads is None else (len(indices), heads)
    agree(
        lambda x, w: kernels.spmm(indptr, indices, x, w, reduce, **scales),
        inputs(0, shape, weight if weighted else None),
    )


@EXAMPLES
@given(csrs(), SIZES, st.sampled_from([None, 1, 2, 3, 8]), st.sampled_from(["dot", "add", "sub", "mul"]))
def test_sddmm(graph: tuple[Tensor, Tensor, int], width: int, heads: int | None, op: str) -> None:
    indptr, indices, num_src = graph
    tail = (width,) if heads is None else (heads, width)
    agree(
        lambda a, b: kernels.sddmm(indptr, indices, a, b, op),
        inputs(0, (num_src, *tail), (len(indptr) - 1, *tail)),
    )


@EXAMPLES
@given(csrs(), SIZES)
def test_edge_softmax(graph: tuple[Tensor, Tensor, int], heads: int) -> None:
    indptr, indices, _ = graph
    agree(lambda scores: kernels.edge_softmax(indptr, scores), inputs(0, (len(indices), heads)))


@EXAMPLES
@given(csrs(), SIZES, SIZES, st.sampled_from([1, 2, 3, 8]), st.data())
def test_attention(
    graph: tuple[Tensor, Tensor, int], dim: int, value_dim: int, heads: int, data: st.DataObject
) -> None:
    indptr, indices, num_src = graph
    kind = data.draw(st.sampled_from(["additive", "gatv2", "dot"]))
    with_edge, dropout = data.draw(st.booleans()), data.draw(st.sampled_from([0.0, 0.5]))
    options: dict[str, Any] = {"dropout": dropout, "clock": CLOCK, "layer": 2}
    tail = (heads,) if kind == "additive" else (heads, dim)
    a = (heads, dim) if kind == "gatv2" else None
    edge = (len(indices), *(tail if kind == "gatv2" else (heads,)))
    shapes = ((num_src, *tail), (len(indptr) - 1, *tail), a, (num_src, heads, value_dim))

    def run(src: Tensor, dst: Tensor, a: Tensor | None, value: Tensor, edge: Tensor | None) -> Tensor:
        if a is not None:
            return kernels.attention_gatv2(indptr, indices, src, dst, a, value, edge=edge, **options)
        if kind == "dot":
            return kernels.attention_dot(indptr, indices, src, dst, value, 0.3, edge=edge, **options)
        return kernels.attention(indptr, indices, src, dst, value, edge=edge, **options)

    agree(run, inputs(0, *shapes, edge if with_edge else None))
