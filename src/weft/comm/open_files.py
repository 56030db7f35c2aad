"""Open files: every rank keeps some for every other, and few are allowed on some systems (ulimit -n).

gloo would tell of it in words of its own, on one rank, after the run has begun.
"""

import resource

from weft.errors import InputError

_OWN = 64
"""Of a process alone: libraries, files that are read, the store, events."""
_EACH = 8
"""For each of the others: two connections, and what a subgroup adds."""


def expect_open_files(ranks: int) -> None:
    """Let this process have the open files that so many ranks need, or refuse in one line."""
    needed = _OWN + _EACH * ranks
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InputError(
            f"{ranks} workers need {needed} open files in each process, this one may have {hard}; raise the "
            f"limit (ulimit -n {needed}) or use fewer workers"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
