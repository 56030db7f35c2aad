"""Joins with hot keys: a key that very many rows have is spread over several tasks and merged back.

An engine that joins or groups by a key brings all rows of it to one task. Where a key of the left side has
more than `most` rows they are dealt out under several numbers (re-indexed), and the few rows of the right
side that they meet are there once for each number. The rows of the join are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weft.pipeline.engines.base import Engine

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Spread:
    """Joins of one engine, whose hot keys have more than `most` rows; 0: no key is hot."""

    engine: Engine
    most: int

    def query(
        self,
        left: str,
        rows: int,
        right: str,
        on: Mapping[str, str],
        select: str,
        *,
        deal: str = "target",
        where: str = "",
    ) -> str:
        """Return the query of a join of l, a table of so many rows, and r, on columns of l and of r.

        `deal` is a whole number by which rows of l with a hot key are dealt out.
        """
        held = f"{left}_hot"
        keys = list(on)
        pairs = [f"l.{ours} = r.{theirs}" for ours, theirs in on.items()]
        end = f" WHERE {where}" if where else ""
        if not self.most or rows <= self.most or not self._find(left, held, keys):
            return f"SELECT {select} FROM {left} l JOIN {right} r ON {' AND '.join(pairs)}{end}"
        ours = " AND ".join(f"a.{key} = h.{key}" for key in keys)
        theirs = " AND ".join(f"a.{on[key]} = h.{key}" for key in keys)
        dealt = (
            f"SELECT /*+ BROADCAST(h) */ a.*, CASE WHEN h.spread IS NULL THEN 0 ELSE a.{deal} % h.spread END "
            f"AS salt FROM {left} a LEFT JOIN {held} h ON {ours}"
        )
        copied = (
            f"SELECT /*+ BROADCAST(h) */ a.*, coalesce(h.salt, 0) AS salt FROM {right} a "
            f"LEFT JOIN {held}_salts h ON {theirs}"
        )
        joined = " AND ".join([*pairs, "l.salt = r.salt"])
        return f"SELECT {select} FROM ({dealt}) l JOIN ({copied}) r ON {joined}{end}"

    def _find(self, left: str, held: str, keys: Sequence[str]) -> int:
        """Keep the hot keys with the numbers that each is dealt out under, and return how many they are."""
        import pyarrow as pa

        names = ", ".join(keys)
        found = self.engine.step(
            held,
            f"SELECT {names}, CAST(ceil(count(*) / {self.most}) AS BIGINT) AS spread FROM {left} "
            f"GROUP BY {names} HAVING count(*) > {self.most}",
        )
        if found:
            schema = pa.schema([(name, pa.int64()) for name in (*keys, "salt")])
            self.engine.map(f"{held}_salts", f"SELECT {names}, spread FROM {held}", _deal, schema)
        return found


def _deal(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return each key once for each of its numbers."""
    import pyarrow as pa

    *keys, spread = (column.to_numpy() for column in batch.columns)
    salt = np.arange(spread.sum()) - np.repeat(np.cumsum(spread) - spread, spread)
    columns = [np.repeat(key, spread) for key in keys]
    return pa.record_batch([*columns, salt], names=[*batch.schema.names[:-1], "salt"])
