"""Finds what the first layer of a model sums of the features, if that is all it does with edges."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from weft.graph.message.block import Block

# What a layer may ask of a block whose edges are not there.
_COUNTS = {"in_degree", "out_degree", "mean_scale", "num_src", "num_dst", "src_ids", "dst_ids"}
_ALONE = _COUNTS | {
    "dst",
    "has_edge",
    "edge",
    "cached",
    "constant",
    "device",
    "clock",
    "draw_clock",
    "whole_rows",
}


def sums_of_inputs(model: nn.Module, block: Block, x: Any, hops: int) -> list[Tensor] | None:
    """Return the aggregates [rows, …] of x that the first layer makes; None where it does anything else.

    Where features are dropped, transformed or attended to first, or edges are weighed by what is learned, no
    aggregate stays as it is. The model is run as in training, up to its second layer.
    """
    if not isinstance(x, Tensor) or hops < 2:
        return None
    listener = _Listener(block, x)
    with norms_kept(model), torch.random.fork_rng(devices=[]):
        training = [(module, module.training) for module in model.modules()]
        # In evaluation dropout would pass the features on as they are, and sums of them would seem fixed.
        model.train()
        try:
            model([listener, *[LaterBlock()] * (hops - 1)], x)
        except EnoughError:
            pass
        finally:
            for module, before in training:
                module.training = before
    return None if listener.other or not listener.sums else [each.detach() for each in listener.sums]


@contextmanager
def norms_kept(model: nn.Module) -> Iterator[None]:
    """Give norms of batches their running statistics back after a pass that is not to count."""
    norms = [module for module in model.modules() if isinstance(module, _NormBase)]
    statistics = [(buffer, buffer.clone()) for module in norms for buffer in module.buffers()]
    try:
        yield
    finally:
        for buffer, before in statistics:
            buffer.data.copy_(before)  # as a batch norm itself writes them: backward does not read them


class EnoughError(Exception):
    """The first layer is done."""


class LaterBlock:
    """A block that is not there yet: whoever looks at it has done the layers before."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise EnoughError


class _Listener:
    """A block that notes what a layer asks of it."""

    def __init__(self, block: Block, x: Tensor) -> None:
        self.block, self.x = block, x
        self.sums: list[Tensor] = []
        self.other = False

    def prefers_aggregate_first(self, h: Any) -> bool:
        return True

    def aggregate(self, h: Any, *args: Any, **options: Any) -> Any:
        total = self.block.aggregate(h, *args, **options)
        self.other |= h is not self.x or not isinstance(total, Tensor) or total.requires_grad
        self.sums.append(total)
        return total

    def __getattr__(self, name: str) -> Any:
        self.other |= name not in _ALONE
        return getattr(self.block, name)
