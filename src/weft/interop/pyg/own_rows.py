"""A PyG convolution on rows that a worker owns: what its messages read of others travels, nothing else.

The convolution runs on own rows alone, so what it makes of a row is made once, by its owner. Its `propagate`
is the block's: the message is taken apart from its reduction, and the block brings the narrowest values that
edges read, or merges what is reduced. What `edge_updater` gives is made with the message.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import MethodType
from typing import Any

from torch import Tensor

from weft.graph.message.block import Block
from weft.graph.message.crossing import crossed, opened_message
from weft.graph.message.propagate import propagate
from weft.graph.message.reduction import Propagation
from weft.interop.pyg.accelerate.adjacency import adjacency, plain
from weft.interop.pyg.accelerate.calls import OrderedEdges, UpdateCall, propagated
from weft.interop.pyg.accelerate.edge_updates import EdgeUpdate, EdgeValues
from weft.interop.pyg.accelerate.messages import obstacle
from weft.interop.pyg.accelerate.swap import NotCovered


@contextmanager
def on_own_rows(conv: Any, block: Block) -> Iterator[None]:
    """Have a convolution's messages reduced by a block while it lasts, of rows that the caller holds.

    Raises `NotCovered`, on all ranks alike, before anything travels for a message that cannot be taken apart.
    """
    if reason := obstacle(conv):
        raise NotCovered(reason)
    state = vars(conv).get("_weft")
    before = None if state is None else state.refused
    # Methods of the convolution, since a message can reach them: it would depend on the block otherwise.
    conv.propagate, conv.edge_updater = MethodType(_propagate, conv), MethodType(_edge_updater, conv)
    _running.append(_OwnRows(conv, block))
    if state is not None:
        state.refused = "its rows are on several workers"  # a forward of ours reads all of them
    try:
        yield
    finally:
        _running.pop()
        del conv.propagate, conv.edge_updater
        if state is not None:
            state.refused = before


_running: list["_OwnRows"] = []


def _propagate(conv: Any, edge_index: Tensor, size: Any = None, **kwargs: Any) -> Any:
    return _running[-1].propagate(edge_index, size, **kwargs)


def _edge_updater(conv: Any, edge_index: Tensor, size: Any = None, **kwargs: Any) -> EdgeValues:
    return _running[-1].edge_updater(edge_index, size, **kwargs)


class _OwnRows:
    """`propagate` and `edge_updater` of a convolution on own rows."""

    def __init__(self, conv: Any, block: Block) -> None:
        self.conv, self.block = conv, block

    def propagate(self, edge_index: Tensor, size: Any = None, **kwargs: Any) -> Any:
        """Return what PyG's does."""
        call = propagated(self.conv, edge_index, size, kwargs, edges=self._edges)
        if call.axis:
            raise NotCovered("rows are not along the first axis")
        found = opened_message(call.how)
        if isinstance(found, str):
            raise NotCovered(f"its message is not compiled: {found}")
        if edge_index is self.block.edge_index():
            rows = found.finished(self.block._propagate(found.how), self.block.in_degree("dst"))
        elif self.block.whole_rows:
            there = self._brought(found.how)
            rows = found.finished(propagate(call.block, there), call.block.indptr.diff())
        else:
            raise NotCovered("it changes the edges, and those into a row are on several workers")
        return call.updated(rows)

    def edge_updater(self, edge_index: Tensor, size: Any = None, **kwargs: Any) -> EdgeValues:
        """Return what stands for PyG's, which `propagate` makes."""
        update = EdgeUpdate.of(self.conv, _not_here, edge_index, size, kwargs)
        form = UpdateCall(update, edges=self._edges).form()
        if form is None:
            raise NotCovered("its edge_update gives whole numbers")
        return EdgeValues(update, form, _not_here)

    def _edges(self, edge_index: Tensor, size: tuple[int, int]) -> OrderedEdges:
        if size != (self.block.num_dst, self.block.num_dst):
            raise NotCovered(f"there are rows of {size} nodes, not of the {self.block.num_dst} that are here")
        if edge_index is self.block.edge_index():
            return _InOrder(self.block)
        return adjacency(plain(edge_index), self.block.num_src, self.block.num_dst)

    def _brought(self, how: Propagation) -> Propagation:
        """Return the messages of what should travel for them, with the rows of others."""
        narrow = crossed(how, lambda h: False)
        return replace(narrow, src=[self.block.src(each) for each in narrow.src])


class _InOrder:
    """The edges of a block, in their order."""

    def __init__(self, block: Block) -> None:
        self.block = block

    def ordered(self, tensor: Tensor) -> Tensor:
        """Return values of edges as they are."""
        return tensor


def _not_here(*_: Any, **__: Any) -> Any:
    raise NotCovered("what its edge_updater gives is read by more than propagate")


__all__ = ["NotCovered", "on_own_rows"]
