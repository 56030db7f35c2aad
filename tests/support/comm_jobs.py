"""What ranks do in the tests of `weft.comm`: importable by name, so that other processes find it."""

import time
from typing import Any

import torch
from torch import Tensor

from weft.comm.collectives import all_reduce_sum
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.plan import HaloPlan, spread
from weft.comm.rows import GatheredRows
from weft.errors import GraphError, InputError, WorkerLost
from weft.graph import Graph
from weft.graph.parts.shard import Shard, make_shards


def moves(group: Group) -> dict[str, Any]:
    """Send uneven and empty blocks of several dtypes, in the foreground and the background."""
    # Rank r sends s copies of 10 r + s to rank s.
    send = list(range(group.size))
    recv = [group.rank] * group.size
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
        rows = torch.cat([torch.full((s, 2), 10 * group.rank + s) for s in send]).to(dtype)
        expected = torch.cat([torch.full((group.rank, 2), 10 * r + group.rank) for r in send]).to(dtype)
        assert torch.equal(group.all_to_all(rows, send, recv).wait(), expected), dtype
    first = group.all_to_all(rows, send, recv, background=True, label=Label("halo", 1))
    second = group.all_to_all(rows + 1, send, recv, background=True)
    total = group.all_reduce(torch.tensor([group.rank + 1.0])).wait()
    assert torch.equal(second.wait(), expected + 1)
    assert torch.equal(first.wait(), expected)
    assert torch.equal(first.wait(), expected), "a second wait gives the same"
    assert float(total) == group.size * (group.size + 1) / 2
    empty = group.all_to_all(torch.empty(0, 3), [0] * group.size, [0] * group.size).wait()
    assert empty.shape == (0, 3)
    return group.ledger.snapshot()


def words(group: Group) -> None:
    """Gather, reduce, scatter, broadcast; speak JSON; meet."""
    counts = [r + 1 for r in range(group.size)]
    counts[-1] = 0
    own = torch.full((counts[group.rank], 2), group.rank)
    everything = torch.cat([torch.full((count, 2), r) for r, count in enumerate(counts)])
    assert torch.equal(group.all_gather(own, counts).wait(), everything)
    summed = group.reduce_scatter(everything + group.rank, counts).wait()
    assert torch.equal(summed, group.size * own + sum(range(group.size)))
    assert summed.dtype == torch.int64
    assert group.all_gather(torch.tensor([group.rank])).wait().tolist() == list(range(group.size))
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert torch.equal(group.all_reduce(turned).wait(), group.size * torch.arange(6.0).reshape(2, 3).t())
    assert torch.equal(turned, group.size * torch.arange(6.0).reshape(2, 3).t()), "in place, strides or not"
    assert int(group.all_reduce(torch.tensor(group.rank), "max").wait()) == group.size - 1
    assert group.broadcast(torch.tensor([group.rank]), root=group.size - 1).item() == group.size - 1
    for turn in range(3):
        said = group.all_gather_json({"rank": group.rank, "turn": turn, "text": "é\n"})
        assert said == [{"rank": r, "turn": turn, "text": "é\n"} for r in range(group.size)]
    group.agree(recipe={"a": [1, 2]}, version="0.1")
    group.barrier()
    group.all_to_all(torch.zeros(group.size), [1] * group.size, [1] * group.size, background=True)
    group.drain()


def grid(group: Group) -> list[int]:
    """Sum ranks along rows and columns of a 2 × 2 grid."""
    row, column = divmod(group.rank, 2)
    rows = group.subgroup([2 * row, 2 * row + 1])
    columns = group.subgroup([column, column + 2])
    mine = group.subgroup([group.rank])
    assert (rows.rank, columns.rank, mine.size) == (column, row, 1)
    assert rows.all_gather_json(group.rank) == rows.ranks
    assert columns.all_gather_json(group.rank) == columns.ranks
    sums = [int(each.all_reduce(torch.tensor(group.rank)).wait()) for each in (rows, columns, mine)]
    held = columns.all_gather(torch.tensor([group.rank]), background=True).wait()
    assert held.tolist() == columns.ranks
    assert {volume["peer"] for volume in group.ledger.snapshot()["volumes"]} <= {*rows.ranks, *columns.ranks}
    return sums


def disagree(group: Group) -> str:
    """Hold another partition on the last rank."""
    try:
        group.agree(recipe="same", partition="other" if group.rank == group.size - 1 else "one")
    except InputError as error:
        return str(error)
    return "agreed"


