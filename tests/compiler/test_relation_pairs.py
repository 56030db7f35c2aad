"""Matrices by relation in messages: a product a (relation, source) pair, equal to plain torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.messages import assert_same, forms_of
from tests.support.programs import edges_of
from torch import Tensor

from weft.compiler.annotate import residency
from weft.compiler.compile import Compiled, compile_message
from weft.compiler.graphs import name_of, value
from weft.compiler.programs.program import Edges
from weft.graph import Block

RELATIONS, IN, OUT = 6, 4, 3
EDGES = edges_of(7)


def tensor(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


torch.manual_seed(0)
W, BACK, BIAS = tensor(RELATIONS, IN, OUT), tensor(RELATIONS, OUT, IN), tensor(RELATIONS, OUT)
FLAT, MAP, DEEP = tensor(RELATIONS, IN * OUT), tensor(IN, IN), tensor(RELATIONS, OUT, OUT)
HEADS, LAST = tensor(RELATIONS, 2, 2, OUT), tensor(RELATIONS, 2, OUT, 2)
CAPTURED = [W, BACK, BIAS, FLAT, MAP, DEEP, HEADS, LAST]
einsum, bmm = torch.einsum, torch.bmm

ON_PAIRS: dict[str, tuple[Callable[..., Any], str]] = {
    "bmm with a column": (lambda u, v, k, e: bmm(BACK[k], u.unsqueeze(-1)).squeeze(-1), "sum"),
    "bmm with a row": (lambda u, v, k, e: bmm(u.unsqueeze(-2), W[k]).squeeze(-2), "sum"),
    "einsum": (lambda u, v, k, e: einsum("ef,efo->eo", u, W[k]), "sum"),
    "einsum of the transposed": (lambda u, v, k, e: einsum("eof,ef->eo", BACK[k], u), "max"),
    "a matrix product": (lambda u, v, k, e: (u.unsqueeze(1) @ W[k]).squeeze(1), "min"),
    "a product and a sum": (lambda u, v, k, e: (W[k] * u.unsqueeze(-1)).sum(1), "sum"),
    "transposed after the lookup": (
        lambda u, v, k, e: bmm(W[k].transpose(1, 2), u.unsqueeze(2))[:, :, 0],
        "sum",
    ),
    "a flat table": (lambda u, v, k, e: einsum("ef,efo->eo", u, FLAT[k].view(-1, IN, OUT)), "sum"),
    "a number of the edge outside": (lambda u, v, k, e: e * einsum("ef,efo->eo", u, W[k]), "sum"),
    "a number of the edge inside": (lambda u, v, k, e: einsum("ef,efo->eo", u * e / 3, W[k]), "sum"),
    "a column of relations": (lambda u, v, k, e: einsum("ef,efo->eo", u, W[k.view(-1, 1).squeeze(1)]), "sum"),
    "a map before, a bias behind": (
        lambda u, v, k, e: (einsum("ef,efo->eo", (u @ MAP).tanh(), W[k]) + BIAS[k]).relu() * v[:, :OUT],
        "sum",
    ),
    "two deep": (
        lambda u, v, k, e: einsum("ef,efo->eo", einsum("ef,efo->eo", u, W[k]).relu(), DEEP[k]) + u[:, :OUT],
        "max",
    ),
    "one matrix per head": (lambda u, v, k, e: einsum("ehf,ehfo->eho", u.view(-1, 2, 2), HEADS[k]), "sum"),
    "one matrix per head by matmul": (
        lambda u, v, k, e: (u.view(-1, 2, 1, 2) @ HEADS[k]).squeeze(2).flatten(1) * e,
        "sum",
    ),
    "a transposed matrix a head": (
        lambda u, v, k, e: einsum("ehof,ehf->eho", LAST[k], u.view(-1, 2, 2)),
        "max",
    ),
    "attention by heads": (
        lambda u, v, k, e: (
            (einsum("ehf,ehfo->eho", u.view(-1, 2, 2), HEADS[k]) * v[:, None, :OUT]).sum(-1),
            einsum("ehf,ehfo->eho", (u * 2).view(-1, 2, 2), HEADS[k]),
        ),
        "softmax",
    ),
    "attention": (
        lambda u, v, k, e: ((einsum("ef,efo->eo", u, W[k]) * v[:, :OUT]).sum(-1), u),
        "softmax",
    ),
}

ON_EDGES: dict[str, Callable[..., Any]] = {
    "of destinations": lambda u, v, k, e: einsum("ef,efo->eo", v, W[k]),
    "of both ends": lambda u, v, k, e: einsum("ef,efo->eo", (u + v).relu(), W[k]) * u[:, :1],
    "of edges": lambda u, v, k, e: einsum("ef,efo->eo", e * MAP[0], W[k]) + u[:, :OUT],
}


def kinds(edges: Edges) -> Tensor:
    """Relations of edges: the second has none, the first and the last many."""
    draw = torch.Generator().manual_seed(1)
    found = torch.randint(2, RELATIONS, (edges.num_edges,), generator=draw)
    return torch.where(torch.rand(edges.num_edges, generator=draw) < 0.4, 0, found)


def given_of(edges: Edges, kind: Tensor | None = None) -> dict[str, list[Tensor]]:
    torch.manual_seed(2)
    ends = {"src": [tensor(edges.num_other, IN)], "dst": [tensor(edges.num_rows, IN)]}
    return {**ends, "edge": [kinds(edges) if kind is None else kind, tensor(edges.num_edges, 1)]}


def compiled(message: Callable[..., Any], reduce: str, *without: str) -> Compiled:
    return compile_message(message, forms_of(**given_of(EDGES)), reduce, without=without)


def widest_of_edges(made: Compiled) -> int:
    """Return the most numbers that a value has for an edge, or a load of a program."""
    graphs = [made.graph, *([] if made.by_relation is None else [made.by_relation.graph])]
    nodes = [node for graph in graphs for node in graph.nodes if node.op == "call_function"]
    return max(
        value(each).shape[1:].numel() for each in nodes if residency(each) in ("edge", "pair", "source")
    )


@pytest.mark.parametrize("without", [(), ("lookups",)], ids=["on", "off"])
@pytest.mark.parametrize("name", ON_PAIRS)
def test_a_matrix_by_relation_equals_torch(name: str, without: tuple[str, ...]) -> None:
    message, reduce = ON_PAIRS[name]
    for edges in (EDGES, edges_of(10)):
        assert_same(message, edges, reduce, CAPTURED, without=without, **given_of(edges))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_relations_may_be_counted_from_the_end(dtype: torch.dtype) -> None:
    kind = kinds(EDGES).to(dtype)
    kind[::2] -= RELATIONS
    for name in ("einsum", "one matrix per head"):
        message, reduce = ON_PAIRS[name]
        assert_same(message, EDGES, reduce, CAPTURED, **given_of(EDGES, kind))


@pytest.mark.parametrize("name", ON_PAIRS)
def test_no_edge_has_a_matrix_of_its_own(name: str) -> None:
    message, reduce = ON_PAIRS[name]
    made = compiled(message, reduce)
    assert made.by_relation is not None
    assert all(reduction.program is not None for reduction in made.reductions)
    assert widest_of_edges(made) <= 2 * OUT
    assert widest_of_edges(compiled(message, reduce, "lookups")) >= IN * OUT


@pytest.mark.parametrize("name", ON_EDGES)
def test_products_that_are_not_of_sources_are_sorted_by_relation_on_edges(name: str) -> None:
    message = ON_EDGES[name]
    assert_same(message, EDGES, "sum", CAPTURED, **given_of(EDGES))
    made = compiled(message, "sum")
    assert made.by_relation is None
    assert "relation_matmul" in {name_of(node) for node in made.graph.nodes}
    assert widest_of_edges(made) <= IN
    assert made.reductions[0].reason in ("", "no step for relation_matmul")


def test_matrices_may_be_parameters_of_the_call() -> None:
    def message(u: Tensor, k: Tensor, w: Tensor) -> Tensor:
        return einsum("ef,efo->eo", u, w[k])

    given = given_of(EDGES)
    assert_same(message, EDGES, "sum", src=given["src"], edge=given["edge"][:1], params=[W])


def test_what_does_not_pay_or_fit_is_looked_up_as_it_is_written() -> None:
    small, many = tensor(RELATIONS, 2, 2), tensor(RELATIONS, 9, 3, OUT)
    messages = {
        "no more numbers than the row and the result": lambda u, v, k, e: einsum(
            "ef,efo->eo", u[:, :2], small[k]
        ),
        "many heads": lambda u, v, k, e: einsum("ehf,ehfo->eho", u[:, None, :3].expand(-1, 9, 3), many[k]),
        "by_row": lambda u, v, k, e: einsum("ef,efo->eo", u, W.index_select(0, k)),
    }
    for message in messages.values():
        assert_same(message, EDGES, "sum", [small, many, W], **given_of(EDGES))
        made = compiled(message, "sum")
        assert made.by_relation is None
        assert "relation_matmul" not in {name_of(node) for node in made.graph.nodes}


def test_a_row_that_no_edge_reads_has_no_gradient_where_the_slope_is_infinite() -> None:
    edges = Edges(EDGES.indptr, EDGES.other, EDGES.num_other + 1)
    rows = torch.rand(edges.num_other, IN, dtype=torch.float64) + 0.1
    rows[-1] = 0.0
    given = {"src": [rows.requires_grad_()], "edge": [kinds(edges)]}
    assert_same(lambda u, k: einsum("ef,efo->eo", u.sqrt(), W[k]), edges, "sum", [W], **given)


def test_other_relations_of_the_same_block_have_pairs_of_their_own() -> None:
    draw = torch.Generator().manual_seed(0)
    block = Block(torch.arange(41) * 50, torch.randint(0, 40, (2000,), generator=draw).int(), num_src=40)
    rows, table = (torch.randn(*s, generator=draw, dtype=torch.float64) for s in ((40, 32), (3, 32, 8)))

    def message(h: Tensor, kind: Tensor) -> Tensor:
        return torch.bmm(h.unsqueeze(1), table[kind]).squeeze(1)

    for _ in range(2):
        kind = torch.randint(0, 3, (2000,), generator=draw)
        want = message(rows[block.indices.long()], kind).view(40, 50, 8).sum(1)
        have = block.propagate(message, src=(rows,), edge=(kind,), reduce="sum")
        torch.testing.assert_close(have, want)
