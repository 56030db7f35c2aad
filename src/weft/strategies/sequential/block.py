"""The block of a shard whose remote rows come part by part, and go before the next but one comes.

Layers see what they see of any block. Nothing of the size of the halo is held: sums, means, largest values,
attention and messages are made of one part after the other. Only `src`, for code that wants all source rows
at once, brings the whole halo.
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.errors import GraphError, InputError
from weft.exchanges.base import Exchange
from weft.graph.message.block import PairTransform
from weft.graph.message.crossing import crossed
from weft.graph.message.propagate import CHUNK_ELEMENTS
from weft.graph.message.reduction import Aggregation, Propagation, times_rows
from weft.graph.message.rehearsal import need_no_other_edges
from weft.graph.message.replay import captured
from weft.graph.message.scores import Score, parts_of
from weft.graph.parts.shard import Shard
from weft.graph.sparse import Features
from weft.kernels.reference_attention import ADDITIVE, DOT
from weft.strategies.halo.block import HaloBlock
from weft.strategies.sequential.attention import AttentionInParts
from weft.strategies.sequential.parts import TRAINING, EdgeParts, Round, split_edges
from weft.strategies.sequential.programs import Planned, ProgramInParts, planned
from weft.strategies.sequential.reductions import Extreme, Messages, WeightedSum
from weft.strategies.sequential.run import Call, Ending, run_in_parts


class SequentialBlock(HaloBlock):
    """The edges into the own rows of a shard, by the part of their sources. All ranks make the same calls."""

    def __init__(
        self,
        shard: Shard,
        exchange: Exchange,
        group: Group,
        rounds: Sequence[Round],
        *,
        clock: Tensor | None = None,
    ) -> None:
        super().__init__(shard, exchange, group, clock=clock)
        self.rounds = list(rounds)
        self.kind = TRAINING
        """What the ledger calls the rows that are fetched."""
        self._slot = 0

    def begin(self, kind: str) -> None:
        """Begin a forward pass: its calls are numbered from 0 on every rank."""
        self.kind, self._slot = kind, 0

    # What layers do with it

    def attend(self, score: Score, value: Tensor, dropout: float = 0.0, *, layer: int = 0) -> Tensor:
        """Return what `Block.attend` does, with a running softmax."""
        kind, source, dst, a, slope = parts_of(score)
        if source.shape[0] != self.num_own or value.shape[0] != self.num_own:
            return super().attend(score, value, dropout, layer=layer)
        _check_attention(kind, source, dst, value)
        parts = self._parts(None, own_parts=False)
        ending = self._attention(kind, slope, dropout, layer)
        return self._run(parts, ending, [source, value], extra=[dst, a, score.edge])

    def aggregate_pairs(
        self,
        transform: PairTransform,
        src: Sequence[Tensor],
        params: Sequence[Tensor] = (),
        *,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return what `Block.aggregate_pairs` does; the pairs of one part exist at a time."""
        if any(t.shape[0] != self.num_own for t in src):
            return super().aggregate_pairs(transform, src, params, weight=weight)
        ending = WeightedSum(self.num_dst, learned=_learned(weight))
        parts = self._parts(None, own_parts=True)
        return self._run(parts, ending, src, params=params, extra=[weight], transform=transform)

    def attend_pairs(
        self,
        transform: PairTransform,
        src: Sequence[Tensor],
        params: Sequence[Tensor] = (),
        *,
        query: Tensor,
        scale: float = 1.0,
        dropout: float = 0.0,
        layer: int = 0,
    ) -> Tensor:
        """Return what `Block.attend_pairs` does; the pairs of one part exist at a time."""
        if any(t.shape[0] != self.num_own for t in src):
            return super().attend_pairs(
                transform, src, params, query=query, scale=scale, dropout=dropout, layer=layer
            )
        parts = self._parts(None, own_parts=True)
        ending = self._attention(DOT, scale, dropout, layer)
        extra = [query, None, None]
        return self._run(parts, ending, src, params=params, extra=extra, transform=transform)

    def _aggregate(self, h: Features, how: Aggregation) -> Features:
        """Return the aggregate; an input that does not change is fetched and reduced once."""
        if not isinstance(h, Tensor) and not self.constant(h):
            h = h.to_dense()
        if not isinstance(h, Tensor) or h.shape[0] != self.num_own:
            return super()._aggregate(h, how)
        if not self.constant(h):
            return self._reduced(h, how, self.kind)
        asked = self.asked_before(how)
        return self._memory.recall(
            asked.question, (h, *asked.tensors), lambda: self._reduced(h, how, "features")
        )

    def _propagate(self, how: Propagation) -> Tensor:
        """Return the reduced messages; they are made part by part, and again in backward."""
        if any(t.shape[0] != self.num_own for t in how.src):
            return super()._propagate(how)
        out = self._by_program(how)
        out = self._as_it_is(self.crossed(how)) if out is None else out
        return times_rows(out, self.mean_scale(out.dtype)) if how.reduce == "mean" else out

    def crossed(self, how: Propagation) -> Propagation:
        """Return the same messages of what should travel for them; no row of others is kept."""
        return crossed(how, lambda h: False)

    # Underneath

    def _by_program(self, how: Propagation) -> Tensor | None:
        """Return the reduced messages by a program, whichever way fetches less; None: there is none."""
        whole = planned(how)
        if whole is None:
            return None
        parts = self._parts(None, own_parts=False)
        if self._sends_loads(whole, how):
            ending, extra = ProgramInParts(whole, self.num_dst), whole.loads(self)
            return whole.finished(self, self._run(parts, ending, whole.sent(self.num_own), extra=extra))
        narrow = cast(Planned, planned(self.crossed(how)))
        ending, extra = ProgramInParts(narrow, self.num_dst), narrow.loads(self)
        transform, params = narrow.transform()
        options: dict[str, Any] = {"params": params, "extra": extra, "transform": transform}
        rows = self._run(parts, ending, narrow.how.src, by_relation=False, **options)
        return narrow.finished(self, rows)

    def _sends_loads(self, whole: Planned, how: Propagation) -> bool:
        """Return whether what the program loads is fetched, not the narrowest values; known after a call."""

        def decide() -> tuple[Planned, bool]:
            narrow = planned(self.crossed(how))
            return whole, narrow is None or whole.bytes_of_loads <= narrow.bytes_of_rows

        # By identity, which the answer keeps from being used again.
        return self.cached(("sends loads", id(whole.pieces), whole.learned), decide)[1]

    def _as_it_is(self, how: Propagation) -> Tensor:
        """Return the reduced messages without a program; a mean is still a sum."""
        need_no_other_edges(how, parts=True)
        # Rows of zeros, not those of an edge: a rank without edges must find the same.
        probe = [t.new_zeros(2, *t.shape[1:]) for t in how.per_edge]
        asks = torch.is_grad_enabled() and not how.complete
        found = captured(how.message, probe, how.params) if asks else []
        width = max(1, sum(t.shape[1:].numel() for t in how.per_edge))
        chunk = max(1, CHUNK_ELEMENTS // width)
        ending = Messages(self.num_dst, how, chunk)
        parts = self._parts(None, own_parts=True)
        return self._run(parts, ending, how.src, extra=[*how.dst, *how.edge, *how.params, *found])

    def _reduced(self, h: Tensor, how: Aggregation, kind: str) -> Tensor:
        flat = h if h.dim() in (2, 3) else h.reshape(h.shape[0], h.shape[1:].numel())
        parts = self._parts(how.relation, own_parts=False)
        ending: Ending
        if how.adds:
            scales = {"src_scale": how.src_scale, "dst_scale": self.scale_of_rows(how, h.dtype)}
            ending = WeightedSum(self.num_dst, learned=_learned(how.weight), **scales)
        else:
            how.check_plain()
            ending = Extreme(self.num_dst, how.reduce)
        out = self._run(parts, ending, [flat], extra=[how.weight], kind=kind)
        return out if flat is h else out.reshape(self.num_dst, *h.shape[1:])

    def _attention(self, kind: int, slope: float, dropout: float, layer: int) -> AttentionInParts:
        return AttentionInParts(
            self.num_dst,
            kind,
            slope,
            dropout=dropout,
            edge_ids=self.edge_ids if dropout > 0 else None,
            clock=self.draw_clock() if dropout > 0 else None,
            layer=layer,
        )

    def _run(
        self,
        parts: EdgeParts,
        ending: Ending,
        src: Sequence[Tensor],
        *,
        params: Sequence[Tensor] = (),
        extra: Sequence[Tensor | None] = (),
        transform: PairTransform | None = None,
        by_relation: bool = True,
        kind: str | None = None,
    ) -> Tensor:
        fetched: list[Tensor] = []
        places = []
        for tensor in src:
            known = [index for index, held in enumerate(fetched) if held is tensor]
            places.append(known[0] if known else len(fetched))
            if not known:
                fetched.append(tensor)
        call = Call(
            parts,
            ending,
            num_src=len(fetched),
            places=places,
            num_params=len(params),
            transform=transform,
            by_relation=by_relation,
            kind=self.kind if kind is None else kind,
            slots=[self._slot + number for number in range(len(fetched))],
        )
        if kind is None or kind == self.kind:
            self._slot += len(fetched)
        return run_in_parts(call, [*fetched, *params, *extra])

    def _parts(self, relation: int | None, *, own_parts: bool) -> EdgeParts:
        """Return the edges, or those of one relation, by the part of their sources; kept."""
        every = relation is None or self.edge_type is None

        def make() -> EdgeParts:
            edges = None if every else cast(Tensor, self.relation_edges(cast(int, relation)))
            return split_edges(self, self.rounds, own_parts=own_parts, edges=edges)

        if relation is not None and not 0 <= relation < self.num_relations:
            raise GraphError(f"relation {relation} asked for, the block has {self.num_relations}: 0 … n - 1")
        return self.cached(("parts", None if every else relation, own_parts), make)


def _check_attention(kind: int, source: Tensor, dst: Tensor, value: Tensor) -> None:
    """Refuse shapes that do not fit, with the words of the kernel's own check."""
    scores = "[num_src, heads]" if kind == ADDITIVE else "[num_src, heads, dim]"
    fits = value.dim() == 3 and source.dim() == (2 if kind == ADDITIVE else 3)
    if not fits or source.shape[1] != value.shape[1]:
        got = f"{list(value.shape)} and {list(source.shape)}"
        raise InputError(f"attention: expected value [num_src, heads, dim] and sources {scores}, got {got}")
    if dst.shape[1:] != source.shape[1:]:
        expected = ["num_dst", *source.shape[1:]]
        raise InputError(
            f"attention: expected the destination side of shape {expected}, got {list(dst.shape)}"
        )


def _learned(weight: Any) -> bool:
    return weight is not None and weight.requires_grad and torch.is_grad_enabled()
