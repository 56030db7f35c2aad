"""Any function of an edge: at once and in chunks, forward and backward, against plain torch."""

from typing import Any

import pytest
import torch
from generated_graphs import graphs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from weft.errors import GraphError, InputError
from weft.graph import Block, Graph
from weft.graph.message import compiled
from weft.graph.message import propagate as module
from weft.graph.message.propagate import contribute
from weft.graph.message.reduction import Propagation

REDUCTIONS = ["sum", "mean", "max", "min", "softmax"]


@pytest.fixture(params=[1 << 40, 40, 1], ids=["at once", "in chunks", "edge by edge"])
def chunk_elements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", request.param)
    return int(request.param)


def hub_graph() -> Graph:
    """20 nodes, 150 edges, 80 of them into node 3; nodes 18 and 19 have none."""
    make = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 18, (2, 150), generator=make)
    edges[1, :80] = 3
    return Graph.from_edges(edges, num_nodes=20)


def inputs(graph: Graph) -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(1)
    shapes = {
        "src": (graph.num_nodes, 3),
        "dst": (graph.num_nodes, 3),
        "edge": (graph.num_edges,),
        "weight": (6, 4),
    }
    return {
        name: torch.randn(shape, dtype=torch.float64, generator=make).requires_grad_()
        for name, shape in shapes.items()
    }


def message(softmax: bool) -> Any:
    def made(u: Tensor, v: Tensor, edge: Tensor, weight: Tensor) -> Any:
        m = torch.relu(torch.cat([u, v], 1) @ weight) * edge.unsqueeze(1)
        return (m[:, :2], m.reshape(-1, 2, 2)) if softmax else m

    return made


def expected(graph: Graph, given: dict[str, Tensor], reduce: str) -> Tensor:
    """The same with every edge's message in memory and a loop over the rows."""
    block = graph.block()
    src, dst = block.edge_index()
    made = message(reduce == "softmax")(given["src"][src], given["dst"][dst], given["edge"], given["weight"])
    rows = []
    for v in range(graph.num_nodes):
        part = slice(int(block.indptr[v]), int(block.indptr[v + 1]))
        if reduce == "softmax":
            score, value = made[0][part], made[1][part]
            rows.append((torch.softmax(score, 0).unsqueeze(-1) * value).sum(0))
        elif part.start == part.stop:
            rows.append(torch.zeros_like(made[0]) if len(made) else torch.zeros(4, dtype=torch.float64))
        elif reduce in ("sum", "mean"):
            rows.append(getattr(made[part], reduce)(0))
        else:
            rows.append(getattr(made[part], f"a{reduce}")(0))  # amax shares the gradient among ties
    return torch.stack(rows)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_values_and_gradients_equal_plain_torch(chunk_elements: int, reduce: str) -> None:
    graph = hub_graph()
    ours, plain = inputs(graph), inputs(graph)
    out = graph.block().propagate(
        message(reduce == "softmax"),
        src=[ours["src"]],
        dst=[ours["dst"]],
        edge=[ours["edge"]],
        params=[ours["weight"]],
        reduce=reduce,
    )
    wanted = expected(graph, plain, reduce)
    assert torch.allclose(out, wanted)
    factor = torch.linspace(-1, 2, out.numel(), dtype=torch.float64).reshape(out.shape)
    (out * factor).sum().backward()
    (wanted * factor).sum().backward()
    for name, tensor in ours.items():
        assert tensor.grad is not None
        assert torch.allclose(tensor.grad, plain[name].grad), name  # type: ignore[arg-type]


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_gradients_pass_gradcheck(chunk_elements: int, reduce: str) -> None:
    graph = Graph.from_edges([[0, 1, 2, 0, 1], [1, 2, 2, 2, 2]], num_nodes=4)
    given = inputs(graph)

    def function(*tensors: Tensor) -> Tensor:
        u, v, e, w = tensors
        made = message(reduce == "softmax")
        return graph.block().propagate(made, [u], [v], [e], reduce, [w])

    assert torch.autograd.gradcheck(function, tuple(given.values()))


def test_parameters_of_a_module_get_their_gradients_without_being_named(chunk_elements: int) -> None:
    graph = hub_graph()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    h = inputs(graph)["src"]
    out = graph.block().propagate(lambda u: network(u), src=[h])
    src, dst = graph.edge_index
    plain = torch.zeros(20, 2, dtype=torch.float64).index_add(0, dst, network(h[src]))
    assert torch.allclose(out, plain)
    for ours, theirs in zip(
        torch.autograd.grad(out.square().sum(), [h, *network.parameters()]),
        torch.autograd.grad(plain.square().sum(), [h, *network.parameters()]),
    ):
        assert torch.allclose(ours, theirs)


