"""What layers ask of a block, as one value: so blocks that communicate or sample override one small method.

`Block.aggregate` and `Block.propagate` are the words of layers; each checks what it is given, once, and hands
an `Aggregation` or a `Propagation` to the block's own way of doing it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph.reductions import reduction

Message = Callable[..., Any]

OWN = "own"
"""Of a message that reduces its edges itself, by the number of each edge's row, which it is given last."""


@dataclass(frozen=True)
class Aggregation:
    """How rows are reduced over the edges of each destination; see `Block.aggregate`."""

    reduce: str = "sum"
    weight: Tensor | None = None
    relation: int | None = None
    src_scale: Tensor | None = None
    dst_scale: Tensor | None = None

    def __post_init__(self) -> None:
        if self.reduce not in ("sum", "mean", "max", "min"):
            raise GraphError(f"reduce must be sum, mean, max or min, got {self.reduce!r}")

    @property
    def adds(self) -> bool:
        """Whether it is a sum or a mean, which may be made of parts in any order."""
        return self.reduce in ("sum", "mean")

    @property
    def question(self) -> tuple[str, int | None]:
        """What is asked, beside the tensors: the key of what a block remembers."""
        return self.reduce, self.relation

    @property
    def tensors(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """The weight and both scales."""
        return self.weight, self.src_scale, self.dst_scale

    def weighed(self, stands_for: Tensor, dtype: torch.dtype) -> "Aggregation":
        """Return the same with each row, of `dtype`, times how many edges its edge stands for, [E]."""
        weight = stands_for.to(dtype) if self.weight is None else times_rows(self.weight, stands_for)
        return replace(self, weight=weight)

    def check_plain(self) -> None:
        """Refuse weights and scales, which the largest and the smallest value do not take."""
        if any(tensor is not None for tensor in self.tensors):
            raise InputError(
                f"reduce={self.reduce!r} takes no weight and no scale; use block.propagate instead"
            )


@dataclass(frozen=True)
class Propagation:
    """Which function of an edge is reduced, and of what; see `Block.propagate`."""

    message: Message
    src: Sequence[Tensor] = ()
    dst: Sequence[Tensor] = ()
    edge: Sequence[Tensor] = ()
    reduce: str = "sum"
    params: Sequence[Tensor] = ()
    complete: bool = False
    """Whether the message is known to use no other tensor than these."""
    scratch: frozenset[str] = frozenset()
    """Attributes that the message may set, since nobody reads them after it."""

    def __post_init__(self) -> None:
        if self.reduce != OWN:
            reduction(self.reduce)  # which refuses one that there is not

    @property
    def adds(self) -> bool:
        """Whether messages are added up."""
        return reduction(self.reduce).adds

    def weighed(self, stands_for: Tensor) -> "Propagation":
        """Return the same with each message times how many edges its edge stands for, [E]."""
        place, unweighed = len(self.per_edge), self.message

        def message(*given: Tensor) -> Tensor:
            made: Tensor = unweighed(*given[:place], *given[place + 1 :])
            return times_rows(made, given[place])

        return replace(self, message=message, edge=[*self.edge, stands_for])

    @property
    def kernel_reduce(self) -> str:
        """What kernels do: a mean is a sum, divided in the end."""
        return "sum" if self.reduce == "mean" else self.reduce

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The number of tensors of each kind."""
        return len(self.src), len(self.dst), len(self.edge), len(self.params)

    @property
    def per_edge(self) -> tuple[Tensor, ...]:
        """The tensors of which a message gets one row per edge, in the order of its arguments."""
        return (*self.src, *self.dst, *self.edge)

    def check_given(self) -> None:
        """Refuse what is no function, or no tuple or list of tensors with rows."""
        if not callable(self.message):
            raise InputError(f"propagate: message is {_described(self.message)}, not a function of an edge")
        for kind in ("src", "dst", "edge", "params"):
            given = getattr(self, kind)
            if isinstance(given, Tensor):
                raise InputError(f"propagate: {kind} is one tensor; give a tuple, {kind}=(h,), with a comma")
            if not (hasattr(given, "__len__") and hasattr(given, "__iter__")):
                raise InputError(f"propagate: {kind} is {_described(given)}, not a tuple of tensors")
            for place, each in enumerate(given):
                if not isinstance(each, Tensor) or (kind != "params" and each.dim() == 0):
                    wanted = "a tensor" if kind == "params" else "a tensor of rows"
                    raise InputError(f"propagate: {kind}[{place}] is {_described(each)}, not {wanted}")

    def check_rows(self, *, num_dst: int, num_edges: int) -> None:
        """Refuse tensors that do not have one row per destination or per edge."""
        for kind, tensors, rows in (("dst", self.dst, num_dst), ("edge", self.edge, num_edges)):
            for tensor in tensors:
                if tensor.shape[0] != rows:
                    hint = "; pass block.dst(h)" if kind == "dst" else ""
                    raise GraphError(
                        f"propagate: {kind} tensors need {rows:,} rows, got {tensor.shape[0]:,}{hint}"
                    )


def checked(made: Any, reduce: str, num_edges: int) -> Any:
    """Return what a message gave for edges, or say what it should have given."""
    parts = made if reduce == "softmax" and isinstance(made, (tuple, list)) else [made]
    whole = len(parts) == (2 if reduce == "softmax" else 1)
    if whole and all(isinstance(part, Tensor) and part.shape[:1] == (num_edges,) for part in parts):
        return made
    expected = "(score, value), each one row per edge" if reduce == "softmax" else "one row per edge"
    raise InputError(f"message: expected {expected}, [{num_edges:,}, …], got {_described(made)}")


def _described(made: Any) -> str:
    if isinstance(made, Tensor):
        return f"a tensor of shape {list(made.shape)}"
    if isinstance(made, (tuple, list)):
        return f"{type(made).__name__} of {', '.join(map(_described, made))}"
    return "None" if made is None else type(made).__name__


def times_rows(rows: Tensor, scale: Tensor | None) -> Tensor:
    """Return rows [n, ...] times a number each; None: as they are."""
    if scale is None:
        return rows
    return rows * scale.to(rows.dtype).reshape(-1, *[1] * (rows.dim() - 1))
