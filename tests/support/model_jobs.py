"""What ranks run in the tests of what a model shares across workers: gradients and statistics."""

from typing import Any

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.strategies import reducer
from weft.strategies.norm import GlobalBatchNorm, make_global, make_local
from weft.strategies.reducer import GradientReducer

ROWS = {2: [5, 2], 3: [4, 0, 3]}  # of each rank: unequal, and one has none


def rows_of(rank: int, size: int) -> slice:
    """Return the rows of 7 that a rank holds."""
    start = sum(ROWS[size][:rank])
    return slice(start, start + ROWS[size][rank])


def everything() -> Tensor:
    """Return the rows of all ranks."""
    return torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))


def normalised() -> nn.Module:
    """Return a model of a batch normalisation with weights of its own, in float64."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).double()
    nn.init.uniform_(model[1].weight, 0.5, 2.0)
    return model


def batch_norm(group: Group) -> list[Any]:
    """Return a rank's outputs, the summed gradients and the statistics after two passes, as arrays."""
    model = normalised()
    make_global(model, group)
    assert isinstance(model[1], GlobalBatchNorm)
    held = rows_of(group.rank, group.size)
    weigh = torch.arange(7.0, dtype=torch.float64)[held, None]  # rows must count differently
    reduce = GradientReducer(list(model.parameters()), group)
    for _ in range(2):
        model.zero_grad()
        reduce.begin()
        out = model(everything()[held])
        (out.square() * weigh).sum().backward()
        reduce.finish()
    make_local(model)
    assert type(model[1]) is nn.BatchNorm1d
    found = [out.detach(), *(p.grad for p in model.parameters()), *model[1].buffers()]
    return [None if each is None else each.numpy() for each in found]


def gradients(group: Group) -> tuple[list[float | None], int, list[float]]:
    """Return the sum for each of four parameters, how many buckets left before `finish`, and a second pass.

    Rank 0 uses the first two, the last rank the second and third, nobody the fourth.
    """
    reducer.BUCKET_BYTES = 8  # one parameter a bucket
    used = {0: (0, 1), group.size - 1: (1, 2)}.get(group.rank, ())
    parameters = [nn.Parameter(torch.ones(1, dtype=torch.float64)) for _ in range(4)]
    reduce = GradientReducer(parameters, group)
    sums: list[list[float | None]] = []
    for step in (1, 2):
        for parameter in parameters:
            parameter.grad = None
        reduce.begin()
        zero = parameters[0].new_zeros(1).requires_grad_()
        terms = [step * (group.rank + 1.0) * (index + 1) * parameters[index].sum() for index in used]
        torch.stack([zero.sum(), *terms]).sum().backward()
        departed = reduce._next
        reduce.finish()
        sums.append([None if p.grad is None else p.grad.item() for p in parameters])
    reduce.close()
    parameters[0].sum().backward()  # nothing is sent any more
    return sums[0], departed, [value for value in sums[1] if value is not None]
