"""Features whose columns lie on different ranks, and the first layer's work on them (P3).

Every rank holds some columns of all nodes. The ranks push the edges and nodes of their batches' first block
to all; each then sums its columns over neighbours and multiplies them with its rows of the weight, for every
batch of the step; a batch's owner pulls these partial products and adds them up. That is right for whatever
is linear in the features up to the product. In backward the gradient of the product goes to all, and each
rank has the gradient of its rows of the weight, for all batches together.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.errors import InputError
from weft.graph.message.block import Block
from weft.kernels.second import here_only
from weft.samplers.core.block import SampledBlock
from weft.stores.sliced import SlicedStore

PUSH = Label("push")
PULL = Label("pull")
PULL_BACK = Label("pull", direction="backward")


@dataclass(eq=False)
class Pushed:
    """The first blocks of the batches of all ranks in a step, as each rank knows them."""

    group: Group
    columns: slice
    """Those of this rank."""
    width: int
    edges: list[tuple[Tensor, Tensor]]
    """indptr and source rows of each rank's block."""
    num_src: list[int]
    starting: bool = False
    """Whether products are begun, for a step that comes later."""
    begun: "deque[Pending]" = field(default_factory=deque)
    factors: list[Tensor] | None = None
    """Takes note of what rows are multiplied with, instead of multiplying; None: multiply."""

    @property
    def num_dst(self) -> list[int]:
        """Destination rows of each rank's block."""
        return [len(indptr) - 1 for indptr, _ in self.edges]

    @property
    def num_edges(self) -> list[int]:
        """Edges of each rank's block."""
        return [len(indices) for _, indices in self.edges]

    def spread(self, values: Tensor | None, counts: Sequence[int]) -> list[Tensor | None]:
        """Return the values of all ranks; None where a call has none, which it then has on no rank."""
        if values is None:
            return [None] * self.group.size
        moved = self.group.all_gather(values.contiguous(), counts, label=PUSH).wait()
        return list(torch.split(moved, list(counts)))

    def settle(self) -> None:
        """Wait for what was begun and will not be asked for."""
        while self.begun:
            self.begun.popleft().wait()


class SlicedRows:
    """Stands for features [rows, width] of this rank's batch; `parts` are its columns of everybody's rows.

    A layer may take its first rows, sum it over neighbours and multiply it with a weight; all ranks do so
    together.
    """

    requires_grad = False
    summed = False
    """Whether these are sums over neighbours: only the edges of the first block are known to all."""

    def __init__(self, pushed: Pushed, parts: list[Tensor]) -> None:
        self.pushed, self.parts = pushed, parts
        own = parts[pushed.group.rank]
        self.shape = torch.Size((len(own), pushed.width))
        self.dtype, self.device = own.dtype, own.device

    def first(self) -> "SlicedRows":
        """Return the rows of destinations."""
        pairs = zip(self.parts, self.pushed.num_dst)
        return SlicedRows(self.pushed, [part[:count] for part, count in pairs])

    def matmul(self, weight: Tensor) -> Tensor:
        """Return the product with a weight [width, H], or own rows of one, added up over all columns."""
        pushed = self.pushed
        if pushed.factors is not None:
            pushed.factors.append(weight)
            return weight.new_zeros(self.shape[0], weight.shape[1])
        if pushed.starting:
            pushed.begun.append(self._begin(self._own(weight)))
            return weight.new_zeros(self.shape[0], weight.shape[1])
        weight = self._own(weight)
        pending = pushed.begun.popleft() if pushed.begun else self._begin(weight)
        product: Tensor = _Product.apply(weight, self, pending)  # type: ignore[no-untyped-call]
        return product

    def gradient(self, grad: Tensor) -> Tensor:
        """Return the gradient of own rows of the weight, given that of the product."""
        counts = [len(part) for part in self.parts]
        moved = self.pushed.group.all_gather(grad.contiguous(), counts, label=PULL_BACK).wait()
        width = self.pushed.columns.stop - self.pushed.columns.start
        total = moved.new_zeros(width, grad.shape[1], dtype=self.dtype)
        for part, rows in zip(self.parts, torch.split(moved, counts)):
            total.addmm_(part.t(), rows.to(self.dtype))
        return total

    def _own(self, weight: Tensor) -> Tensor:
        """Return own rows of a weight, which are all that there is of one that is cut."""
        pushed = self.pushed
        whole = len(weight) == pushed.width and pushed.columns != slice(0, pushed.width)
        return weight[pushed.columns] if whole else weight

    @torch.no_grad()
    def _begin(self, weight: Tensor) -> Pending:
        """Multiply everybody's rows with this rank's rows of the weight, and send them home."""
        own = weight.detach()
        partial = torch.cat([part @ own for part in self.parts])
        return self.pushed.group.reduce_scatter(partial, [len(part) for part in self.parts], label=PULL)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"SlicedRows has no {name!r}")
        refuse(name)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        refuse(getattr(function, "__name__", str(function)))


