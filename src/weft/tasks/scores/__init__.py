"""How well two nodes go together, one formula a file, entered by name.

scorer = make_scorer({"name": "complex", "reciprocal": True}, width, num_relations=237)
scorer(src, dst, relation)                               # the score of each pair
scorer.against(src, candidates, relation)                # of each source with all candidates
one = scorer.query(src, relation, "src")                 # once, for candidates that come in pieces:
scorer.compare.crossed(one, scorer.key(piece))           # [n, m], by one product of matrices if any
"""

from weft.tasks.scores.base import End, Scorer, check_scorer, check_sign, make_scorer, rows_at, scorers

__all__ = ["End", "Scorer", "check_scorer", "check_sign", "make_scorer", "rows_at", "scorers"]
