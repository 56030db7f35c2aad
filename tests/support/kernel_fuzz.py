"""Calls of the kernels as a mistaken caller would make them: tensors or an error, never the end of a process.

python tests/support/kernel_fuzz.py CALLS [LIBRARY]
"""

import random
import sys
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from weft import kernels
from weft.errors import WeftError
from weft.kernels import native
from weft.kernels.quantise import dequantise, quantise

REFUSED = (WeftError, IndexError, RuntimeError, TypeError, ValueError, AssertionError)
ODD = (-(2**63), -(2**31), -1, 0, 1, 2, 3, 7, 2**31 - 1, 2**31, 2**40, 2**63 - 1)
INDEX, FLOATS = (torch.int32, torch.int64), (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class Drawn:
    """Arguments: mostly fitting, sometimes not."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def odd(self) -> bool:
        """Return whether the next argument is to be wrong."""
        return self.draw.random() < 0.06

    def size(self, most: int = 40) -> int:
        """Return a number of rows, also none."""
        return self.draw.choice((0, 1, 2, self.draw.randint(0, most), self.draw.randint(0, most)))

    def numbers(self, count: int, most: int) -> Tensor:
        """Return places below `most`, in any type; sometimes one is far outside, or there are too many."""
        kind = self.draw.choice(INDEX)
        count = self.size() if self.odd() else count
        found = [self.draw.randrange(most) if most > 0 else 0 for _ in range(count)]
        if found and self.odd():
            found[self.draw.randrange(count)] = self.draw.choice(ODD)
            kind = torch.int64
        return torch.tensor(found, dtype=kind)

    def indptr(self, rows: int, edges: int) -> Tensor:
        """Return the bounds of rows; sometimes they fall, end elsewhere, or are not there."""
        inner = sorted(self.draw.randint(0, edges) for _ in range(max(0, rows - 1)))
        found = [0, *inner, edges] if rows else [0]
        if self.odd():
            found[self.draw.randrange(len(found))] = self.draw.choice(ODD)
        return torch.tensor([] if self.odd() else found, dtype=torch.int64)

    def values(self, *shape: int) -> Tensor:
        """Return values of any type; sometimes of another shape, without order, or not finite."""
        shape = (*shape[:-1], shape[-1] + 1) if self.odd() else shape
        found = torch.randn(shape, dtype=torch.float64).to(self.draw.choice(FLOATS))
        if self.odd() and found.dim() > 1:
            found = found.mT
        if self.odd() and found.numel():
            found.view(-1)[0] = float("nan") if found.is_contiguous() else 0.0
        return found


def call(drawn: Drawn) -> str:
    """Make one call; return what became of it."""
    rows, sources, edges, width = drawn.size(), drawn.size(), drawn.size(200), drawn.size(20)
    name = drawn.draw.choice(sorted(CALLS))
    try:
        CALLS[name](drawn, rows, sources, edges, width)
    except REFUSED:
        return f"{name} refused"
    return f"{name} done"


def _build(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    typed = drawn.numbers(edges, 3) if drawn.odd() else None
    src, dst = drawn.numbers(edges, sources), drawn.numbers(edges, rows)
    size = drawn.draw.choice((-1, 0, rows)) if drawn.odd() else rows
    indptr, indices, _ = kernels.build_csr(src, dst, size, edge_type=typed)
    if indices.dtype == torch.int32:
        kernels.transpose_csr(indptr, indices, -1 if drawn.odd() else sources)


def _transpose(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    kernels.transpose_csr(drawn.indptr(rows, edges), drawn.numbers(edges, sources), sources)


def _spmm(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    x = drawn.values(sources, width).requires_grad_()
    weight = drawn.values(edges) if drawn.odd() else None
    out = kernels.spmm(drawn.indptr(rows, edges), drawn.numbers(edges, sources), x, weight)
    out.float().sum().backward()  # type: ignore[no-untyped-call]


def _extreme(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    x = drawn.values(sources, width).requires_grad_()
    out, _ = kernels.extreme(drawn.indptr(rows, edges), drawn.numbers(edges, sources), x)
    out.float().sum().backward()  # type: ignore[no-untyped-call]


def _softmax(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    scores = drawn.values(edges, max(1, width % 5)).requires_grad_()
    kernels.edge_softmax(drawn.indptr(rows, edges), scores).float().sum().backward()  # type: ignore[no-untyped-call]


def _sddmm(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    a, b = drawn.values(sources, 2, width), drawn.values(rows, 2, width)
    kernels.sddmm(drawn.indptr(rows, edges), drawn.numbers(edges, sources), a, b.to(a.dtype))


def _gather(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    kernels.gather(drawn.values(sources, width), drawn.numbers(edges, sources))


def _relabel(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    kernels.relabel(drawn.numbers(edges, max(1, sources)))


def _attention(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    x, of_src, of_dst = drawn.values(sources, 2, width), drawn.values(sources, 2), drawn.values(rows, 2)
    indptr, indices = drawn.indptr(rows, edges), drawn.numbers(edges, sources)
    kernels.attention(indptr, indices, of_src.to(x.dtype), of_dst.to(x.dtype), x)


def _segments(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    x, kinds = drawn.values(edges, width), drawn.draw.randint(1, 4)
    kernels.segment_matmul(x, drawn.indptr(kinds, edges), drawn.values(kinds, width, 3).to(x.dtype))


def _codes(drawn: Drawn, rows: int, sources: int, edges: int, width: int) -> None:
    bits, clock = drawn.draw.choice((1, 2, 4, 8, 16)), torch.tensor([1, 2, 3])
    coded = quantise(drawn.values(rows, width), drawn.numbers(rows, 100).long(), bits, clock=clock)
    width = width + 1 if drawn.odd() else width
    dequantise(coded, width, bits, torch.float32)


CALLS = {
    each.__name__.strip("_"): each
    for each in (_build, _transpose, _spmm, _extreme, _softmax, _sddmm, _gather, _relabel, _attention,
                 _segments, _codes)
}  # fmt: skip


def run(count: int, seed: int = 0) -> Counter[str]:
    """Return how often each kernel was called, and how often it refused."""
    return Counter(call(Drawn(seed * 1_000_003 + number)) for number in range(count))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        native.find = lambda: Path(sys.argv[2])  # type: ignore[assignment]
    torch.set_num_threads(2)
    assert native.available(), native.describe()
    for name, times in sorted(run(int(sys.argv[1])).items()):
        print(name, times)
