"""One more reduction, as somebody else would write it, and what ranks do with every reduction there is."""

from collections.abc import Iterator
from typing import Any

import torch
from halo_jobs import far, graph_of, local_graph, parts_of
from layout_jobs import cell, replicas
from torch import Tensor

from weft import kernels
from weft.comm.group import Group
from weft.graph import Graph
from weft.graph.reductions import ByRow, Contribution, RowReduction, reductions
from weft.graph.reductions.row_sums import as_matrix
from weft.strategies.merged.grid import Grid
from weft.strategies.merged.vertex_cut import VertexCut
from weft.strategies.sequential.sequential import Sequential


class Norm(RowReduction):
    """√Σ value²."""

    def contributions(self, made: Any) -> Contribution:
        return Contribution(as_matrix(made))

    def reduced(self, by_row: ByRow, given: Contribution) -> Contribution:
        total = kernels.spmm(by_row.indptr, by_row.indices, as_matrix(given.value).square())
        root = total.where(total > 0, 1.0).sqrt().where(total > 0, 0.0)
        return Contribution(root.reshape(by_row.num_rows, *given.value.shape[1:]))

    def start(self, like: Contribution, num_rows: int) -> Contribution:
        return Contribution(like.value.new_zeros(num_rows, *like.value.shape[1:]))

    def merge(self, whole: Contribution, rows: slice | Tensor, part: Contribution) -> None:
        whole.value[rows] = torch.hypot(whole.value[rows], part.value)

    def gradients(
        self, whole: Contribution, given: Contribution, rows: Tensor, grad: Contribution
    ) -> Contribution:
        share = (grad.value / whole.value.where(whole.value > 0, 1.0))[rows]
        return Contribution(given.value * share)


def message(reduce: str, u: Tensor, v: Tensor, weight: Tensor) -> Any:
    """Return a message of an edge: for a softmax a score and a value."""
    made = (u @ weight) * v
    return (made[:, :2], made.reshape(-1, 2, 2)) if reduce == "softmax" else made


def inputs(num_nodes: int) -> list[Tensor]:
    """Return rows of sources and of destinations, and a weight."""
    draw = torch.Generator().manual_seed(3)
    shapes = ((num_nodes, 3), (num_nodes, 4), (3, 4))
    return [torch.randn(shape, dtype=torch.float64, generator=draw) for shape in shapes]


def run(block: Any, reduce: str, leaves: list[Tensor], towards: Tensor) -> list[Tensor]:
    """Return the reduced messages, and the gradients of what they are made of; `towards` weighs rows."""
    h, own, weight = (each.clone().requires_grad_() for each in leaves)

    def made(u: Tensor, v: Tensor, w: Tensor) -> Any:
        return message(reduce, u, v, w)

    out = block.propagate(made, src=[h], dst=[own], reduce=reduce, params=[weight])
    loss = (out * towards.reshape(-1, *[1] * (out.dim() - 1))).sum()
    return [out.detach(), *torch.autograd.grad(loss, [h, own, weight])]


def layouts(group: Group, graph: Graph, kind: str) -> Iterator[tuple[str, Any, Tensor]]:
    """Give the blocks of ranks, and which of their rows count: of replicas the root."""
    parts = parts_of(kind, group.size)
    whole = Sequential(local_graph(group, graph, parts, group.size), group=group).layout.exact_block()
    yield "sequential", whole, torch.ones(len(whole.dst_ids)).bool()
    for shape in ((group.size, 1), (1, group.size)):
        held = cell(group, graph, parts, shape)
        grid = Grid(held, group=group, rows=shape[0], columns=shape[1]).layout.exact_block()
        yield f"grid {shape}", grid, torch.ones(len(grid.dst_ids)).bool()
    cut = VertexCut(replicas(group, graph, kind, group.size), group=group).layout
    yield "vertex cut", cut.exact_block(), cut._replicas.is_root


def every_reduction_on_ranks(group: Group) -> list[str]:
    """Reduce messages by every reduction, and one more, on every layout; return where one process differs."""
    reductions.add("norm")(Norm)
    wrong = []
    for kind in ("hub", "isolated"):
        graph = graph_of(kind).to(dtype=torch.float64)
        leaves, towards = inputs(graph.num_nodes), torch.arange(graph.num_nodes).double().sin()
        expected = {name: run(graph.block(), name, leaves, towards) for name in (*reductions.names(), "mean")}
        for name, block, counted in layouts(group, graph, kind):
            ids = block.dst_ids
            own = [*(each[ids] for each in leaves[:2]), leaves[2]]
            for reduce, (wanted, *_, of_weight) in expected.items():
                out, *_, part = run(block, reduce, own, towards[ids] * counted)
                found = group.all_reduce(part.contiguous()).wait()
                if max(far(out, wanted[ids]), far(found, of_weight)) > 1e-10:
                    wrong.append(f"{reduce} of {kind} by {name}")
    return wrong
