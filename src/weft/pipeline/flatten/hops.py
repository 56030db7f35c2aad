"""The hops of neighbourhoods as relational steps.

An edge has a position among those of its destination (and relation). Which positions a node draws uniformly
in a hop is a function of (seed, hop, node, degree): the engine hands Arrow batches of (node, degree) to it
and joins the edges by (node, position), so nothing groups a hub's edges to sample it. Where edges must be
grouped (all of them taken, weighted draws, times) they are met shard by shard, a shard at most `hub` edges of
a destination, so that the edges of a hub are spread over several tasks; weighted draws are the bottom k of
exponential numbers, of each shard first and of these then, which is the same. A node that many targets reach
is spread as well (`skew`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.draw import Stream, draw_positions, exponential, fold, row_keys
from weft.pipeline.engines.base import Engine
from weft.pipeline.flatten.assemble import NODE
from weft.pipeline.flatten.folder import EdgeSource, GraphFolder, cut
from weft.pipeline.flatten.skew import Spread

if TYPE_CHECKING:
    import pyarrow as pa

# Edges that are handed to the engine at once.
CHUNK = 1 << 20
# Draws of a relation come after those of the relations before: more than anybody draws.
_RELATION = 1 << 40


@dataclass(frozen=True)
class HopPlan:
    """How neighbourhoods are drawn."""

    fanout: tuple[int, ...]
    """Edges of each hop, -1 for all."""
    seed: int = 0
    weight: str | None = None
    """Edge data by which edges are drawn the sooner; None: all alike."""
    temporal: bool = False
    """Whether a target sees only edges that are not later than itself."""
    hub: int = 10_000
    """In-degree, or number of targets that reach a node, from which on it is spread over several tasks; 0:
    never."""


class Hops:
    """The edges of a graph in an engine, and the neighbourhoods of targets by joins."""

    def __init__(self, engine: Engine, folder: GraphFolder, plan: HopPlan) -> None:
        self.engine, self.folder, self.plan = engine, folder, plan
        self.spread = Spread(engine, plan.hub)
        kinds = "edge_type" in folder.arrays
        self.scaled = plan.weight is not None or plan.temporal or (kinds and folder.by_relation)
        self._sorted = kinds and not folder.by_relation and not plan.temporal
        # Draws of a node are the same for all targets, unless these see different edges of it.
        self.who = ("target", "seed", "moment") if plan.temporal else ()
        self._load()

    def _load(self) -> None:
        """Hand the edges to the engine, and what is known of each destination."""
        import pyarrow as pa

        plan, cuts = self.plan, cut(self.folder.arrays["indptr"], CHUNK)
        count = len(cuts) - 1
        source = EdgeSource(self.folder, cuts, plan.hub or 1 << 62, plan.weight, plan.temporal)
        fields: list[Any] = [
            (name, pa.int64()) for name in ("dst", "relation", "position", "shard", "src", "edge")
        ]
        fields += [("weight", pa.float64())] if plan.weight else []
        if plan.temporal:
            fields.append(("moment", pa.from_numpy_dtype(self.folder.edge_data("time").dtype)))
        self.engine.generate("edges", count, source, pa.schema(fields))
        if self.grouped:
            names = ("node", "relation", "shard")
            self.engine.generate("shards", count, source.shards, _integers(*names))
        if not (plan.weight or plan.temporal):
            names = ("node", "relation", "degree")
            self.engine.generate("degrees", count, source.degrees, _integers(*names))

    @property
    def grouped(self) -> bool:
        """Whether edges must be grouped in some hop."""
        return bool(self.plan.weight or self.plan.temporal or -1 in self.plan.fanout)

    def rows(
        self, targets: NDArray[np.int64], numbers: NDArray[np.int64], moments: Any = None, *, size: int
    ) -> str:
        """Return the query of the rows of the records of targets, which have these numbers."""
        import pyarrow as pa

        columns: dict[str, Any] = {"target": numbers, "node": targets}
        if self.plan.temporal:
            columns |= {"seed": targets, "moment": moments.astype(self._moment)}
        self.engine.arrow("pairs", pa.table(columns))
        self._pairs = len(targets)
        for number in range(len(self.plan.fanout)):
            self._hop(number)
        parts = [
            f"SELECT target, {number} AS hop, dst, src, edge, place, scale FROM found_{number}"
            for number in range(len(self.plan.fanout))
        ]
        rows = " UNION ALL ".join([*parts, self._nodes()])
        return f"SELECT CAST(floor(target / {size}) AS BIGINT) AS part, * FROM ({rows})"

    def _hop(self, number: int) -> None:
        """Draw for every (target, node) there is, and add the sources to them."""
        fanout = self.plan.fanout[number]
        if fanout < 0:
            drawn = self._all(number)
        elif self.plan.weight is not None:
            drawn = self._weighted(number, fanout)
        else:
            drawn = self._uniform(number, fanout)
        found = f"found_{number}"
        if self.plan.temporal:
            self.engine.step(
                found, f"SELECT {self._who()}node AS dst, src, edge, place, scale FROM ({drawn})"
            )
        else:
            self.engine.step("drawn", drawn)
            select = "l.target, r.node AS dst, r.src, r.edge, r.place, r.scale"
            self.engine.step(
                found, self.spread.query("pairs", self._pairs, "drawn", {"node": "node"}, select)
            )
        who = self._who() or "target, "
        both = f"SELECT {who}node FROM pairs UNION ALL SELECT {who}src AS node FROM {found}"
        self._pairs = self.engine.step("pairs", f"SELECT DISTINCT {who}node FROM ({both})")

    def _uniform(self, number: int, fanout: int) -> str:
        """Return the query of uniform draws."""
        draw = PositionDraw(tuple(self._keys(number)), fanout, bool(self.who))
        names = [*self.who, "node", "relation", "position", "draw", "scale"]
        asked = (
            "SELECT f.node, d.relation, d.degree FROM (SELECT DISTINCT node FROM pairs) f "
            "JOIN degrees d ON f.node = d.node"
        )
        if self.plan.temporal:
            near = self._near(number, "")
            asked = (
                f"SELECT {self._who()}node, relation, count(*) AS degree FROM ({near}) "
                f"GROUP BY {self._who()}node, relation"
            )
        count = self.engine.map("draws", asked, draw, self._schema(names))
        on = {"node": "dst", "relation": "relation", "position": "position"}
        who = "".join(f"l.{name}, " for name in self.who)
        select = f"{who}l.node, r.src, r.edge, {self._place('l.draw', 'r')} AS place, l.scale"
        if self.plan.temporal:
            return self.spread.query("draws", count, "edges", on, select)
        pairs = " AND ".join(f"l.{ours} = r.{theirs}" for ours, theirs in on.items())
        return f"SELECT {select} FROM draws l JOIN edges r ON {pairs}"

    def _all(self, number: int) -> str:
        """Return the query of all edges."""
        near = self._near(number, "r.weight > 0" if self.plan.weight else "")
        place = self._place("n.position", "n")
        return (
            f"SELECT {self._who('n')}n.node, n.src, n.edge, {place} AS place, CAST(NULL AS DOUBLE) AS scale "
            f"FROM ({near}) n"
        )

    def _weighted(self, number: int, fanout: int) -> str:
        """Return the query of weighted draws; their scale is the number of the first edge not taken."""
        draw = Weigh(tuple(self._keys(number)), bool(self.who))
        names = [*self.who, "node", "relation", "shard", "position", "src", "edge", "number"]
        near = self._near(number, "r.weight > 0")
        columns = ", ".join([*self.who, "node", "relation", "shard", "position", "src", "edge", "weight"])
        self.engine.map("numbered", f"SELECT {columns} FROM ({near})", draw, self._schema(names))
        group, order = f"{self._who()}node, relation", "ORDER BY number, position"
        best = f"SELECT *, row_number() OVER (PARTITION BY {group}, shard {order}) AS of_shard FROM numbered"
        ranked = (
            f"SELECT *, row_number() OVER (PARTITION BY {group} {order}) AS rank FROM ({best}) b "
            f"WHERE of_shard <= {fanout + 1}"
        )
        bound = (
            f"SELECT *, max(CASE WHEN rank = {fanout + 1} THEN number END) OVER (PARTITION BY {group}) "
            f"AS bound FROM ({ranked}) t"
        )
        place = self._place("n.position", "n")
        return (
            f"SELECT {self._who('n')}n.node, n.src, n.edge, {place} AS place, n.bound AS scale "
            f"FROM ({bound}) n WHERE n.rank <= {fanout}"
        )

    def _near(self, number: int, where: str) -> str:
        """Return the query of the edges into what was reached, shard by shard."""
        who = self._who("f") if self.who else ""
        frontier = "pairs" if self.who else "(SELECT DISTINCT node FROM pairs)"
        rows = self.engine.step(
            "wanted",
            f"SELECT {who}f.node, s.relation, s.shard FROM {frontier} f JOIN shards s ON f.node = s.node",
        )
        tests = [where] if where else []
        tests += ["r.moment <= l.moment"] if self.plan.temporal else []
        weight = ", r.weight" if self.plan.weight else ""
        who = "".join(f"l.{name}, " for name in self.who)
        select = f"{who}l.node, l.relation, l.shard, r.position, r.src, r.edge{weight}"
        on = {"node": "dst", "relation": "relation", "shard": "shard"}
        # Nodes of one table are there once each, unless targets see different edges of them.
        rows = rows if self.who else 0
        return self.spread.query("wanted", rows, "edges", on, select, where=" AND ".join(tests))

    def _nodes(self) -> str:
        """Return the query of the nodes of records; where times matter, with the degree that is seen."""
        if not self.plan.temporal:
            return f"SELECT target, {NODE}, node, 0, 0, 0, CAST(NULL AS DOUBLE) FROM pairs"
        near = self._near(len(self.plan.fanout), "")
        self.engine.step(
            "seen", f"SELECT target, node, count(*) AS degree FROM ({near}) GROUP BY target, node"
        )
        return (
            f"SELECT p.target, {NODE}, p.node, coalesce(s.degree, 0), 0, 0, CAST(NULL AS DOUBLE) "
            "FROM pairs p LEFT JOIN seen s ON p.target = s.target AND p.node = s.node"
        )

    def _keys(self, number: int) -> list[int]:
        """Return the keys of a hop in epoch 0, one a relation, as samplers have them."""
        kinds = self.folder.relations
        return [fold(self.plan.seed, Stream.SAMPLE, 0, 0, number * kinds + kind) for kind in range(kinds)]

    def _place(self, draw: str, edges: str) -> str:
        """Return the expression by which the edges of a row are ordered: as they were drawn."""
        return f"{edges}.edge" if self._sorted else f"{edges}.relation * {_RELATION} + {draw}"

    @property
    def _moment(self) -> Any:
        """The type of the times of targets and edges."""
        held = self.folder.data("time")
        edges = self.folder.edge_data("time").dtype
        return edges if held is None else np.result_type(edges, held[1].dtype)

    def _who(self, table: str = "") -> str:
        prefix = f"{table}." if table else ""
        return "".join(f"{prefix}{name}, " for name in self.who)

    def _schema(self, names: Sequence[str]) -> "pa.Schema":
        import pyarrow as pa

        kinds = {"scale": pa.float64(), "number": pa.float64()}
        if self.plan.temporal:
            kinds["moment"] = pa.from_numpy_dtype(self._moment)
        return pa.schema([(name, kinds.get(name, pa.int64())) for name in names])


@dataclass(frozen=True)
class PositionDraw:
    """Positions of (node, relation, degree), with target, seed and moment before where those matter."""

    keys: tuple[int, ...]
    fanout: int
    seen: bool

    def __call__(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Return one row per draw: the position, the number of the draw and the edges that it stands for."""
        import pyarrow as pa

        *who, node, kind, degree = (column.to_numpy() for column in batch.columns)
        keys = np.array(self.keys, dtype=np.uint64)[kind]
        keys = row_keys(row_keys(keys, who[1]), node) if self.seen else row_keys(keys, node)
        counts, positions = draw_positions(keys, degree, self.fanout)
        number = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.repeat(degree / counts, counts)
        held = [np.repeat(values, counts) for values in (*who, node, kind)]
        names = [*batch.schema.names[:-1], "position", "draw", "scale"]
        return pa.record_batch([*held, positions, number, scale], names=names)


@dataclass(frozen=True)
class Weigh:
    """The exponential numbers of edges, which have a weight; the smallest of a node are drawn."""

    keys: tuple[int, ...]
    seen: bool

    def __call__(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        """Return the batch with the number of each edge instead of its weight."""
        import pyarrow as pa

        kind, edge, weight = (batch.column(name).to_numpy() for name in ("relation", "edge", "weight"))
        keys = np.array(self.keys, dtype=np.uint64)[kind]
        if self.seen:
            keys = row_keys(keys, batch.column("seed").to_numpy())
        number = pa.array(exponential(keys, edge, weight))
        return pa.record_batch([*batch.columns[:-1], number], names=[*batch.schema.names[:-1], "number"])


def _integers(*names: str) -> "pa.Schema":
    import pyarrow as pa

    return pa.schema([(name, pa.int64()) for name in names])
