"""The work of an operator as counted features, which the measured rates of a machine turn into seconds."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from weft.compiler.programs.cost import EdgeCounts, multiplied, program_cost
from weft.compiler.programs.valueless import program_of
from weft.process import MAPPED


@dataclass
class CountedWork:
    """Counted work; it adds up."""

    steps: int = 0
    """Phases of a step that were entered: what is done around operators."""
    calls: int = 0
    """Operators."""
    sent: int = 0
    """Calls among workers that were begun: to pack, to count, and to hand over."""
    divided: int = 0
    """Operators on so many values that threads divide them, and are woken for it."""
    fresh: int = 0
    """Bytes of new tensors that are too large for the heap: the system gives, and clears, their pages."""
    products: int = 0
    """Multiplications of dense matrices, an addition each."""
    half_products: int = 0
    """Those of matrices of bfloat16."""
    edge_values: int = 0
    """Values that kernels of edges read: edges times the width of a row."""
    half_values: int = 0
    """Those that are bfloat16."""
    edges: int = 0
    """Edges that they went over."""
    attended: int = 0
    """Weights of edges that attention makes: edges times heads."""
    attending: int = 0
    """Rows of attention, times heads: each has a sum of its own."""
    masked: int = 0
    """Values that were dropped or kept by a draw each."""
    gathered: int = 0
    """Bytes of rows that were picked or put by an index."""
    touched: int = 0
    """Bytes that all other operators read and wrote."""
    far: int = 0
    """Bytes that any operator read from or wrote to tensors which no cache holds."""
    coded: int = 0
    """Values that were made codes of few bits, or made of them."""
    drawn: int = 0
    """Edges of batches that were drawn."""

    def add(self, other: "CountedWork") -> None:
        """Add another's."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


_FREE = frozenset(
    [
        "view",
        "_unsafe_view",
        "t",
        "transpose",
        "permute",
        "detach",
        "alias",
        "slice",
        "select",
        "expand",
        "as_strided",
        "unsqueeze",
        "squeeze",
        "reshape",
        "split",
        "split_with_sizes",
        "unbind",
        "empty",
        "new_empty",
        "empty_like",
        "empty_strided",
        "lift_fresh",
        "_local_scalar_dense",
        "is_same_size",
        "sym_size",
        "numpy_T",
        "diagonal",
    ]
)
_PRODUCTS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2)}
_PROJECTIONS = {"project": 1, "project_backward": 2}
"""Kernels of weft that multiply rows with weights, and how often."""
_INDEXED = frozenset(
    [
        "index",
        "index_put",
        "index_put_",
        "index_select",
        "index_add",
        "index_add_",
        "gather",
        "scatter",
        "scatter_add",
        "index_copy",
    ]
)


DIVIDED = 1 << 15
"""Values from which torch divides an operator among threads."""
FAR = 1 << 25
"""Bytes from which the tensors of an operator are not all in a cache."""


