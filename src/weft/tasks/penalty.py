"""What is added to the loss of a pair so that its rows stay small."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import Tensor

from weft.config import Range, bind
from weft.tasks.scores import End, Scorer
from weft.tasks.scores.base import other_end

_POWERS = {"n3": 3, "l2": 2}


@dataclass(frozen=True)
class Penalty:
    """`weight` times the sum of powers of the numbers of a pair: those of both ends and of its relation.

    "n3" is the third power of moduli (Lacroix et al., 2018), "l2" the second. Only rows of pairs that are
    drawn have one, so rows of nodes that come often are kept smaller.
    """

    name: Literal["n3", "l2"] = "n3"
    weight: Annotated[float, Range(above=0)] = 0.01

    def each(
        self, scorer: Scorer, src: Tensor, dst: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return that of each pair, [n], from the rows of its ends [n, d]; `side` is the end asked for."""
        power = _POWERS[self.name]
        ends = scorer.magnitudes(src).pow(power).sum(1) + scorer.magnitudes(dst).pow(power).sum(1)
        weights = scorer.relation_magnitudes(relation, other_end(side))
        return self.weight * (ends if weights is None else ends + weights.pow(power).sum(1))


def check_penalty(given: str | Mapping[str, Any] | None) -> Penalty | None:
    """Return what `task.regularise` asks for: a name, or a table with a weight; None without."""
    if given is None:
        return None
    options = {"name": given} if isinstance(given, str) else dict(given)
    made: Penalty = Penalty(**bind(Penalty, options, "task.regularise"))
    return made
