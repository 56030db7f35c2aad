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
    _expect_plain(told, where)
    return told


def _expect_plain(value: Any, where: str) -> None:
    """Refuse numbers that TOML does not have, and texts that no file, name or address can be."""
    if isinstance(value, dict | list):
        for held in (*value, *value.values()) if isinstance(value, dict) else value:
            _expect_plain(held, where)
    elif isinstance(value, str) and "\0" in value:
        raise RecipeError(
            f"{where}: a text with the character NUL, which nothing here can be: {value[:60]!r}"
        )
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise RecipeError(f"{where}: a whole number of more than 64 bits")
