"""Numbers of bytes: as people give them, and as they are shown."""

import re
from typing import Any

from weft.errors import RecipeError

_LETTERS = " kmgt"
_NAMES = ("bytes", "KiB", "MiB", "GiB")


def parse_bytes(given: Any, where: str = "memory") -> int:
    """Return a number of bytes, given as one or in words; 8G are 8GiB, as in Spark and Docker.

    >>> parse_bytes("8GiB") == parse_bytes("8g") == 2**33, parse_bytes("500 MB"), parse_bytes(4096)
    (True, 500000000, 4096)
    """
    found = re.fullmatch(r"(\d+\.?\d*)\s*(?:([kmgt])(i?b)?|b)?", str(given).strip().lower())
    count = 0.0
    if found:
        base = 1000 if found[3] == "b" else 1024
        count = float(found[1]) * base ** _LETTERS.index(found[2] or " ")
    if not 1 <= count < 2**60:
        raise RecipeError(f"{where}: expected a size such as 512MiB or 8GiB, got {given!r}")
    return int(count)


def shown(count: float) -> str:
    """Return a number of bytes for people.

    >>> shown(1000), shown(64 * 2**20), shown(3 * 2**29), shown(2.0**51)
    ('1000 bytes', '64 MiB', '1.5 GiB', '2,097,152 GiB')
    """
    if count < 1024:
        return f"{count:.0f} bytes"
    power = 1 if count < 2**20 else 2 if count < 2**30 else 3
    number = count / 1024**power
    return f"{number:.3g} {_NAMES[power]}" if number < 999.5 else f"{number:,.0f} {_NAMES[power]}"
