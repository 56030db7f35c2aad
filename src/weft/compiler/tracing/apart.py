"""What torch keeps while a message is tried: no cast of autocast may be read or stay, no hook sees it.

torch keeps the narrow copy of a parameter for the region of autocast that it is in. One that a trace makes
has no values; one that is made where nothing is learned has no gradient; and one that was made before is
no parameter any more.

Hooks of what is saved for backward, such as those of checkpointing, count what they see, and a message is
tried in its first forward alone.
"""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor
from torch._C._autograd import _top_saved_tensors_default_hooks


@contextmanager
def fresh_casts() -> Iterator[None]:
    """Have autocast cast anew whatever it casts meanwhile."""
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from logging what a message does wrong."""
    before = _quiet.set(True)
    try:
        yield
    finally:
        _quiet.reset(before)


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
logging.getLogger("torch._subclasses.fake_tensor").addFilter(lambda record: not _quiet.get())


def unsaved() -> AbstractContextManager[object]:
    """Have hooks of what is saved for backward see nothing."""
    if _top_saved_tensors_default_hooks(True) is None:
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(_same, _same)


def _same(tensor: Tensor) -> Tensor:
    return tensor