def test_parameters_may_be_results_of_other_operations(chunk_elements: int) -> None:
    graph = hub_graph()
    base = torch.ones(3, dtype=torch.float64, requires_grad=True)
    h = inputs(graph)["src"].detach()
    graph.block().propagate(lambda u, w: u * w, src=[h], params=[base * 2]).sum().backward()
    assert base.grad is not None
    assert torch.allclose(base.grad, 2 * (graph.out_degree().double() @ h))


def test_a_hidden_tensor_with_a_history_is_refused_on_graphs_of_any_size(chunk_elements: int) -> None:
    h = torch.ones(20, 3, requires_grad=True)
    hidden = h * 2
    with pytest.raises(GraphError, match="pass it in src, dst, edge or params"):
        hub_graph().block().propagate(lambda u: u * hidden.sum(), src=[h])


@pytest.mark.parametrize("reduce", ["sum", "mean", "softmax"])
def test_many_chunks_add_up_in_32_bits_what_is_stored_in_16(
    monkeypatch: pytest.MonkeyPatch, reduce: str
) -> None:
    edges = torch.stack([torch.zeros(2000, dtype=torch.int64), torch.arange(2000) % 2])
    block = Graph.from_edges(edges, num_nodes=2).block()
    found = []
    for size in (1 << 40, 3):
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", size)
        h = torch.tensor([[1.0], [2.0]], dtype=torch.bfloat16, requires_grad=True)
        out = block.propagate(
            lambda u: (u[:, 0] * 0.25, u) if reduce == "softmax" else u, src=[h], reduce=reduce
        )
        out.sum().backward()
        assert h.grad is not None
        found.append((out.detach().float(), h.grad.float()))
    for whole, chunked in zip(*found):
        torch.testing.assert_close(chunked, whole, rtol=0.01, atol=0.01)


def test_random_messages_are_the_same_in_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 30)
    graph, h = hub_graph(), torch.ones(20, 3, requires_grad=True)
    torch.manual_seed(5)
    out = graph.block().propagate(lambda u: nn.functional.dropout(u, 0.5), src=[h])
    before = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(torch.get_rng_state(), before), "backward draws nothing of its own"
    assert h.grad is not None
    # h is one everywhere and the messages are linear in it: the sum of the output is the sum of the gradient
    assert torch.allclose(h.grad.sum(), out.detach().sum())


def test_nothing_of_the_size_of_edges_is_kept_for_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 60)
    graph, given = hub_graph(), inputs(hub_graph())
    largest = 0

    def note(tensor: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = graph.block().propagate(lambda u, v: torch.exp(u * v), [given["src"]], [given["dst"]])
    out.sum().backward()
    assert 0 < largest <= graph.num_nodes * 3 < graph.num_edges * 3


def test_messages_of_one_chunk_never_exceed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 60)
    graph, sizes = hub_graph(), []
    with torch.no_grad():
        how = Propagation(lambda u: sizes.append(len(u)) or u, src=[torch.ones(20, 3)])
        module.in_chunks(module.ChunkPlan.of(graph.block(), how), how)
    assert max(sizes) <= 20
    assert sum(sizes) == graph.num_edges


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_ties_across_the_cuts_of_a_hub_share_the_gradient(chunk_elements: int, reduce: str) -> None:
    graph = Graph.from_edges([[0, 1, 2, 3, 1], [4, 4, 4, 4, 4]], num_nodes=5)
    sign = 1 if reduce == "max" else -1
    h = (sign * torch.tensor([[5.0], [5.0], [1.0], [5.0], [9.0]])).requires_grad_()
    graph.block().propagate(lambda u: u, src=[h], reduce=reduce).sum().backward()
    assert h.grad is not None
    assert h.grad.flatten().tolist() == [0.25, 0.5, 0, 0.25, 0]


def test_a_masked_score_gives_its_edge_no_weight(chunk_elements: int) -> None:
    graph = Graph.from_edges([[0, 1, 2], [3, 3, 3]], num_nodes=4)
    h = torch.tensor([[1.0], [2.0], [4.0], [0.0]])
    out = graph.block().propagate(
        lambda u: (torch.where(u[:, 0] < 2, -torch.inf, 0.0), u), src=[h], reduce="softmax"
    )
    assert out.flatten().tolist() == [0, 0, 0, 3]


