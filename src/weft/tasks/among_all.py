"""Where true pairs stand among all nodes, counted piece by piece of the candidates.

For each end that is asked for, every node of its type is a candidate, the given end too. Filtered ranks leave
out the other true answers, of whatever split; raw ranks leave out nothing but the pair itself. What is held
is a row and a few counts per pair, and the scores of some pairs with some candidates, so candidates may be
partitions of a table that is never in memory as a whole, in any order.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.tasks.negatives import Nodes
from weft.tasks.ranking import ENDS, Ranks
from weft.tasks.scores.base import End, Scorer

BLOCK = {"cpu": 1 << 22, "cuda": 1 << 26}
"""Scores that are held at once: more where each block is waited for."""


@dataclass(eq=False)
class _Asked:
    """The pairs of one side: what is asked, what is true, and what was counted so far."""

    side: End
    other_rows: Tensor
    """[n, d] float64, the rows of the other ends"""
    relation: Tensor | None
    true: Tensor
    """[n] the scores of true pairs, rounded"""
    own: Tensor
    """[n] the ends that are asked for"""
    kind: Tensor
    """[n] the types of these"""
    rows: Tensor
    """[t] whose other true answers are …"""
    nodes: Tensor
    """[t] … these, rising"""
    filtered: Tensor
    """[2, n] candidates above and equal, without other true answers"""
    raw: Tensor
    """[2, n] with them"""
    seen: Tensor
    """[n] candidates"""
    log_sum: Tensor
    """[n] the logarithm of the sum of exponentials of their scores"""

    def ranks(self, pairs: Pairs) -> Ranks:
        """Return where each pair stands."""
        left_out = torch.bincount(self.rows, minlength=len(self.own)).cpu()
        places, raw = (1.0 + (counted[0] + 0.5 * counted[1]).cpu() for counted in (self.filtered, self.raw))
        relation = torch.zeros_like(pairs.src) if pairs.relation is None else pairs.relation
        return Ranks(
            places=places,
            raw=raw,
            others=self.seen.cpu() - 1 - left_out,
            losses=(self.log_sum - self.true).double().cpu(),
            relation=relation,
            side=torch.full_like(pairs.src, ENDS.index(self.side)),
        )


class AmongAll:
    """Ranks of pairs among all nodes; `add` every candidate once, then read `ranks`.

    Scores are computed in float64 and rounded to the type of the rows: ends that are alike tie, however a
    product of matrices is summed.
    """

    def __init__(
        self,
        scorer: Scorer,
        pairs: Pairs,
        heads: Tensor,
        tails: Tensor,
        *,
        sides: Sequence[End],
        known: Known,
        among: Nodes,
    ) -> None:
        """`heads` and `tails` [n, d] are the rows of the pairs' ends, `known` all that is true."""
        self.pairs, self.dtype = pairs, heads.dtype
        self.among = among
        # A copy: the model's own scorer goes on in its own type.
        self.scorer = deepcopy(scorer).to(heads.device).double()
        self._asked = [self._begin(side, heads.double(), tails.double(), known) for side in sides]

    def _begin(self, side: End, heads: Tensor, tails: Tensor, known: Known) -> _Asked:
        pairs, device = self.pairs, heads.device
        relation = None if pairs.relation is None else pairs.relation.to(device)
        own, other_rows = (pairs.dst, heads) if side == "dst" else (pairs.src, tails)
        ends = pairs.src if side == "dst" else pairs.dst
        rows, nodes = known.partners(ends, pairs.relation, side=side, device=device)
        own = own.to(device)
        rows, nodes = (held[nodes != own[rows]] for held in (rows, nodes))
        # Rising: those of a range of candidates are then a slice, found by two searches.
        order = nodes.argsort(stable=True)
        counts = torch.zeros(5, len(pairs), dtype=torch.float64, device=device)
        return _Asked(
            side=side,
            other_rows=other_rows,
            relation=relation,
            true=self.scorer(heads, tails, relation, side=side).to(self.dtype),
            own=own,
            kind=torch.from_numpy(self.among.kind(own.cpu())).to(device),
            rows=rows[order],
            nodes=nodes[order],
            filtered=counts[:2],
            raw=counts[2:4],
            seen=counts[4],
            log_sum=torch.full((len(pairs),), -torch.inf, dtype=self.dtype, device=device),
        )

    @torch.no_grad()
    def add(self, ids: Tensor, rows: Tensor) -> None:
        """Count candidates: rising global ids [m] and their rows [m, d]."""
        bounds, ids = torch.searchsorted(ids, torch.from_numpy(self.among.offsets)), ids.to(rows.device)
        block = BLOCK[rows.device.type]
        for kind, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist())):
            step = max(1, min(high - low, block // max(1, min(len(self.pairs), 1024))))
            for first in range(low, high, step):
                here = slice(first, min(first + step, high))
                some = rows[here].double()
                for asked in self._asked:
                    self._count(asked, (asked.kind == kind).nonzero().flatten(), ids[here], some)

    def _count(self, asked: _Asked, chosen: Tensor, ids: Tensor, candidates: Tensor) -> None:
        """Count candidates for the chosen pairs, whose ends are of their type, some pairs at a time."""
        low, high = torch.searchsorted(asked.nodes, torch.stack([ids[0], ids[-1] + 1])).tolist()
        rows, nodes = asked.rows[low:high], asked.nodes[low:high]
        inside = _inside(ids, nodes)
        rows, at = rows[inside >= 0], inside[inside >= 0]
        order = rows.argsort(stable=True)
        rows, at = rows[order], at[order]
        for some in torch.split(chosen, max(1, BLOCK[ids.device.type] // len(ids))) if len(chosen) else ():
            first, last = torch.searchsorted(rows, torch.stack([some[0], some[-1] + 1])).tolist()
            mine, column = rows[first:last], at[first:last]
            slot = torch.searchsorted(some, mine).clamp(max=len(some) - 1)
            present = some[slot] == mine
            self._count_block(asked, some, ids, candidates, (slot[present], column[present]))

    def _count_block(
        self, asked: _Asked, some: Tensor, ids: Tensor, candidates: Tensor, others: tuple[Tensor, Tensor]
    ) -> None:
        """Count some pairs with some candidates; `others` are places of other true answers in the block."""
        kind = None if asked.relation is None else asked.relation[some]
        exact = self.scorer.against(asked.other_rows[some], candidates, kind, side=asked.side)
        scores, true = exact.to(self.dtype), asked.true[some]
        log_sum = torch.logaddexp(asked.log_sum[some], torch.logsumexp(scores, 1))
        # One NaN among the scores is in this sum too, which is needed anyway and is a column, not a block.
        if bool((log_sum + true).isnan().any()):
            raise InputError(
                "scores are NaN and have no place; lower train.lr, or look for features that are not finite"
            )
        all = torch.stack([(scores > true[:, None]).sum(1), (scores == true[:, None]).sum(1)])
        own = _inside(ids, asked.own[some])
        inside = (own >= 0).nonzero().flatten()
        raw = all - _of(scores, true, inside, own[inside])
        asked.raw[:, some] += raw
        asked.filtered[:, some] += raw - _of(scores, true, *others)
        asked.log_sum[some] = log_sum
        asked.seen[some] += len(ids)

    def ranks(self) -> Ranks:
        """Return the ranks of all pairs, a row for each side in turn."""
        return Ranks.cat([asked.ranks(self.pairs) for asked in self._asked])


def _of(scores: Tensor, true: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return how many scores at some places are above their row's true one, and how many equal, [2, n]."""
    scored, bar = scores[rows, columns], true[rows]
    chosen = (rows[scored > bar], rows[scored == bar])
    return torch.stack([torch.bincount(held, minlength=len(true)) for held in chosen])


def _inside(ids: Tensor, nodes: Tensor) -> Tensor:
    """Return the place of each node among rising ids, -1 where it is none of them."""
    if not len(ids):
        return torch.full_like(nodes, -1)
    at = torch.searchsorted(ids, nodes).clamp(max=len(ids) - 1)
    return torch.where(ids[at] == nodes, at, -1)
