"""What an approximation was measured to cost in accuracy, and where that is kept."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

RESULTS = "benchmarks/results/README.md"
"""The page that shows what was measured."""


@dataclass(frozen=True)
class AccuracyCost:
    """Test accuracy, or the score that `of` names, against what is exact: on one graph and model alone."""

    points: float
    """More than the exact run has, in per cent: below zero, it costs."""
    error: float
    """The standard error of the mean over pairs of runs."""
    of: str
    """The graph and the model."""
    case: str
    """The benchmark that measured it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """With which it was measured."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, with its source."""
        return {**asdict(self), "source": f"{RESULTS}, {self.case}"}


NOT_MEASURED: tuple[AccuracyCost, ...] = ()
"""Of an approximation whose cost nobody has measured."""


def on_pubmed(points: float, error: float, **options: Any) -> AccuracyCost:
    """Return what `paired_accuracy` measured: GCN on pubmed, four workers."""
    return AccuracyCost(points, error, "pubmed, GCN, 4 workers", "paired_accuracy", options)


def on_communities(points: float, error: float, **options: Any) -> AccuracyCost:
    """Return what `paired_accuracy_community` measured: SAGE on communities of 20,000 nodes, four workers."""
    return AccuracyCost(points, error, "communities, SAGE, 4 workers", "paired_accuracy_community", options)
