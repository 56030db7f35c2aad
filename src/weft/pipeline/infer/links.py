"""What `weft infer` writes of pairs: what a run's task says of given ones, or the best partners of nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.node_pairs import Pairs
from weft.graph.source import RowSource
from weft.pipeline.infer.asked import asked_nodes, asked_pairs
from weft.pipeline.infer.model import Scoring
from weft.tasks.pairs import PairTask
from weft.tasks.partners import pair_chunks
from weft.tasks.split import target_relations
from weft.tasks.tables import write_pairs, write_partners
from weft.train.inference.links import ROOM, Search, choose_relation, scorer_of, search

PAIRS, PARTNERS = "pairs.parquet", "partners.parquet"


@dataclass(frozen=True)
class Links:
    """What is asked of pairs: a file of them, or the best `partners` of nodes."""

    pairs: str | Path | None = None
    partners: int | None = None
    of: str | Path | None = None
    """A file of the ids whose partners are asked for; None: all."""
    relation: str | None = None
    include_known: bool = False

    def check(self, nodes: Any) -> None:
        """Refuse options that do not go together, before any data is read."""
        if nodes is not None and (self.pairs is not None or self.partners is not None):
            raise InputError("--nodes: leave it out with --pairs; with --partners use --of")
        if self.pairs is not None and self.partners is not None:
            raise InputError("--pairs and --partners: ask for one of them")
        given = {"--of": self.of, "--relation": self.relation, "--include-known": self.include_known or None}
        for name, value in given.items():
            if value is not None and self.partners is None:
                raise InputError(f"{name} is for --partners K: give it, too, or leave {name} out")
        if self.partners is not None and self.partners < 1:
            raise InputError(f"--partners: expected a number of at least 1, got {self.partners}")

    def asked(self, scoring: Scoring) -> "GivenPairs | BestPartners | None":
        """Return what is to be written; None where it is nodes."""
        if self.pairs is None and self.partners is None:
            return None
        task, data = scoring.task, scoring.data
        if not isinstance(task, PairTask):
            what = "--pairs" if self.partners is None else "--partners"
            raise InputError(f"{what}: the run learned {task.name}, which says nothing of pairs of nodes")
        learned = target_relations(data, task.target)
        if self.pairs is not None:
            return GivenPairs(scoring, task, asked_pairs(data, self.pairs, learned, task.reads))
        assert self.partners is not None, "one of them is given"
        scorer_of(scoring.model)
        relation = choose_relation(data, self.relation, learned, "--relation")
        of = None if self.of is None else asked_nodes(data, self.of, data.edge_types[relation][0])
        found = search(data, relation, of=of, include_known=self.include_known)
        return BestPartners(scoring, found, self.partners)


@dataclass(frozen=True, eq=False)
class GivenPairs:
    """Pairs of a file."""

    scoring: Scoring
    task: PairTask
    pairs: Pairs

    @property
    def nodes(self) -> Tensor:
        """All nodes whose rows are read, rising."""
        found: Tensor = torch.unique(torch.cat([self.pairs.src, self.pairs.dst]))
        return found

    def write(self, folder: Path, h: RowSource, room: int | str | None) -> dict[str, int]:
        """Write a row per pair, and return how many there are."""
        write_pairs(folder / PAIRS, self.scoring.data, self._said(h))
        return {"pairs": len(self.pairs)}

    def _said(self, h: RowSource) -> Iterator[tuple[Pairs, dict[str, Any]]]:
        def said(src: Tensor, dst: Tensor, some: Pairs) -> Tensor:
            return self.task.of_pairs(self.scoring.model, src, dst, some)

        for some, outputs in pair_chunks(h, self.pairs, said):
            yield some, self.task.predicted(outputs, self.scoring.classes)


@dataclass(frozen=True, eq=False)
class BestPartners:
    """The best partners of nodes."""

    scoring: Scoring
    search: Search
    count: int

    @property
    def nodes(self) -> Tensor:
        """All nodes whose rows are read, rising."""
        return self.search.nodes

    def write(self, folder: Path, h: RowSource, room: int | str | None) -> dict[str, int]:
        """Write a row per node and partner, and return how many nodes there are."""
        scorer = scorer_of(self.scoring.model)
        chunks = self.search.chunks(h, scorer, self.count, ROOM if room is None else room)
        write_partners(folder / PARTNERS, self.scoring.data, chunks)
        return {"sources": len(self.search.sources)}