def adjoints(group: Group) -> None:
    """Check ⟨E x, y⟩ = ⟨x, E y⟩ over all ranks, also of no rows."""
    for rows in (5, 0):
        x, y = numbers(group, rows, 0).requires_grad_(), numbers(group, rows, 1)
        out = all_reduce_sum(group, x)
        assert out.shape == y.shape
        out.backward(y)
        assert x.grad is not None
        inner = torch.stack([(out.detach() * y).sum(), (x.detach() * x.grad).sum()])
        left, right = group.all_reduce(inner).wait().tolist()
        assert abs(left - right) < 1e-12 * max(1.0, abs(left))
    x = torch.ones(3, 2, requires_grad=True)
    all_reduce_sum(group, x).sum().backward()  # an expanded gradient: strides of zero
    assert torch.equal(x.grad, torch.full((3, 2), float(group.size)))


def numbers(group: Group, rows: int, salt: int, width: int = 2) -> Tensor:
    """Return random rows, others on every rank."""
    generator = torch.Generator().manual_seed(100 * group.rank + salt)
    return torch.randn(rows, width, dtype=torch.float64, generator=generator)


def whole_graph(kind: str) -> Graph:
    """Return a directed graph: a random one, one whose last third is isolated, or one with a hub."""
    generator = torch.Generator().manual_seed(3)
    nodes = 30
    reach = nodes if kind != "isolated" else 20
    edges = torch.randint(0, reach, (2, 90), generator=generator)
    if kind == "hub":
        edges = torch.cat(
            [edges, torch.stack([torch.arange(nodes), torch.zeros(nodes, dtype=torch.int64)])], 1
        )
    return Graph.from_edges(edges, num_nodes=nodes)


def halo(group: Group, kind: str, parts_a_rank: int, scattered: bool) -> list[int]:
    """Make a plan, pull and push rows, and compare with the whole graph; then a subset of it."""
    graph = whole_graph(kind)
    num_parts = group.size * parts_a_rank
    parts = torch.arange(30) * num_parts // 30
    if scattered:
        parts = torch.arange(30) % num_parts
    # Ranks hold parts in a turned round, so that halo rows do not arrive in halo order.
    ranks = [part % group.size for part in range(num_parts)] if scattered else spread(num_parts, group.size)
    shards = make_shards(graph, parts.int())
    shard = Shard.merge([shards[part] for part in range(num_parts) if ranks[part] == group.rank])
    plan = HaloPlan.make(shard, group, ranks)
    assert torch.equal(plan.halo_ids, shard.halo_ids)
    assert torch.equal(plan.send_ids, shard.node_ids[plan.send_rows])
    check_plan(group, plan, shard)
    keep = plan.halo_ids % 3 != 0, plan.send_ids % 3 != 0
    part = plan.select(*keep)
    assert torch.equal(part.halo_ids, shard.halo_ids[keep[0]])
    check_plan(group, part, shard)
    none = plan.select(torch.zeros_like(keep[0]), torch.zeros_like(keep[1]))
    check_plan(group, none, shard)
    return plan.send_counts


