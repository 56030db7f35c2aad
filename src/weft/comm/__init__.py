"""Ranks that work on one graph: how they start, find each other, move rows, notice a loss, and stop.

Names are resolved on first use, so that the launcher starts its workers before anything loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.comm.collectives import all_reduce_sum
    from weft.comm.failure import guarded, is_worker
    from weft.comm.group import Group
    from weft.comm.launch import run_workers
    from weft.comm.ledger import Label, Ledger
    from weft.comm.pending import Pending
    from weft.comm.plan import HaloPlan
    from weft.comm.rows import GatheredRows

_HOME = {
    "GatheredRows": "weft.comm.rows",
    "Group": "weft.comm.group",
    "HaloPlan": "weft.comm.plan",
    "Label": "weft.comm.ledger",
    "Ledger": "weft.comm.ledger",
    "Pending": "weft.comm.pending",
    "all_reduce_sum": "weft.comm.collectives",
    "guarded": "weft.comm.failure",
    "is_worker": "weft.comm.failure",
    "run_workers": "weft.comm.launch",
}
__all__ = [
    "GatheredRows",
    "Group",
    "HaloPlan",
    "Label",
    "Ledger",
    "Pending",
    "all_reduce_sum",
    "guarded",
    "is_worker",
    "run_workers",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