class _Product(torch.autograd.Function):
    """A product whose terms lie on all ranks."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: SlicedRows, pending: Pending) -> Tensor:
        ctx.rows, ctx.dtype = rows, weight.dtype
        return pending.wait()

    @staticmethod
    @here_only
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.rows.gradient(grads[0]).to(ctx.dtype), None, None


class SlicedBlock(SampledBlock):
    """A sampled block; that of the first layer sums features whose columns lie on all ranks."""

    def prefers_aggregate_first(self, h: Any) -> bool:
        """Return True for features: each rank sums its own columns, and what travels is the product."""
        return isinstance(h, SlicedRows) or super().prefers_aggregate_first(h)

    def dst(self, h: Any) -> Any:
        """Return the rows that messages are written to."""
        return h.first() if isinstance(h, SlicedRows) else super().dst(h)

    def aggregate(
        self,
        h: Any,
        reduce: str = "sum",
        weight: Tensor | None = None,
        relation: int | None = None,
        *,
        src_scale: Tensor | None = None,
        dst_scale: Tensor | None = None,
    ) -> Any:
        """Return the reduced rows of `h`; of features, those columns that this rank holds."""
        if not isinstance(h, SlicedRows):
            return super().aggregate(h, reduce, weight, relation, src_scale=src_scale, dst_scale=dst_scale)
        if reduce not in ("sum", "mean"):
            refuse(f"the {reduce} of neighbours")
        if relation is not None:
            refuse("the edges of one relation")
        if h.summed:
            refuse("sums over several hops before a product")
        wide = torch.float64 if h.dtype == torch.float64 else torch.float32
        each = self.edge_scale
        weights = [value.to(wide) for value in (weight, each) if value is not None]
        scales = [self.mean_scale(wide)] if reduce == "mean" else []
        scales += [value.to(wide) for value in (dst_scale, self.row_scale) if value is not None]
        pushed = h.pushed
        by_rank = zip(
            pushed.edges,
            h.parts,
            pushed.spread(_product_of(weights), pushed.num_edges),
            pushed.spread(src_scale, pushed.num_src),
            pushed.spread(_product_of(scales), pushed.num_dst),
        )
        sums = [
            kernels.spmm(*edges, part, weights, "sum", src_scale=before, dst_scale=after)
            for edges, part, weights, before, after in by_rank
        ]
        made = SlicedRows(pushed, sums)
        made.summed = True
        return made


def push(first: Block, nodes: Tensor, store: SlicedStore) -> SlicedRows:
    """Return the features of a batch, after all ranks told each other the first blocks of theirs."""
    group = store.group
    sizes = torch.tensor([[first.num_src, first.num_dst, first.num_edges]])
    num_src, num_dst, num_edges = group.all_gather(sizes, label=PUSH).wait().T.tolist()
    ids = group.all_gather(nodes, num_src, label=PUSH)
    # Degrees and rows within a batch fit into 32 bits: half of what would travel.
    degree = group.all_gather(first.indptr.diff().int(), num_dst, label=PUSH)
    indices = group.all_gather(first.indices.int(), num_edges, label=PUSH)
    edges = [
        (torch.cat([counts.new_zeros(1), counts.cumsum(0)]), sources.contiguous())
        for counts, sources in zip(
            torch.split(degree.wait().long(), num_dst), torch.split(indices.wait(), num_edges)
        )
    ]
    pushed = Pushed(group, store.columns, store.shape[1], edges, num_src)
    return SlicedRows(pushed, [store.own(each) for each in torch.split(ids.wait(), num_src)])


def refuse(what: str) -> NoReturn:
    """Raise: features of which each rank has some columns cannot give that."""
    raise InputError(
        f"strategy 'sliced' gives the first layer sums and products of features, the model needs {what}; use "
        "'sampled', or a first layer such as gcn, sage (mean), gin or gat, without dropout of the input"
    )


def _product_of(factors: list[Tensor]) -> Tensor | None:
    if not factors:
        return None
    product = factors[0]
    for factor in factors[1:]:
        product = product * factor
    return product
