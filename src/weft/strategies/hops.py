"""How many hops a model takes: what it says, what it does on a trial, or what its layers add up to."""

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph.message.block import Block
from weft.strategies.call import evaluating, known_hops

_MOST = 32
"""A model that looks at so many blocks takes whatever number it is given."""
_NODES = 6
_tried: "WeakKeyDictionary[nn.Module, int | None]" = WeakKeyDictionary()


def hops_of(model: nn.Module, x: Any) -> int | None:
    """Return how many blocks a model takes; None where nothing tells.

    A model that does not say is run once on a small ring, with rows of x, to see which blocks it looks at.
    """
    if getattr(model, "hops", None) is not None:
        return known_hops(model)
    if model not in _tried:
        _tried[model] = _by_trial(model, x) if isinstance(x, Tensor) and len(x) else None
    return known_hops(model) if _tried[model] is None else _tried[model]


def checked_hops(model: nn.Module, fanout: int | Sequence[Any] | None, where: str, x: Any = None) -> int:
    """Return the number of hops; refuse a list of fanouts of another length than the model has hops.

    x are the features, on which a model that does not say is tried.
    """
    hops = hops_of(model, x)
    if hops is None and isinstance(fanout, Sequence):
        return len(fanout)
    if hops is None:
        raise InputError(
            f"{type(model).__name__} does not tell how many hops it takes: say hops=2 (in a recipe: "
            f"model.hops = 2), or give {where} as a list, one number per hop"
        )
    if isinstance(fanout, Sequence) and len(fanout) != hops:
        raise InputError(
            f"{where}: the model takes {hops} hops, {list(fanout)} are {len(fanout)}; give one fanout a hop"
        )
    return hops


@torch.no_grad()
def _by_trial(model: nn.Module, x: Tensor) -> int | None:
    device = next((each.device for each in model.parameters()), x.device)
    rows = x[torch.arange(_NODES) % len(x)].to(device)
    used: set[int] = set()
    blocks = [_watched(index, used, rows) for index in range(_MOST)]
    try:
        with evaluating(model):
            model(blocks, rows)
    except Exception:  # it needs more than a ring has: edge values, node types, all of the graph
        return None
    return max(used) + 1 if used and max(used) + 1 < _MOST else None


def _watched(number: int, used: set[int], rows: Tensor) -> Block:
    indptr = torch.arange(_NODES + 1, device=rows.device)
    block = _Watched(indptr, torch.arange(1, _NODES + 1, device=rows.device) % _NODES, num_src=_NODES)
    vars(block)["_noted"] = (used, number)
    return block


class _Watched(Block):
    """A ring that notes that somebody looked at it."""

    def __getattribute__(self, name: str) -> Any:
        noted = object.__getattribute__(self, "__dict__").get("_noted")
        if noted is not None:
            noted[0].add(noted[1])
        return object.__getattribute__(self, name)
