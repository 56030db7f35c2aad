"""Metrics of links: where a true pair stands among its negatives.

All take `outputs` [n, 1 + k], one row per pair: column 0 is the score of the true pair, the others are those
of its negatives; -inf is a negative that is left out, as one that is true after all. Scores are logits or
anything that grows with them: a sigmoid in float32 makes all above 17 alike. There is no `y`; what is passed
for it is not read.

A tie counts half. The place of a pair is one more than the negatives above it and half of those equal to it,
which is the mean of OGB's optimistic and pessimistic rank, so a model that scores everything alike gets what
chance gives. Every score depends on how many negatives there are: `num_negatives` tells.

Pairs that were ranked among all nodes come as `Ranks`, places that are counted already.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from weft.errors import InputError
from weft.tasks.metrics import Counted, Metric, area

LEFT_OUT = float("-inf")
"""The score of a negative that does not count."""


ENDS = ("dst", "src")
"""The ends that may be asked for, by their numbers in `Ranks`."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Where pairs stand among all candidates, one row per pair and end that is asked for."""

    places: Tensor
    """[n] float64, without other true answers; 1 is best"""
    raw: Tensor
    """[n] with them"""
    others: Tensor
    """[n] how many candidates there are beside the true one and other true answers"""
    losses: Tensor
    """[n] minus the log of the softmax of the true pair among all candidates"""
    relation: Tensor
    side: Tensor
    """[n] which end is asked for: its place in `ENDS`"""

    @classmethod
    def cat(cls, parts: "Sequence[Ranks]") -> "Ranks":
        """Return the rows of several, in turn."""
        return cls(*(torch.cat([getattr(part, name.name) for part in parts]) for name in fields(cls)))

    def __len__(self) -> int:
        return len(self.places)


def places(outputs: Tensor | Ranks) -> Tensor:
    """Return the place of each true pair among itself and its negatives, [n] float64; 1 is best.

    >>> places(torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 2.0]])).tolist()
    [1.0, 2.5]
    """
    if isinstance(outputs, Ranks):
        return outputs.places
    true, negative = _columns(outputs)
    above = (negative > true[:, None]).sum(1).double()
    equal = ((negative == true[:, None]) & _held(negative)).sum(1).double()
    return 1.0 + above + 0.5 * equal


def _mean(each: Callable[[Any], Tensor]) -> Counted:
    """Return the mean over pairs of a function of outputs that gives [n]."""

    def counts(outputs: Any, y: Tensor | None) -> Tensor:
        values = each(outputs).double()
        return torch.stack([values.sum(), torch.ones_like(values).sum()])

    def value(sums: Tensor) -> float:
        total, rows = sums.tolist()
        return total / rows if rows else float("nan")

    return Counted(counts, value)


def hits(k: int) -> Counted:
    """Return the share of pairs whose place among their own negatives is at most `k`."""
    return _mean(lambda outputs: places(outputs) <= k)


mrr = _mean(lambda outputs: places(outputs).reciprocal())
"""The mean of 1 / place."""
num_negatives = _mean(lambda outputs: _num_negatives(outputs))
"""How many negatives a pair stands among, on average: those that are not left out."""


def ogb_hits(k: int) -> Metric:
    """Return OGB's Hits@k (ogbl-ppa, -collab, -ddi): the share of true pairs above the k-th best negative.

    The negatives of all rows are one set that every pair is held to, and a pair equal to the k-th best is not
    above it. Of fewer than `k` negatives it is 1. `share_above` takes such a set by itself.
    """

    def metric(outputs: Tensor, y: Tensor | None = None) -> float:
        true, negative = _columns(outputs)
        return share_above(true, negative[_held(negative)], k)

    return metric


def share_above(true: Tensor, negative: Tensor, k: int) -> float:
    """Return the share of scores `true` [n] strictly above the k-th best of `negative` [m]; 1 where m < k."""
    if not len(true):
        return float("nan")
    if len(negative) < k:
        return 1.0
    return float((true > negative.topk(k).values[-1]).double().mean())


def roc_auc(outputs: Tensor, y: Tensor | None = None) -> float:
    """Return the chance that a true pair scores above a negative of any pair, ties counting half."""
    scores, true = _pooled(outputs)
    return area(scores, true) if bool(true.any()) and not bool(true.all()) else float("nan")


