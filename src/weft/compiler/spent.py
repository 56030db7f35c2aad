"""What compiling has cost this process: messages, kernels and seconds, for runs to tell once."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass
class Spent:
    """Counts that only grow."""

    messages: int = 0
    kernels: int = 0
    """Of a GPU: what their first launches took, which make them or read them from Triton's cache."""
    seconds: float = 0.0

    @contextmanager
    def on(self, *, messages: int = 0, kernels: int = 0) -> Iterator[None]:
        """Count what is done meanwhile as the cost of these."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.messages += messages
            self.kernels += kernels

    def copy(self) -> "Spent":
        """Return the counts as they are."""
        return replace(self)

    def since(self, before: "Spent") -> "Spent":
        """Return what came after a copy was made."""
        return Spent(
            self.messages - before.messages, self.kernels - before.kernels, self.seconds - before.seconds
        )


SPENT = Spent()
"""Of this process."""
