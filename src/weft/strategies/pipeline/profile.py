"""What layers cost, measured on a micro-batch: seconds of each, bytes behind each, and the speed of links."""

import statistics
import time

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.probe import measure
from weft.layers.stack import Stack
from weft.samplers.base import Batch
from weft.strategies.call import evaluating
from weft.strategies.pipeline.division import StageDivision
from weft.strategies.pipeline.planner import LayerCosts
from weft.strategies.pipeline.stage_model import own_parameters

_TRIES = 3


def measured(model: Stack, batch: Batch, group: Group) -> LayerCosts:
    """Return the costs that worker 0 measures, on all workers; called by all.

    The model is as it was: nothing is trained, and running statistics are left alone.
    """
    speed = measure(group)
    links = float(speed[~torch.eye(group.size, dtype=torch.bool)].median()) if group.size > 1 else 1e30
    seconds = _seconds(model, batch) if group.rank == 0 else None
    told = group.all_gather_json({"seconds": seconds, "bandwidth": links})[0]
    single = StageDivision((1,) * len(model.layers), (1,) * len(model.layers))
    weights = [own_parameters(model, single, layer).values() for layer in range(len(model.layers))]
    sizes = [sum(each.nbytes for each in held) for held in weights]
    return LayerCosts(
        tuple(told["seconds"]), tuple(_activations(model, batch)), tuple(sizes), told["bandwidth"]
    )


def _seconds(model: Stack, batch: Batch) -> list[float]:
    """Return the seconds of forward and backward of each layer: the median of some tries after a first."""
    with evaluating(model), torch.enable_grad():
        tries = [_once(model, batch) for _ in range(_TRIES + 1)][1:]
    return [statistics.median(column) for column in zip(*tries)]


def _once(model: Stack, batch: Batch) -> list[float]:
    spent, h, at = [], batch.x, 0
    for number, layer in enumerate(model.layers):
        hops = int(layer.hops)  # type: ignore[arg-type]
        began = time.perf_counter()
        out = model.run_layer(number, batch.blocks[at : at + hops], h)
        wanted: list[Tensor] = [each for each in layer.parameters() if each.requires_grad]
        wanted += [h] if isinstance(h, Tensor) and h.requires_grad else []
        if out.requires_grad:
            torch.autograd.grad(out.sum(), wanted, allow_unused=True)
        spent.append(time.perf_counter() - began)
        h, at = out.detach().requires_grad_(), at + hops
    return spent


def _activations(model: Stack, batch: Batch) -> list[int]:
    size = next((each.element_size() for each in model.parameters()), 4)
    found, at = [], 0
    for layer in model.layers:
        at += int(layer.hops)  # type: ignore[arg-type]
        found.append(batch.blocks[at - 1].num_dst * int(layer.out_width) * size)  # type: ignore[arg-type]
    return found