def check_plan(group: Group, plan: HaloPlan, shard: Shard) -> None:
    """Compare pulled rows with a table of all, and pull with the way back by the adjoint identity."""
    table = torch.randn(
        shard.num_nodes, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    x = table[shard.node_ids]
    pulled = plan.pull(group, x, label=Label("halo", 0)).wait()
    assert torch.equal(pulled, table[plan.halo_ids])
    late = plan.pull(group, x, background=True)
    y = torch.randn(pulled.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(group.rank))
    back, home = plan.reversed(), plan.sum_at_owner
    pushed = back.pull(group, y, label=Label("halo", 0, "backward")).then(home).wait()
    assert pushed.shape == x.shape
    left, right = group.all_reduce(torch.stack([(pulled * y).sum(), (x * pushed).sum()])).wait().tolist()
    assert abs(left - right) < 1e-10
    counted = back.pull(group, torch.ones(len(y), dtype=torch.int64)).then(home).wait()
    assert torch.equal(counted, torch.bincount(plan.send_rows, minlength=plan.num_rows))
    assert torch.equal(late.wait(), pulled)


def asked_rows(group: Group, kind: str, turn: int) -> Tensor:
    """Return the ids that a rank asks for: repeated ones, of all ranks, of one alone, or none."""
    generator = torch.Generator().manual_seed(17 * turn + group.rank)
    ids = torch.randint(30, (8 + 3 * group.rank,), generator=generator).repeat(2)
    if kind == "one holder":
        return ids % 3  # which the first rank holds
    if kind == "some ask nothing":
        return ids if group.rank == group.size - 1 else ids[:0]
    return ids[:0] if kind == "nobody asks" else ids


def rows_by_id(group: Group) -> list[dict[str, Any]]:
    """Gather rows by id, where ranks hold them in several ways; return what travelled for all rows."""
    return [held_rows(group, *layout) for layout in ((2, False), (1, True))]


def held_rows(group: Group, parts_a_rank: int, scattered: bool) -> dict[str, Any]:
    """Compare outputs and gradients with an index of the whole table."""
    num_parts = group.size * parts_a_rank
    parts = torch.arange(30) % num_parts if scattered else torch.arange(30) * num_parts // 31
    if group.size > 2:
        parts[parts == 2] = 0  # a rank may hold no row at all
    held = (parts // parts_a_rank == group.rank).nonzero().flatten()
    gathered, told = GatheredRows(group, held), GatheredRows(group, held, owner=parts // parts_a_rank)
    assert torch.equal(gathered.owner.long(), told.owner)
    for kind in ("repeated", "one holder", "some ask nothing", "nobody asks"):
        for shape in ((5,), (2, 3)):
            for turn in range(2):
                ids = asked_rows(group, kind, turn)
                check_rows(group, gathered, ids, ids, shape)
                check_rows(group, told, told.plan(ids), ids, shape)
    group.ledger.clear()
    ids = torch.arange(30).repeat(3)
    plan = gathered.plan(ids)
    planned = group.ledger.snapshot(clear=True)
    h = torch.ones(len(held), 4, requires_grad=True)
    gathered(h, plan).sum().backward()
    return {"held": len(held), "planned": planned, "moved": group.ledger.snapshot()}


def check_rows(group: Group, gathered: GatheredRows, asked: Any, ids: Tensor, shape: tuple[int, ...]) -> None:
    """Hold rows by id to a plain index, in outputs, in gradients summed over ranks, and in bits."""
    table = torch.randn(30, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    whole = table.clone().requires_grad_()
    weight = [
        torch.randn(200, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(r))
        for r in range(group.size)
    ]
    sizes = group.all_gather(torch.tensor([len(ids)])).wait().tolist()
    everybody = torch.split(group.all_gather(ids, sizes).wait(), sizes)
    sum(
        ((whole[each] * w[: len(each)]).sum() for each, w in zip(everybody, weight)), whole.sum() * 0
    ).backward()
    found = []
    for _ in range(2):
        h = table[gathered.node_ids].requires_grad_()
        rows = gathered(h, asked)
        assert torch.equal(rows, table[ids])
        (rows * weight[group.rank][: len(ids)]).sum().backward()
        found.append(h.grad)
    assert torch.equal(*found), "the same bits twice"
    torch.testing.assert_close(found[0], whole.grad[gathered.node_ids], rtol=1e-12, atol=1e-12)


def unknown_rows(group: Group) -> list[str]:
    """Ask for ids that are no nodes, that nobody holds or another does; bring fewer rows than nodes."""
    held = torch.arange(10 * group.rank, 10 * group.rank + 10)
    size = 10 * group.size
    nobody, wrong = torch.full((size,), -1), torch.full((size,), group.rank)
    said = []
    for owner, ids in ((None, [size]), (None, [-1]), (nobody, [3]), (wrong, [size - 1, 0])):
        try:
            GatheredRows(group, held, owner=owner).plan(torch.tensor(ids))
        except GraphError as error:
            said.append(str(error))
    try:
        GatheredRows(group, held)(torch.zeros(9, 1), torch.tensor([0]))
    except GraphError as error:
        said.append(str(error))
    return said


def foreign_shard(group: Group, how: str) -> str:
    """Bring a shard of another partition on the last rank, or another map of parts to ranks."""
    graph = whole_graph("random")
    other = group.rank == group.size - 1
    parts = (torch.arange(30) + (other and how == "sizes")) * group.size // 31
    if other and how == "nodes":
        parts = parts[torch.arange(29, -1, -1)]  # as many nodes as the others expect, but other ones
        parts = 1 - parts if int((parts == 1).sum()) != 14 else parts
    try:
        shard = make_shards(graph, parts.int())[group.rank]
        HaloPlan.make(shard, group, [1, 0] if other and how == "map" else None)
    except GraphError as error:
        return str(error)
    except WorkerLost as error:
        return f"lost: {error}"
    return "accepted"


def late(group: Group) -> tuple[int, str]:
    """Let the last rank come late to a collective, alive all the time."""
    group.barrier()
    if group.rank == group.size - 1:
        time.sleep(12)  # past the bound and the time in which the others look for the guilty one
        return group.rank, ""
    try:
        group.barrier()
    except WorkerLost as error:
        return error.rank, str(error)
    return -2, "no error"


def raises(group: Group) -> tuple[int, str]:
    """Raise on the last rank while the others wait for it; they must name it."""
    group.barrier()
    try:
        if group.rank == group.size - 1:
            group.abandon(ValueError("bad weights"))
            return group.rank, "guilty"
        group.barrier()
    except WorkerLost as error:
        return error.rank, str(error)
    return -2, "no error"
