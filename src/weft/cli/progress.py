"""What long work is at, as one line of a terminal that the next one replaces."""

import sys


def show_step(line: str) -> None:
    """Show what is done now; nothing where nobody looks."""
    _write(f"weft: {line}")


def clear_step() -> None:
    """Take the line away, before a result is printed."""
    _write("")


def _write(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
