"""`torch.einsum` and products with one matrix per head, as the operators, sums and products that they are.

torch itself turns them into batched products that move the axis of edges. Here an edge's row stays one:

    ehf, hf -> eh       (x · w), summed over f
    ehf, hfo -> eho     one product [E, h f] · [h f, h o] with the heads' matrices along the diagonal

A form that is none of these is left to torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_VECTORS = (torch.mv, Tensor.mv)
_MATMULS = (torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__)


@dataclass(frozen=True)
class Lettered:
    """A tensor and the letters of its axes."""

    letters: str
    tensor: Tensor

    def placed(self, order: str) -> Tensor:
        """Return the tensor with its axes in the order of letters, 1 where it has none."""
        own = [self.letters.index(each) for each in order if each in self.letters]
        moved = self.tensor if own == sorted(own) else self.tensor.permute(own)
        sizes = dict(zip(self.letters, self.tensor.shape))
        return moved.reshape([sizes.get(each, 1) for each in order])


class Contractions(TorchFunctionMode):
    """Writes the contractions that run under it out; `rows` is the size of the axis of edges."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what torch would, by other operators where it is a contraction of edges."""
        made = None
        if func is torch.einsum and not kwargs:
            made = self._einsum(*args)
        elif func in _MATMULS and len(args) == 2 and not kwargs:
            made = self._matmul(*args)
        elif func in _VECTORS and len(args) == 2 and not kwargs:
            made = self._by_vector(*args)
        return func(*args, **(kwargs or {})) if made is None else made

    def _einsum(self, equation: Any, *given: Any) -> Tensor | None:
        tensors = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
        if not isinstance(equation, str) or "->" not in equation or "." in equation:
            return None
        inputs, out = equation.replace(" ", "").split("->")
        letters = inputs.split(",")
        if len(letters) != len(tensors) or not all(isinstance(each, Tensor) for each in tensors):
            return None
        return self.contracted([Lettered(*pair) for pair in zip(letters, tensors)], out)

    def _matmul(self, a: Any, b: Any) -> Tensor | None:
        """[E, …, i, f] · [h, f, o] with one matrix per head, · [E, …, f, o] with one per edge, or · [f]."""
        if isinstance(b, Tensor) and b.dim() == 1:
            return self._by_vector(a, b)
        if not isinstance(a, Tensor) or not isinstance(b, Tensor) or a.dim() < 3 or b.dim() < 3:
            return None
        batch = "eabcd"[: max(a.dim(), b.dim()) - 2]
        first, second = (batch[len(batch) + 2 - each.dim() :] for each in (a, b))
        return self.contracted([Lettered(first + "xy", a), Lettered(second + "yz", b)], batch + "xz")

    def _by_vector(self, a: Any, b: Any) -> Tensor | None:
        """[E, …, f] · [f], as a product with a matrix of one column."""
        if not isinstance(a, Tensor) or a.dim() < 2 or a.shape[0] != self.rows:
            return None
        return torch.matmul(a, b.unsqueeze(1)).squeeze(-1)

    def contracted(self, given: Sequence[Lettered], out: str) -> Tensor | None:
        """Return the sum over the letters that `out` has not; None: it is none of the forms known here."""
        sizes = {letter: size for each in given for letter, size in zip(each.letters, each.tensor.shape)}
        if not self._fits(given, out, sizes):
            return None
        kept = "".join(letter for letter in out if sizes[letter] != 1)
        slim = [_without_ones(each, sizes) for each in given]
        made = slim[0]
        for place, each in enumerate(slim[1:], 2):
            later = kept + "".join(one.letters for one in slim[place:])
            joined = _pair(made, each, later)
            if joined is None:
                return None
            made = joined
        return _summed(made, kept).placed(out)

    def _fits(self, given: Sequence[Lettered], out: str, sizes: dict[str, int]) -> bool:
        """Return whether edges are the first axis of all that has them, and of the result."""
        if any(len(each.letters) != each.tensor.dim() for each in given):
            return False
        whole = [each.letters for each in given if len(set(each.letters)) == len(each.letters)]
        edge = [letter for letter, size in sizes.items() if size == self.rows]
        if len(whole) < len(given) or len(edge) != 1 or not set(out) <= set(sizes):
            return False
        alike = all(sizes[a] == s for each in given for a, s in zip(each.letters, each.tensor.shape))
        first = [each for each in [*whole, out] if edge[0] in each]
        return alike and out.startswith(edge[0]) and all(each.startswith(edge[0]) for each in first)


def _without_ones(each: Lettered, sizes: dict[str, int]) -> Lettered:
    letters = "".join(letter for letter in each.letters if sizes[letter] != 1)
    return Lettered(letters, each.tensor.reshape([sizes[letter] for letter in letters]))


def _summed(each: Lettered, kept: str) -> Lettered:
    gone = [place for place, letter in enumerate(each.letters) if letter not in kept]
    if not gone:
        return each
    return Lettered("".join(x for x in each.letters if x in kept), each.tensor.sum(gone))


def _pair(a: Lettered, b: Lettered, later: str) -> Lettered | None:
    """Return the product of two, summed over the letters that nothing needs later."""
    for one, two in ((a, b), (b, a)):
        if set(two.letters) <= set(one.letters):
            product = Lettered(one.letters, one.tensor * two.placed(one.letters))
            return _summed(product, later)
    if set(a.letters) & set(b.letters) & set(later) == set(b.letters) & set(a.letters):
        return None  # nothing is contracted: an outer product
    rows, matrix = (a, b) if a.letters[:1] in later and a.letters[:1] not in b.letters else (b, a)
    return _dense(rows, matrix, later)


def _dense(rows: Lettered, matrix: Lettered, later: str) -> Lettered | None:
    """Return rows times a matrix, or one for each head, as a product of matrices."""
    both = [letter for letter in rows.letters if letter in matrix.letters]
    heads = "".join(letter for letter in both if letter in later)
    inner = "".join(letter for letter in both if letter not in later)
    outer = "".join(letter for letter in matrix.letters if letter not in rows.letters)
    if set(rows.letters[1:]) != set(heads + inner) or rows.letters[0] in matrix.letters:
        return None
    if any(letter not in later for letter in outer):
        return None
    sizes = dict(zip(rows.letters + matrix.letters, (*rows.tensor.shape, *matrix.tensor.shape)))
    count, size, columns = (prod(sizes[each] for each in group) for group in (heads, inner, outer))
    blocks = matrix.placed(heads + inner + outer).reshape(count, size, columns)
    if count > 1:
        one = torch.eye(count, dtype=blocks.dtype, device=blocks.device)
        blocks = blocks.unsqueeze(2) * one.reshape(count, 1, count, 1)
    flat = rows.placed(rows.letters[0] + heads + inner).reshape(-1, count * size)
    made = flat @ blocks.reshape(count * size, count * columns)
    letters = rows.letters[0] + heads + outer
    return Lettered(letters, made.reshape([sizes[each] for each in letters]))
