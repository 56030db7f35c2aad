"""What `weft infer` writes of entities: answers to questions in a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from weft.graph.source import RowSource
from weft.pipeline.infer.requests import Question
from weft.pipeline.infer.scoring import Scoring
from weft.tasks.partners import Partners
from weft.tasks.prediction_tables import write_answers
from weft.tasks.scores import End
from weft.train.inference.links import ROOM, KnownEdges, Search, scorer_of, search

ANSWERS = "answers.parquet"


@dataclass(frozen=True, eq=False)
class Answers:
    """The best answers to questions: heads or tails of a relation, among all nodes of the type."""

    scoring: Scoring
    questions: list[Question]
    count: int
    include_known: bool = False

    @property
    def nodes(self) -> Tensor:
        """All nodes whose rows are read, rising."""
        graph = self.scoring.data
        kinds = {graph.edge_types[each.relation][0 if each.side == "src" else 2] for each in self.questions}
        among = [torch.arange(graph.num_nodes)[graph.rows_of_type(kind)] for kind in sorted(kinds)]
        found: Tensor = torch.unique(torch.cat([*(each.given for each in self.questions), *among]))
        return found

    def write(self, folder: Path, h: RowSource, room: int | str | None) -> dict[str, int]:
        """Write a row per question and answer, and return how many questions there are."""
        write_answers(folder / ANSWERS, self.scoring.data, self._found(h, ROOM if room is None else room))
        return {"questions": sum(len(each.rows) for each in self.questions)}

    def _found(self, h: RowSource, room: int | str) -> Iterator[tuple[Partners, Tensor, int, End]]:
        scorer = scorer_of(self.scoring.model)
        for each in self.questions:
            done = 0
            for some in self._search(each).chunks(h, scorer, self.count, room):
                rows = each.rows[done : done + len(some.sources)]
                done += len(some.sources)
                yield some, rows, each.relation, each.side

    @cached_property
    def _known(self) -> KnownEdges | None:
        return None if self.include_known else KnownEdges(self.scoring.data)

    def _search(self, question: Question) -> Search:
        return search(
            self.scoring.data,
            question.relation,
            of=question.given,
            known=self._known,
            side=question.side,
            itself=True,  # a fact may be one of an entity and itself
        )
