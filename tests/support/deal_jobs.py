"""What ranks do in the tests of runs that go on with other workers: importable by name by other processes."""

from pathlib import Path
from typing import Any

from weft.comm.group import Group
from weft.config import make_recipe
from weft.errors import InputError
from weft.train.trainer import Place
from weft.train.workers.worker import run_worker


def trained(group: Group, sections: dict[str, Any], out: str) -> str:
    """Begin the run of a recipe, or continue it where it is, and return why that was refused."""
    try:
        run_worker(make_recipe(sections), Place(out=out, resume=(Path(out) / "run.json").exists()), group)
    except InputError as error:
        return str(error)
    return ""
