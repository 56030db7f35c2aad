"""The weights of a stage by version: a version is never changed, and lives as long as somebody needs it.

Where updates come while micro-batches are in flight, backward of each uses the weights of its forward (weight
stashing). `1f1b` begins a micro-batch with the newest version of its stage, or with vertical sync with that
which the first stage began it with. The optimiser's own state has no versions: its gradients are late.
"""

from collections.abc import Mapping
from typing import Literal

from torch import nn

from weft.strategies.pipeline.stage_model import Weights, frozen

VersionsName = Literal["stash", "vertical"]


class Versions:
    """Versions of some weights, the newest at hand; `copies` where the weights change while others run."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], *, copies: bool, behind: int = 0) -> None:
        """`behind` is how many versions before the newest may still be asked for."""
        self.parameters, self.copies, self.behind = dict(parameters), copies, behind
        self.newest = 0
        self.most = 1
        """The most versions that were alive at the same time."""
        self._kept: dict[int, Weights] = {0: self._taken()}
        self._pinned: dict[int, int] = {}

    def begin(self) -> None:
        """Begin anew with the weights as they are: nothing is in flight."""
        assert not self._pinned, "a pipeline is drained before it begins anew"
        self.newest, self._kept = 0, {0: self._taken()}

    def pin(self, micro: int, version: int | None) -> Weights:
        """Return the weights of a version, by default the newest, and keep them until `release`."""
        version = self.newest if version is None else version
        self._pinned[micro] = version
        return self._kept[version]

    def release(self, micro: int) -> None:
        """Note that a micro-batch needs its version no more."""
        del self._pinned[micro]
        self._forget()

    def advance(self) -> None:
        """Take the weights as they are now as the newest version."""
        self.newest += 1
        self._forget()
        self._kept[self.newest] = self._taken()
        self.most = max(self.most, len(self._kept))

    def _forget(self) -> None:
        needed = {*self._pinned.values(), *range(self.newest - self.behind, self.newest + 1)}
        self._kept = {number: held for number, held in self._kept.items() if number in needed}

    def _taken(self) -> Weights:
        return frozen(self.parameters) if self.copies else dict(self.parameters)
