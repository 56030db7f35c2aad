"""How far a long step is, on a line of the terminal that the next one overwrites."""

import sys
from collections.abc import Callable


def shown(what: str) -> Callable[[float], None]:
    """Return what shows which share of a step is done; nothing where nobody looks at a terminal."""
    return (lambda share: show(what, share)) if sys.stderr.isatty() else lambda _: None


def show(what: str, share: float) -> None:
    """Show the share of a step that is done."""
    print(f"{100 * share:5.0f} %  {what:<40}", end="\r", file=sys.stderr, flush=True)
