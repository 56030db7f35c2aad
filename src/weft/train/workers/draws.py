"""Whether a model draws from torch's own generator, which the parts of a worker share."""

import torch
from torch import Tensor

from weft.errors import InputError

_MOVES = 2  # boundaries in a row at which the generator is found elsewhere


class DrawCheck:
    """Looks at torch's generator at every boundary, from before the parts of a worker begin.

    A part that has left puts the generator back to what it was, and another may try a message out at this
    moment and put it back too. A model that draws has it somewhere else at every boundary.
    """

    def __init__(self, seed: int) -> None:
        # As it is before the parts begin, and as each of them begins with it.
        self._undrawn = [torch.get_rng_state(), torch.Generator().manual_seed(seed).get_state()]
        self._seen: Tensor | None = None
        self._moves = 0

    def check(self) -> None:
        """Refuse a model that draws."""
        before, self._seen = self._seen, torch.get_rng_state()
        known = [*self._undrawn, *([] if before is None else [before])]
        moved = before is not None and not any(torch.equal(self._seen, state) for state in known)
        self._moves = self._moves + 1 if moved else 0
        if self._moves == _MOVES:
            raise InputError(
                "--workers: the model draws from torch's own generator, so that numbers would depend on who "
                "holds which part; use layers of weft.nn, as weft.nn.Dropout, or a fixed number of workers"
            )
