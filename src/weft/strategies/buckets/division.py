"""Which partition a node is in, and which row of it: by chance, and known without a table.

Nodes of each type are permuted by a cipher of their numbers (a Feistel network of four rounds, walked until
it stays below the count), and cut into partitions of equal size. So places of any nodes, and nodes of any
places, are computed where they are asked for: nothing as long as the graph is kept.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weft.draw import Stream, draw, fold
from weft.errors import RecipeError

Ints = NDArray[np.int64]
_LAYER = 1 << 17
"""Tells draws of places from others of the stream."""
_ROUNDS = 4


class Shuffle:
    """A permutation of 0 … count - 1 as a function, and its inverse.

    >>> shuffle = Shuffle(10, seed=3)
    >>> shuffle.back(shuffle(np.arange(10))).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(self, count: int, *, seed: int, purpose: int = 0) -> None:
        self.count = count
        self._half = max(1, -(-max(1, count - 1).bit_length() // 2))
        self._keys = [fold(seed, Stream.SHUFFLE, purpose, number, layer=_LAYER) for number in range(_ROUNDS)]

    def __call__(self, ids: Ints) -> Ints:
        """Return the place of each id."""
        return self._walked(ids, self._keys, back=False)

    def back(self, places: Ints) -> Ints:
        """Return the id at each place."""
        return self._walked(places, self._keys[::-1], back=True)

    def _walked(self, values: Ints, keys: Sequence[int], *, back: bool) -> Ints:
        found = self._turned(np.asarray(values, np.int64), keys, back)
        while (beyond := np.flatnonzero(found >= self.count)).size:
            found[beyond] = self._turned(found[beyond], keys, back)
        return found

    def _turned(self, values: Ints, keys: Sequence[int], back: bool) -> Ints:
        mask = (1 << self._half) - 1
        left, right = values >> self._half, values & mask
        if back:
            left, right = right, left
        for key in keys:
            left, right = right, left ^ (draw(key, right).astype(np.int64) & mask)
        return (right << self._half | left) if back else (left << self._half | right)


class Division:
    """Nodes of each type in as many partitions as are said of it: in one number of them, or in one.

    Partitions of all types that are divided have one number each. Types in one partition lie together in one
    more, the last: it is in memory all the time, for their nodes may be ends of any edge.
    """

    def __init__(
        self,
        names: Sequence[str],
        offsets: Sequence[int],
        partitions: int | Mapping[str, int],
        *,
        seed: int = 0,
    ) -> None:
        self.names, self.offsets = [*names], np.asarray(offsets, np.int64)
        counts, asked = np.diff(self.offsets).tolist(), _by_type(self.names, partitions)
        self.divided = max(asked, default=1)
        """How many partitions types have that are divided."""
        self._whole = [self.divided > 1 and number == 1 for number in asked]
        self.partitions = self.divided + any(self._whole)
        """How many partitions there are, with the one of types that are not divided."""
        for name, count, number in zip(self.names, counts, asked):
            if count < number:
                raise RecipeError(
                    f"strategy.partitions: {count} nodes of type {name!r} are too few for {number} "
                    f"partitions; use fewer, or {name} = 1 beside those of other types"
                )
        self.mark = f"{seed} {asked} {self.offsets.tolist()}"
        """What tells it from other divisions."""
        self._shuffles = [Shuffle(count, seed=seed, purpose=kind) for kind, count in enumerate(counts)]
        self._bounds = np.stack(
            [self._cut(count, whole) for count, whole in zip(counts, self._whole)]
        )  # [types, partitions + 1]

    @property
    def common(self) -> int | None:
        """The partition of types that are not divided while others are; None: there are none."""
        return self.divided if self.partitions > self.divided else None

    def _cut(self, count: int, whole: bool) -> Ints:
        """Return where the nodes of a type, in the order of their places, begin in each partition."""
        if whole:
            return np.array([*[0] * self.partitions, count])
        cut = np.arange(self.divided + 1) * count // self.divided
        return np.concatenate([cut, np.full(self.partitions - self.divided, count)])

    @cached_property
    def type_starts(self) -> Ints:
        """[partitions, types + 1]: the rows of each type within each partition."""
        sizes = np.diff(self._bounds, axis=1).T
        return np.concatenate([np.zeros((self.partitions, 1), np.int64), sizes.cumsum(1)], 1)

    def size(self, partition: int) -> int:
        """Return how many rows a partition has."""
        return int(self.type_starts[partition, -1])

    def kinds(self, ids: Ints) -> Ints:
        """Return the number of the type of each node."""
        found: Ints = np.searchsorted(self.offsets, ids, side="right") - 1
        return found

    def places(self, ids: Ints) -> tuple[Ints, Ints]:
        """Return the partition of each node, and its row there."""
        partition, row = np.empty(len(ids), np.int64), np.empty(len(ids), np.int64)
        kinds = self.kinds(ids)
        for kind, shuffle in enumerate(self._shuffles):
            mine = slice(None) if len(self._shuffles) == 1 else np.flatnonzero(kinds == kind)
            place = shuffle(ids[mine] - self.offsets[kind])
            held = np.searchsorted(self._bounds[kind][1:-1], place, side="right")
            partition[mine] = held
            row[mine] = place - self._bounds[kind][held] + self.type_starts[held, kind]
        return partition, row

    def ids(self, partition: int) -> Ints:
        """Return the node of each row of a partition."""
        return np.concatenate(
            [
                shuffle.back(np.arange(self._bounds[kind][partition], self._bounds[kind][partition + 1]))
                + self.offsets[kind]
                for kind, shuffle in enumerate(self._shuffles)
            ]
        )


def _by_type(names: Sequence[str], partitions: int | Mapping[str, int]) -> list[int]:
    """Return the number of partitions of each type; refuse several, as PyTorch-BigGraph does, beside one."""
    if not isinstance(partitions, Mapping):
        return [partitions] * len(names)
    for name in partitions:
        if name not in names:
            raise RecipeError(
                f"strategy.partitions.{name}: there is no such type of nodes; there are {', '.join(names)}"
            )
    for name in names:
        if name not in partitions:
            raise RecipeError(
                f"strategy.partitions: nothing is said of nodes of type {name!r}; give {name} = a number"
            )
    return [partitions[name] for name in names]


def check_partitions(partitions: int | Mapping[str, int]) -> int:
    """Return how many partitions types have that are divided; refuse numbers that cannot be."""
    given = [*partitions.values()] if isinstance(partitions, Mapping) else [partitions]
    for number in given:
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise RecipeError(f"strategy.partitions: expected whole numbers of at least 1, got {number!r}")
    several = sorted({number for number in given if number > 1})
    if len(several) > 1:
        raise RecipeError(
            f"strategy.partitions: types that are divided have one number of partitions, got {several}; give "
            "all of them the same, or 1"
        )
    return max(given, default=1)
