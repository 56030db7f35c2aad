"""The proof that any number of workers takes the steps of one process: `weft selftest equivalence`.

Every legal pair of a strategy and an exchange, at the point where the exchange is exact, trains every kind of
model on graphs that have broken such systems, for classes and numbers of nodes, links and numbers of edges,
and is held to losses, outputs, gradients and weights of `single`. What is proved is read from the registries:
a new strategy or exchange is proved once it is there, on the targets that it takes.
"""

from weft.train.proof.cases import Case, Pair, all_cases, cover, legal_pairs
from weft.train.proof.proving import Outcome, prove

__all__ = ["Case", "Outcome", "Pair", "all_cases", "cover", "legal_pairs", "prove"]