def test_wrong_rows_and_unknown_reductions_are_refused() -> None:
    block = hub_graph().block()
    with pytest.raises(GraphError, match="max, mean, min, softmax, sum; got 'median'"):
        block.propagate(lambda u: u, src=[torch.ones(20, 1)], reduce="median")
    with pytest.raises(GraphError, match=r"dst tensors need 20 rows, got 19; pass block.dst\(h\)"):
        block.propagate(lambda v: v, dst=[torch.ones(19, 1)])
    with pytest.raises(GraphError, match="edge tensors need 150 rows, got 3"):
        block.propagate(lambda e: e, edge=[torch.ones(3, 1)])
    with pytest.raises(GraphError, match="expected 20 rows"):
        block.propagate(lambda u: u, src=[torch.ones(19, 1)])
    with pytest.raises(GraphError, match=r"score \[E\] or \[E, H\] and value"):
        block.propagate(lambda u: (u, u[:, 0]), src=[torch.ones(20, 2)], reduce="softmax")


@settings(deadline=None, max_examples=60)
@given(graph=graphs(), reduce=st.sampled_from(["sum", "mean", "max", "min"]), chunk=st.integers(1, 60))
def test_a_copied_message_is_an_aggregate(graph: Graph, reduce: str, chunk: int) -> None:
    h = torch.randn(graph.num_nodes, 3, generator=torch.Generator().manual_seed(0)).relu()
    before, module.CHUNK_ELEMENTS = module.CHUNK_ELEMENTS, chunk
    try:
        ours, plain = h.clone().requires_grad_(), h.clone().requires_grad_()
        out = graph.block().propagate(lambda u: u, src=[ours], reduce=reduce)
        wanted = graph.block().aggregate(plain, reduce)
        assert torch.allclose(out, wanted, atol=1e-6)
        out.square().sum().backward()
        wanted.square().sum().backward()
        assert torch.allclose(ours.grad, plain.grad, atol=1e-5)  # type: ignore[arg-type]
    finally:
        module.CHUNK_ELEMENTS = before


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_nan_beats_every_number(reduce: str, chunk_elements: int) -> None:
    graph = Graph.from_edges([[0, 1, 2, 3, 4], [0, 0, 0, 0, 1]], num_nodes=5)
    x = torch.tensor([[1.0], [torch.nan], [3.0], [torch.nan], [4.0]], requires_grad=True)
    out = graph.block().propagate(lambda u: u, src=[x], reduce=reduce)
    assert out.isnan().flatten().tolist() == [True, False, False, False, False]
    assert out[1:].flatten().tolist() == [4, 0, 0, 0]
    out.sum().backward()
    assert x.grad is not None
    assert x.grad.flatten().tolist() == [0, 0.5, 0, 0.5, 1]


def test_a_row_whose_scores_are_all_masked_gives_zero_and_no_gradient(chunk_elements: int) -> None:
    graph = Graph.from_edges([[0, 1, 2], [0, 0, 1]], num_nodes=3)
    score = torch.tensor([-torch.inf, -torch.inf, 2.0], requires_grad=True)
    x = torch.ones(3, 2, requires_grad=True)
    out = graph.block().propagate(lambda u, s: (s, u), src=[x], edge=[score], reduce="softmax")
    assert out.tolist() == [[0, 0], [1, 1], [0, 0]]
    out.sum().backward()
    assert score.grad is not None
    assert x.grad is not None
    assert score.grad.tolist() == [0, 0, 0]
    assert x.grad.tolist() == [[0, 0], [0, 0], [1, 1]]


ENDS = torch.tensor([[0, 1, 2, 3, 3, 3, 4, 1, 0], [0, 0, 0, 0, 2, 2, 2, 3, 3]])
ROWS = 5


def block_of(chosen: Tensor) -> Block:
    """Return the edges that a mask keeps; row 1 and row 4 have none."""
    src, dst = ENDS[:, chosen]
    counts = torch.bincount(dst, minlength=ROWS)
    return Block(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), src.int(), num_src=ROWS)


def tied(reduce: str, u: Tensor, v: Tensor, weight: Tensor) -> Any:
    """Return a message with ties (3 → 2 twice), or a score and a value."""
    made = (u @ weight) * v
    return (made[:, :2], made.reshape(-1, 2, 2)) if reduce == "softmax" else made


