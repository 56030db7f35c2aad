"""Every halo row, as it is, in every step: what all other exchanges are compared with."""

from typing import ClassVar

from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.exchanges.base import Exchange, exchanges


@exchanges.add("exact")
class Exact(Exchange):
    """Bring every halo row in every layer of every step."""

    as_it_is: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")

    def __init__(self, plan: HaloPlan, group: Group, clock: Tensor) -> None:
        super().__init__(plan, group, clock)
