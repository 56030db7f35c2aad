"""TOML that somebody else may have written: one line for what is no TOML, and bounded in depth."""

import tomllib
from typing import Any

from weft.errors import FormatError, RecipeError
from weft.reading.damage import one_line
from weft.reading.json_values import DEPTH, expect_shallow


def parse_toml(data: bytes | str, where: str) -> dict[str, Any]:
    """Return the tables of TOML text, or say in one line what is wrong with it."""
    try:
        told = tomllib.loads(data if isinstance(data, str) else data.decode("utf-8"))
        expect_shallow(told, where)
    except RecursionError:
        raise RecipeError(f"{where}: nested more than {DEPTH} levels deep") from None
    except FormatError as error:
        raise RecipeError(str(error)) from None
    except ValueError as error:  # bytes that are no text among them, and numbers of thousands of digits
        raise RecipeError(f"{where}: not valid TOML: {one_line(error)}") from None
    return told