def merged(reduce: str, parts: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Return the whole from its parts by the definition."""
    values = torch.stack([value for value, _ in parts])
    if reduce == "sum":
        return values.sum(0)
    beside = torch.stack([each for _, each in parts if each is not None])
    if reduce == "softmax":
        share = torch.softmax(beside.where(beside > -torch.inf, -1e9), 0)
        return (values * share[..., None]).sum(0)
    lowest = -torch.inf if reduce == "max" else torch.inf
    masked = values.where(beside > 0, lowest)
    top = masked.amax(0) if reduce == "max" else masked.amin(0)
    attaining = beside * (masked == top)
    share = attaining / attaining.sum(0).clamp(min=1)
    return (values * share).sum(0)


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "softmax"])
@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_what_parts_of_the_edges_contribute_merges_into_the_whole(
    reduce: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(3)
    shapes = ((ROWS, 3), (ROWS, 4), (3, 4))
    leaves = [torch.randn(s, dtype=torch.float64, generator=draw).requires_grad_() for s in shapes]
    h, own, weight = leaves

    def run(u: Tensor, v: Tensor, w: Tensor) -> Any:
        return tied(reduce, u, v, w)

    every = torch.ones(ENDS.shape[1]).bool()
    reference = block_of(every).propagate(run, src=[h], dst=[own], reduce=reduce, params=[weight])
    towards = torch.randn(reference.shape, dtype=torch.float64, generator=draw)
    expected = torch.autograd.grad(reference, leaves, towards)

    monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    parts = []
    for turn in range(3):
        part = block_of(torch.arange(ENDS.shape[1]) % 3 == turn)
        parts.append(contribute(part, Propagation(run, [h], [own], [], reduce, [weight])))
    found = merged(reduce, parts)
    assert torch.allclose(found, reference, atol=1e-12)
    for made, wanted in zip(torch.autograd.grad(found, leaves, towards), expected):
        assert torch.allclose(made, wanted, atol=1e-12)


def test_no_edges_contribute_nothing() -> None:
    none = block_of(torch.zeros(ENDS.shape[1]).bool())
    h = torch.ones(ROWS, 2)
    value, count = contribute(none, Propagation(lambda u: u, [h], reduce="max"))
    assert (tuple(value.shape), count is not None and int(count.sum())) == ((ROWS, 2), 0)
    value, mass = contribute(none, Propagation(lambda u: (u[:, 0], u), [h], reduce="softmax"))
    assert mass is not None
    assert bool((mass == -torch.inf).all())


WRONG: dict[str, tuple[Any, str]] = {
    "None": (lambda u: None, "None"),
    "an array": (lambda u: u.detach().numpy(), "ndarray"),
    "a number": (lambda u: 3.0, "float"),
    "a scalar": (lambda u: u.sum(), r"a tensor of shape \[\]"),
    "a tuple": (lambda u: (u, u), r"tuple of a tensor of shape \[150, 3\], a tensor"),
    "a list of one": (lambda u: [u], r"list of a tensor of shape \[150, 3\]"),
    "too few rows": (lambda u: u[:2], r"a tensor of shape \[2, 3\]"),
    "a row for all": (lambda u: u.mean(0), r"a tensor of shape \[3\]"),
}


@pytest.mark.parametrize("compiles", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", WRONG)
def test_a_message_that_gives_no_row_per_edge_is_told_so(
    name: str, reduce: str, compiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "LEAST_NUMBERS", 0 if compiles else 1 << 40)
    graph, (wrong, got) = hub_graph(), WRONG[name]
    line = rf"^message: expected one row per edge, \[150, …\], got {got}"
    with pytest.raises(InputError, match=line):
        graph.block().propagate(wrong, src=[inputs(graph)["src"]], reduce=reduce)


@pytest.mark.parametrize("wrong", [lambda u: u, lambda u: (u,), lambda u: (u[:2, 0], u[:2]), lambda u: None])
def test_a_softmax_message_that_gives_no_score_and_value_is_told_so(wrong: Any) -> None:
    graph = hub_graph()
    with pytest.raises(InputError, match=r"^message: expected \(score, value\), each one row per edge"):
        graph.block().propagate(wrong, src=[inputs(graph)["src"]], reduce="softmax")


@pytest.mark.parametrize("wrong", [lambda u: None, lambda u: u[:1], lambda u: (u, u)])
def test_a_wrong_message_in_chunks_is_told_of_its_chunk(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 40)
    graph = hub_graph()
    with pytest.raises(InputError, match=r"^message: expected one row per edge, "):
        graph.block().propagate(wrong, src=[inputs(graph)["src"]])