def average_precision(outputs: Tensor, y: Tensor | None = None) -> float:
    """Return the mean precision at true pairs: of all scores as high as a true pair's, the true share.

    As scikit-learn has it, with equal scores taken together; negatives of all pairs are one set.
    """
    scores, true = _pooled(outputs)
    if not bool(true.any()):
        return float("nan")
    # Sorted once each and searched, instead of one list in order: ties have to be taken together.
    hits, others = scores[true].sort().values, scores[~true].sort().values
    right, wrong = (len(scored) - torch.searchsorted(scored, hits).double() for scored in (hits, others))
    return float((right / (right + wrong)).mean())


RANKING: dict[str, Metric] = {
    "mrr": mrr,
    **{f"hits@{k}": hits(k) for k in (1, 3, 10, 20, 50, 100)},
    "roc_auc": roc_auc,
    "ap": average_precision,
    **{f"ogb_hits@{k}": ogb_hits(k) for k in (20, 50, 100)},
}
"""Metrics of links by their names in a recipe. Those that are `Counted` add up over workers."""


def _raw_hits(k: int) -> Counted:
    return _mean(lambda ranks: ranks.raw <= k)


RAW: dict[str, Metric] = {
    "raw_mrr": _mean(lambda ranks: ranks.raw.reciprocal()),
    **{f"raw_hits@{k}": _raw_hits(k) for k in (1, 3, 10)},
}
"""Of `Ranks` alone: those of raw places."""
AMONG_ALL: dict[str, Metric] = {
    **{name: metric for name, metric in RANKING.items() if isinstance(metric, Counted)},
    **RAW,
}
"""What `Ranks` have."""


_HITS = (1, 3, 10)
_PARTS = tuple(f"{kind}{name}" for kind in ("", "raw_") for name in ("mrr", *(f"hits@{k}" for k in _HITS)))


def by_relation(ranks: Ranks | None, num_relations: int) -> Tensor:
    """Return sums of 1 / place and of hits at 1, 3 and 10, of filtered and of raw ranks, and of rows.

    They are [R, 2, 9], by relation and end, and add up over workers.
    """
    sums = torch.zeros(num_relations * len(ENDS), len(_PARTS) + 1, dtype=torch.float64)
    if ranks is not None:
        parts = [part for counted in (ranks.places, ranks.raw) for part in _parts(counted)]
        columns = torch.stack([*parts, torch.ones_like(ranks.places)], 1)
        sums.index_add_(0, ranks.relation * len(ENDS) + ranks.side, columns)
    return sums.view(num_relations, len(ENDS), -1)


def _parts(places: Tensor) -> list[Tensor]:
    return [places.reciprocal(), *(places <= k for k in _HITS)]


def told_by_relation(sums: Tensor, names: Sequence[str]) -> dict[str, Any]:
    """Return the ranks of `by_relation`: by the end that is asked for, and by relation, each with both ends.

    Relations without a row are left out; `pairs` counts rows.
    """
    by_end = {end: _told(of_end) for end, of_end in zip(ENDS, sums.sum(0))}
    relations = {
        name: {**_told(by_side.sum(0)), **{end: _told(each) for end, each in zip(ENDS, by_side) if each[-1]}}
        for name, by_side in zip(names, sums)
        if by_side[:, -1].sum()
    }
    return {"by_end": by_end, "by_relation": relations}


def _told(sums: Tensor) -> dict[str, float]:
    *parts, rows = sums.tolist()
    means = {name: part / rows if rows else float("nan") for name, part in zip(_PARTS, parts)}
    return {**means, "pairs": int(rows)}


def _num_negatives(outputs: Tensor | Ranks) -> Tensor:
    return outputs.others if isinstance(outputs, Ranks) else _held(_columns(outputs)[1]).sum(1)


def _columns(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores of true pairs [n] and of negatives [n, k], or refuse what cannot be ranked."""
    if outputs.dim() != 2 or outputs.shape[1] < 1:
        raise InputError(f"expected scores [n, 1 + k], those of true pairs first, got {list(outputs.shape)}")
    wrong = int(outputs.isnan().sum())
    if wrong:
        raise InputError(
            f"{wrong} of {outputs.numel()} scores are NaN and have no place; lower train.lr, or look for "
            "features that are not finite"
        )
    return outputs[:, 0], outputs[:, 1:]


def _held(negative: Tensor) -> Tensor:
    return negative != LEFT_OUT


def _pooled(outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Return all scores that count, float64, and which are true pairs'."""
    true, negative = _columns(outputs)
    scores = torch.cat([true, negative[_held(negative)]]).double()
    return scores, torch.arange(len(scores), device=scores.device) < len(true)
