"""Any function of an edge, reduced over the incoming edges of each row."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from weft import kernels

if TYPE_CHECKING:
    from weft.graph.block import Block

Message = Callable[..., Any]


def propagate(
    block: "Block",
    message: Message,
    src: Sequence[Tensor],
    dst: Sequence[Tensor],
    edge: Sequence[Tensor],
    reduce: str,
    params: Sequence[Tensor],
) -> Tensor:
    raise NotImplementedError
