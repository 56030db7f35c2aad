"""What long work is at, as one line of a terminal that the next one replaces."""

import sys
from collections.abc import Callable


def show_step(line: str) -> None:
    """Show what is done now; nothing where nobody looks."""
    _write(f"weft: {line}\r")


def telling_share(what: str = "") -> Callable[[float], None]:
    """Return what shows which share of a long step is done."""
    return lambda share: _write(f"{100 * share:5.0f} %  {what}\r")


def clear_step() -> None:
    """Take the line away, before a result or an error is printed."""
    _write("")


def _write(text: str) -> None:
    # Each line leaves the cursor at its begin: what others print comes there.
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
