"""Ranks that were started with different recipes, code or models."""

from pathlib import Path
from typing import Any

import pytest
import torch

from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import InputError
from weft.train.trainer import Place
from weft.train.workers import team, worker


def told_of_difference(group: Group, out: str, what: str, recipe: dict[str, Any]) -> str:
    """Train where rank 1 has something else than rank 0; return what is said."""
    patch = pytest.MonkeyPatch()
    if what == "recipe" and group.rank == 1:
        recipe = {**recipe, "train": {**recipe["train"], "lr": 0.5}}
    if what == "versions" and group.rank == 1:
        patch.setattr(worker, "versions", lambda: {"weft": "another"})
    try:
        if what == "model":
            team._same_weights(torch.nn.Linear(2, 3 + group.rank), group)
        else:
            own = Path(out) / str(group.rank) if what == "parts" else Path(out)
            worker.run_worker(make_recipe(recipe), Place(out=own), group)
    except InputError as error:
        return str(error)
    finally:
        patch.undo()
    return "nothing"
