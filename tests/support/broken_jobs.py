"""Ranks of which one breaks within a step."""

from typing import Any

import pytest
import torch

from weft.comm.group import Group
from weft.config import make_recipe
from weft.strategies import step as module
from weft.train.trainer import Place
from weft.train.workers import worker


def broken_on_rank_1(group: Group, out: str, what: str, recipe: dict[str, Any]) -> None:
    """Train; in the third step of the second epoch rank 1 finds no memory, or has weights that are NaN."""
    fill = module.fill_gradients

    def breaks(strategy: Any, model: torch.nn.Module, optimizer: Any, batch: Any, step: int) -> Any:
        if group.rank == 1 and (int(strategy.clock[1]), step) == (1, 2):
            if what == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)
        return fill(strategy, model, optimizer, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "fill_gradients", breaks)
        worker.run_worker(make_recipe(recipe), Place(out=out), group)
