"""Scorers: how well two nodes go together, from their rows and the relation asked for.

A scorer is called with the rows of both ends, [n, d]; either may be [n, k, d], k nodes beside one. `against`
takes some rows and all candidates at once. Scores are logits: any number, higher is likelier. First weights
are drawn from torch's generator. With one relation its number need not be told.

A score is a comparison of `query` of one end, which knows the relation, with `key` of the other, which does
not: so the candidates of all queries of a step are compared at once, and candidates may come in pieces.
"""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from weft.config import bind
from weft.errors import InputError, RecipeError
from weft.kernels import gather
from weft.layers.base import require_positive
from weft.registry import Registry
from weft.tasks.scores.compared import Comparison, Product

End = Literal["src", "dst"]
_GIVEN = ("width", "num_relations", "edge_width")


def rows_at(rows: Tensor, places: Tensor) -> Tensor:
    """Return rows[places], for places of any shape; the gradients of a row always add up in the same order.

    Those of torch's own indexing do not on several threads, and a run would have other bits each time.
    """
    return gather(rows, places.flatten().to(rows.device)).reshape(*places.shape, *rows.shape[1:])


class Scorer(nn.Module):
    """A comparison of `query` of one end and `key` of the other, of itself the product of both rows."""

    takes_edge_data: bool = False
    """Whether what is known of a pair is read."""
    reciprocal: bool = False
    """Whether a relation has other weights where its sources are asked for: those of number r + R."""
    distance: bool = False
    """Whether no score is above the option `offset`: that of nodes that are where they should be."""
    parts: int = 1
    """Of how many parts a number is: 2 of complex ones, the real parts of a row before the others."""
    compare: Comparison

    def __init__(self, width: int, *, num_relations: int = 1) -> None:
        super().__init__()
        require_positive(self, width=width, num_relations=num_relations)
        self.width, self.num_relations = width, num_relations
        self.compare = Product()

    def query(self, rows: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return [n, d'] of rows [n, d] that are this end of pairs of these relations [n]."""
        return rows

    def key(self, rows: Tensor) -> Tensor:
        """Return [..., d'] of rows of the other end."""
        return rows

    def forward(
        self, src: Tensor, dst: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the score of each pair: [n], or [n, k] where an end is [n, k, d]; relation is [n].

        `side` is the end that is asked for: that of k nodes, where there are several. It makes a difference
        to reciprocal relations alone.
        """
        if src.dim() == 3 or (side == "src" and dst.dim() == 2):
            one, many = self.query(dst, relation, "dst"), self.key(src)
        else:
            one, many = self.query(src, relation, "src"), self.key(dst)
        return self.compare.paired(one[:, None] if many.dim() == 3 else one, many)

    def against(
        self, src: Tensor, all: Tensor, relation: Tensor | None = None, *, side: End = "dst"
    ) -> Tensor:
        """Return the scores [n, m] of sources [n, d] with all candidates [m, d] for the other end.

        With `side = "src"` the candidates are sources, and the n rows the other end.
        """
        return self.compare.crossed(self.query(src, relation, other_end(side)), self.key(all))

    def relation_numbers(self, end: End) -> Tensor | None:
        """Return the weights of all relations where `end` is given, [R, k].

        None: nothing that a penalty could make smaller.
        """
        return None

    def of_end(self, weight: Tensor, end: End) -> Tensor:
        """Return the part [R, ...] of a weight that is that of pairs of which `end` is given."""
        first = self.num_relations if self.turned(end) else 0
        return weight[first : first + self.num_relations]

    def of_relation(self, weight: Tensor, relation: Tensor | None, end: End) -> Tensor:
        """Return the rows of a weight [R, ...] for pairs of which `end` is given, [n, ...].

        [1, ...] with one relation; `weight` has `num_weights` rows.
        """
        if self.num_relations == 1:
            return self.of_end(weight, end)
        first = self.num_relations if self.turned(end) else 0
        return rows_at(weight, told(relation, self.num_relations) + first)

    def turned(self, end: End) -> bool:
        """Return whether pairs of which `end` is given are those of the reciprocal relation."""
        return self.reciprocal and end == "dst"

    @property
    def num_weights(self) -> int:
        """How many relations have weights, reciprocal ones too."""
        return self.num_relations * (2 if self.reciprocal else 1)

    def extra_repr(self) -> str:
        return f"{self.width}, num_relations={self.num_relations}" + ", reciprocal" * self.reciprocal


scorers: Registry[type[Scorer]] = Registry("scorer", "weft.tasks.scores")


def check_scorer(
    options: str | Mapping[str, Any], *, where: str = "task.score"
) -> tuple[str, dict[str, Any]]:
    """Return the name and the options, converted, of a scorer as a recipe gives it; refuse mistakes."""
    table = {"name": options} if isinstance(options, str) else dict(options)
    name = table.pop("name", None)
    if not isinstance(name, str):
        raise RecipeError(f'{where}: expected a name or a table with one, such as {{name = "dot"}}')
    return name, bind(scorers[name], table, where, given=_GIVEN)


def check_sign(options: str | Mapping[str, Any], loss: str, *, where: str = "task.score") -> None:
    """Refuse a distance whose scores a loss that goes by their sign would all take for false."""
    name, bound = check_scorer(options, where=where)
    if scorers[name].distance and not bound.get("offset", 0.0) > 0:
        raise RecipeError(
            f"{where}.offset: {name!r} is a distance, never above 0, and the loss {loss!r} takes what is "
            f"below 0 for false; set one, as {{name = {name!r}, offset = 9}}, or use the loss softmax, "
            "margin or bpr"
        )


def make_scorer(
    options: str | Mapping[str, Any], width: int, *, num_relations: int = 1, edge_width: int = 0
) -> Scorer:
    """Return the scorer that a recipe describes, for rows of `width` and pairs of so many relations."""
    name, bound = check_scorer(options)
    data = {"edge_width": edge_width} if scorers[name].takes_edge_data else {}
    return scorers[name](width, num_relations=num_relations, **data, **bound)


def told(relation: Tensor | None, num_relations: int) -> Tensor:
    """Return the relation of each pair, or say that it is missing."""
    if relation is None:
        raise InputError(f"expected the relation of each pair, one of {num_relations}; got none")
    return relation


def other_end(end: End) -> End:
    """Return the end of a pair that `end` is not."""
    return "src" if end == "dst" else "dst"


def halves(width: int, name: str) -> int:
    """Return of how many complex numbers a row is, their real parts first, or refuse an odd width."""
    if width % 2:
        raise InputError(f"{name}: a row is of complex numbers, so task.width must be even, got {width}")
    return width // 2
