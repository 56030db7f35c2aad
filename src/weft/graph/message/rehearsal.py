"""Messages tried on a few edges: nothing of it stays, and it tells whether they are of their own edges alone.

A message that is not compiled may look at other edges: a batch norm while training, `x - x.mean(0)`, `if
x.sum() > 0`. Made for a part of the edges it would be another message.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.compiler.tracing.apart import unsaved
from weft.compiler.tracing.held import held_by
from weft.errors import GraphError
from weft.graph.message.compiled import compiled_of
from weft.graph.message.reduction import OWN, Message, Propagation

TRIED = 64
"""Edges on which a message is tried."""


@contextmanager
def rehearsed(message: Message) -> Iterator["Rehearsal"]:
    """Leave everything that a message reaches as it was, whatever runs meanwhile."""
    rehearsal, before = Rehearsal(), held_by(message)
    before.require_lasting()
    try:
        with unsaved(), rehearsal:
            yield rehearsal
    finally:
        rehearsal.writes |= bool(before.restored())


class Rehearsal(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes to copies of the tensors that were there before, and draws ones."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.writes = False
        """Whether something would have changed."""
        self.num_edges: int | None = None
        """Of how many edges what runs is a message; None: of no matter how many."""
        self.draws_for_all = False
        """Whether numbers were drawn that edges share."""
        self.made: dict[int, Tensor] = {}  # kept, so that no id is used twice

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = func._schema.is_mutable or "batch_norm" in func._schema.name  # which says it of some alone
        copies = {
            id(each): each.clone()
            for each in (tree_leaves(args) if written else ())
            if isinstance(each, Tensor) and id(each) not in self.made
        }
        self.writes |= bool(copies)
        made = func(*(copies.get(id(each), each) for each in args), **(kwargs or {}))
        if torch.Tag.nondeterministic_seeded in func.tags:
            drawn = [each for each in tree_leaves(made) if isinstance(each, Tensor)]
            self.draws_for_all |= any(each.shape[:1] != (self.num_edges,) for each in drawn)
            if func is torch.ops.aten.native_dropout.default:
                return args[0].clone(), torch.ones_like(args[0], dtype=torch.bool)
            _ = [each.fill_(1) for each in drawn]
        if func._schema.is_mutable and args and isinstance(made, Tensor):
            return args[0]
        self.made.update({id(each): each for each in tree_leaves(made) if isinstance(each, Tensor)})
        return made


def of_each_edge(message: Message, rows: Sequence[Tensor], params: Sequence[Tensor]) -> bool:
    """Return whether a message of some edges is the same without the others; `rows` are those of a few."""
    few = [_unlike(each.detach()) for each in rows]
    some = slice(len(few[0]) // 2, None)
    made = []
    try:
        with torch.random.fork_rng([]), torch.enable_grad(), rehearsed(message) as rehearsal:
            for given in (few, [t[some] for t in few]):
                rehearsal.num_edges = len(given[0])
                made.append(_tensors(message(*given, *params)))
    except Exception:
        return False  # all edges at once say what is wrong
    whole, part = made
    alike = len(whole) == len(part) and all(_same(a[some], b) for a, b in zip(whole, part))
    return alike and not rehearsal.draws_for_all


def need_no_other_edges(how: Propagation, *, parts: bool = False) -> None:
    """Refuse a message that is known to read other edges than its own, where nobody has all of them."""
    found = other_edges(how, parts=parts)
    if found:
        raise GraphError(
            "propagate: the message of an edge depends on other edges, which other workers or parts have"
            f' ({found}); make it of the edge\'s own rows, or use strategy.name = "single"'
        )


def other_edges(how: Propagation, *, parts: bool = False) -> str:
    """Return what is known of a message that depends on other edges than its own, "" of any other.

    All ranks find the same: rows that are made up are tried. With `parts` a message is tried also where it
    may communicate.
    """
    if how.complete or how.reduce == OWN or torch.compiler.is_compiling():
        return ""
    found = compiled_of(how)
    if not isinstance(found, str):
        return ""
    rows = [_made_up(t) for t in how.per_edge]
    tried = found.recorded or parts
    reads = found.reads_others or (tried and not of_each_edge(how.message, rows, how.params))
    return found if reads else ""


def _made_up(tensor: Tensor) -> Tensor:
    shape = (TRIED, *tensor.shape[1:])
    return tensor.new_ones(shape) if tensor.is_floating_point() else tensor.new_zeros(shape)


def _unlike(rows: Tensor) -> Tensor:
    """Return rows of numbers that are a little apart, as rows that are all one tell nothing."""
    if not rows.is_floating_point():
        return rows
    bent = torch.arange(rows.numel(), device=rows.device).mul(12.9898).sin().reshape(rows.shape)
    return (rows * (1 + 0.1 * bent) + 0.01 * bent.abs()).to(rows.dtype)


def _tensors(made: Any) -> list[Tensor]:
    return [each.detach() for each in (made if isinstance(made, (tuple, list)) else [made])]


def _same(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    bound = 8 * torch.finfo(a.dtype).eps
    finite = a[a.isfinite()].abs()
    most = float(finite.max()) if finite.numel() else 0.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=bound, atol=bound * most, equal_nan=True)