def work_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> CountedWork:
    """Return what an operator does, by its name and the shapes of its tensors."""
    name = func._schema.name.partition("::")[2]
    if name in _FREE:
        return _coding(args, out) if name == "new_empty" else CountedWork()
    found = _of_kind(func, args, kwargs, out)
    given = {id(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
    made = [each for each in tree_leaves(out) if isinstance(each, Tensor) and id(each) not in given]
    sizes = [each.numel() for each in tree_leaves((args, kwargs, out)) if isinstance(each, Tensor)]
    found.divided = int(max(sizes, default=0) >= DIVIDED)
    found.fresh = sum(_bytes(each) for each in made if _bytes(each) >= MAPPED)
    found.far = _far(found, [each for each in tree_leaves((args, kwargs, out)) if isinstance(each, Tensor)])
    return found


def _far(work: CountedWork, tensors: list[Tensor]) -> int:
    """Return the bytes that an operator finds in no cache: of tensors, and of rows that it reads again."""
    if sum(map(_bytes, tensors)) < FAR:
        return 0
    rows = max((each for each in tensors if each.is_floating_point()), key=_bytes, default=None)
    again = 0 if rows is None or _bytes(rows) < FAR else rows.element_size()
    return work.touched + work.gathered + again * (work.edge_values + work.half_values)


def _coding(args: tuple[Any, ...], out: Any) -> CountedWork:
    """Return the work of what gives codes a shape: without values they are not made by an operator."""
    given = args[0]
    if given.dim() != 2 or out.dim() != 2:
        return CountedWork()
    kinds = (given.dtype is torch.uint8, out.dtype is torch.uint8)
    if kinds == (False, True) and given.is_floating_point():
        return CountedWork(calls=1, coded=len(out) * given.shape[1], touched=_bytes(out))
    if kinds == (True, False) and out.is_floating_point():
        return CountedWork(calls=1, coded=out.numel(), touched=_bytes(given))
    return CountedWork()


def _of_kind(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> CountedWork:
    space, _, name = func._schema.name.partition("::")
    given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    made = [each for each in tree_leaves(out) if isinstance(each, Tensor)]
    size = sum(_bytes(each) for each in (*given, *made))
    if space == "weft" and name == "program":
        return _program(size, *args)
    if space == "weft":
        return _kernel(name, given, made, size)
    if name in _PRODUCTS:
        left, right = (args[place] for place in _PRODUCTS[name])
        return _multiplied(left.numel() * right.shape[-1], left)
    if name in _INDEXED:
        return CountedWork(calls=1, gathered=2 * sum(_bytes(each) for each in made))
    return CountedWork(calls=1, touched=size)


def _kernel(name: str, given: list[Tensor], made: list[Tensor], size: int) -> CountedWork:
    """Return the work of a kernel of weft: its longest list of whole numbers are its edges."""
    if name in _PROJECTIONS:
        rows, weight = given[:2]
        found = _multiplied(_PROJECTIONS[name] * rows.numel() * len(weight), rows)
        found.touched = size
        return found
    if name.startswith("dropout"):
        return CountedWork(calls=1, masked=made[0].numel(), touched=size)
    floats = [each for each in (*made, *given) if each.is_floating_point() and each.dim() > 1 and len(each)]
    edges = max(
        (each.numel() for each in given if not each.is_floating_point() and each.dim() == 1), default=0
    )
    found = CountedWork(calls=1, edges=edges, edge_values=edges * max(map(_width, floats[:1]), default=1))
    if name.startswith("attention"):
        heads = min(map(_width, floats), default=1)
        found.attended, found.attending = edges * heads, max(map(len, floats), default=0) * heads
        found.edge_values = edges * max((_width(each) for each in floats if each.dim() > 2), default=1)
    found.touched = size
    return _halved(found, floats[:1])


def _multiplied(products: int, left: Tensor) -> CountedWork:
    """Return the work of a product of matrices."""
    if left.dtype is torch.bfloat16:
        return CountedWork(calls=1, half_products=products)
    return CountedWork(calls=1, products=products)


def _halved(work: CountedWork, rows: list[Tensor]) -> CountedWork:
    """Return the work with values of edges as those of bfloat16 where they are."""
    if any(each.dtype is torch.bfloat16 for each in rows):
        work.half_values, work.edge_values = work.edge_values, 0
    return work


def _program(
    size: int,
    tensors: list[Tensor],
    indptr: Tensor,
    other: Tensor,
    numbers: Tensor | None,
    num_other: int,
    number: int,
) -> CountedWork:
    """Return the work of a message that the compiler made a program of."""
    program, dtype = program_of(number), tensors[0].dtype
    sizes = EdgeCounts(len(indptr) - 1, num_other, len(other))
    read = program_cost(program, sizes, dtype).read // dtype.itemsize
    found = CountedWork(calls=1, edges=sizes.edges, edge_values=read, touched=size)
    found.products = multiplied(program, sizes)
    return _halved(found, tensors[:1])


def _width(rows: Tensor) -> int:
    return rows[0].numel()


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
