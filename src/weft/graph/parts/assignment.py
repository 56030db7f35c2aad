"""Which part each node or each edge belongs to, and how good that is: data only.

`weft.partitioners` makes assignments and measures them; `graph/parts/shard.py` cuts a graph by one.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from torch import Tensor

Cuts = Literal["nodes", "edges", "grid"]


@dataclass(frozen=True)
class Quality:
    """What a partition costs: rows that travel, and how evenly the parts are filled."""

    cuts: Cuts
    """What was assigned: nodes (edges are cut) or edges (nodes are split)."""
    cut_edges: int
    """Edges whose source another part owns; 0 where edges were assigned."""
    cut_share: float
    """cut_edges over all edges."""
    halo_rows: int
    """Rows that parts hold beside their own: halo rows, or replicas that are not the root."""
    halo_share: float
    """halo_rows over all rows held."""
    replication: float
    """Rows held over nodes: in how many parts a node's row lies on average."""
    nodes: list[int]
    """Nodes a part owns."""
    edges: list[int]
    """Edges a part holds."""
    train_nodes: list[int]
    """Training nodes a part owns."""
    bytes: list[int]
    """Size of a part in memory: its edges and the data of its rows."""
    links: list[list[int]]
    """links[p][q]: rows that part p takes from part q."""
    hidden: int
    """Width of the layers that `predicted` is for."""
    layers: int
    """Number of layers that `predicted` is for."""
    predicted: dict[str, int]
    """Bytes an epoch sends to other parts, by exchange; the formulas are in weft.partitioners.quality."""
    moved: int = 0
    """Nodes that weft moved because the partitioner had left a part empty."""

    @property
    def balance(self) -> dict[str, float]:
        """The largest part over the mean part: of nodes, edges, train nodes and bytes; 1 is even."""
        counted = {
            "nodes": self.nodes,
            "edges": self.edges,
            "train_nodes": self.train_nodes,
            "bytes": self.bytes,
        }
        return {name: _balance(counts) for name, counts in counted.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values, the balances with them."""
        return {**asdict(self), "balance": self.balance}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Quality":
        """Return what `to_dict` gave."""
        return cls(**{item.name: values[item.name] for item in fields(cls) if item.name in values})


@dataclass(frozen=True, eq=False)
class Assignment:
    """The part of every node (`cuts` "nodes", "grid") or of every edge in canonical order (`cuts` "edges").

    On a grid of r x c parts, edge (u, v) lies with part (row of v's part, column of u's part).
    """

    parts: Tensor
    """[N] or [E] int32, each in 0 … num_parts − 1."""
    num_parts: int
    name: str = "given"
    """The partitioner that made it."""
    options: dict[str, Any] = field(default_factory=dict)
    """Its options."""
    cuts: Cuts = "nodes"
    quality: Quality | None = None
    grid: tuple[int, int] | None = None
    """Rows and columns of parts where `cuts` is "grid"; part p stands in row p // c, column p % c."""

    @property
    def sha256(self) -> str:
        """A fingerprint of who holds what, equal for equal assignments."""
        shape = "" if self.grid is None else f"{self.grid[0]}x{self.grid[1]} "
        head = f"{self.cuts} {self.num_parts} {shape}".encode()
        return hashlib.sha256(head + self.parts.cpu().numpy().astype("<i4").tobytes()).hexdigest()


def _balance(counts: list[int]) -> float:
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 1.0
