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
from weft.pipeline.infer.answers import Answers
from weft.pipeline.infer.requests import read_nodes, read_pairs, read_questions
from weft.pipeline.infer.scoring import Scoring
from weft.tasks.pairs import PairTask, about_pairs
from weft.tasks.partners import pair_chunks
from weft.tasks.prediction_tables import write_pairs, write_partners
from weft.tasks.scores.cosine import Cosine
from weft.tasks.split import target_relations
from weft.train.inference.links import (
    ROOM,
    KnownEdges,
    Search,
    choose_relation,
    near_search,
    scorer_of,
    search,
)

PAIRS, PARTNERS, NEAREST = "pairs.parquet", "partners.parquet", "nearest.parquet"
TOP = 10
"""Answers to a question where nothing is said."""


@dataclass(frozen=True)
class Links:
    """What is asked of pairs: a file of them, the best `partners` of nodes, answers, or nodes alike."""

    pairs: str | Path | None = None
    partners: int | None = None
    of: str | Path | None = None
    """A file of the ids whose partners, or whose like, are asked for; None: all."""
    relation: str | None = None
    include_known: bool = False
    questions: str | Path | None = None
    """A file of heads or tails and relations, whose best `answers` are asked for."""
    answers: int | None = None
    nearest: int | None = None

    def check(self, nodes: Any) -> None:
        """Refuse options that do not go together, before any data is read."""
        given = self._given
        for name in ("partners", "answers", "nearest"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"--{name}: expected a number of at least 1, got {value}")
        if nodes is not None and given:
            raise InputError(f"--nodes: leave it out with {given[0]}; with --partners and --nearest use --of")
        if len(given) > 1:
            raise InputError(f"{' and '.join(given)}: ask for one of them")
        needs = {
            "--of": (self.of, self.partners or self.nearest, "--partners K or --nearest K"),
            "--relation": (self.relation, self.partners, "--partners K"),
            "--include-known": (
                self.include_known or None,
                self.partners or self.questions,
                "--partners K or --questions FILE",
            ),
            "--answers": (self.answers, self.questions, "--questions FILE"),
        }
        for name, (value, other, told) in needs.items():
            if value is not None and other is None:
                raise InputError(f"{name} is for {told}: give it, too, or leave {name} out")

    @property
    def _given(self) -> list[str]:
        """The options that say what is asked for."""
        names = ("pairs", "partners", "questions", "nearest")
        return [f"--{name}" for name in names if getattr(self, name) is not None]

    def asked(self, scoring: Scoring) -> "PairScores | BestPartners | Answers | None":
        """Return what is to be written; None where it is nodes."""
        data = scoring.data
        if not self._given:
            return None
        if self.nearest is not None:
            of = None if self.of is None else read_nodes(data, self.of)
            return BestPartners(scoring, near_search(data, of), self.nearest, alike=True)
        learned_task = scoring.task.name
        refusal = f"{self._given[0]}: the run learned {learned_task}, which says nothing of pairs of nodes"
        task = about_pairs(scoring.task, otherwise=InputError(refusal))
        learned = target_relations(data, task.target)
        if self.pairs is not None:
            pairs = read_pairs(data, self.pairs, learned, task.reads, scoring.edge_features)
            return PairScores(scoring, task, pairs)
        scorer_of(scoring.model)
        if self.questions is not None:
            questions = read_questions(data, self.questions, learned)
            return Answers(scoring, questions, self.answers or TOP, self.include_known)
        assert self.partners is not None, "one of them is given"
        relation = choose_relation(data, self.relation, learned, "--relation")
        of = None if self.of is None else read_nodes(data, self.of, data.edge_types[relation][0])
        found = search(data, relation, of=of, known=None if self.include_known else KnownEdges(data))
        return BestPartners(scoring, found, self.partners)


@dataclass(frozen=True, eq=False)
class PairScores:
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
            yield some, self.task.predicted(outputs, self.scoring.names)


@dataclass(frozen=True, eq=False)
class BestPartners:
    """The best partners of nodes."""

    scoring: Scoring
    search: Search
    count: int
    alike: bool = False
    """Whether these are nodes of the same type whose rows are most alike, by their cosine."""

    @property
    def nodes(self) -> Tensor:
        """All nodes whose rows are read, rising."""
        return self.search.nodes

    def write(self, folder: Path, h: RowSource, room: int | str | None) -> dict[str, int]:
        """Write a row per node and partner, and return how many nodes there are."""
        scorer = Cosine(h.shape[1]) if self.alike else scorer_of(self.scoring.model)
        chunks = self.search.chunks(h, scorer, self.count, ROOM if room is None else room)
        write_partners(folder / (NEAREST if self.alike else PARTNERS), self.scoring.data, chunks)
        return {"sources": len(self.search.sources)}
