"""First weights as a function of a seed: torch's generator is the process's, and threads take turns at it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_turn = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Have torch's generator begin with a seed, one thread at a time; it goes on as before at the end."""
    with _turn, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
