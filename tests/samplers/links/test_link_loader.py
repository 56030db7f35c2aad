"""Batches of links in PyG's words, held to PyG's own."""

from typing import Any

import pytest
import torch
from link_data import WRITES, fields, plain, typed
from torch import Tensor, nn

from weft.errors import InputError
from weft.graph import Graph
from weft.samplers import LinkBatch, LinkNeighborLoader

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv


@pytest.mark.parametrize("mode", ["binary", {"mode": "triplet", "amount": 4}])
@pytest.mark.parametrize("kind", [None, WRITES])
def test_negatives_are_no_links_and_links_are_hidden_from_their_batch(kind: Any, mode: Any) -> None:
    graph = Graph.from_pyg(plain() if kind is None else typed())
    there = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    shown = 0
    for hide in (True, False):
        loader = LinkNeighborLoader(graph, [-1, 4], kind, neg_sampling=mode, batch_size=16, hide=hide)
        for batch in loader:
            seeds, count = batch.nodes.seeds, len(batch.input_id)
            src, dst = seeds[batch.src], seeds[batch.dst]
            if batch.negative is not None:
                false = zip(src.repeat_interleave(4).tolist(), seeds[batch.negative].flatten().tolist())
            else:
                false = zip(src[count:].tolist(), dst[count:].tolist())
            drawn = set(false)
            assert drawn
            assert not drawn & there
            if kind is not None:
                ranges = [graph.rows_of_type(end) for end in ("author", "paper")]
                assert all(a < ranges[0].stop and ranges[1].start <= b for a, b in drawn)
            links = {*zip(src[:count].tolist(), dst[:count].tolist())}
            links |= {(b, a) for a, b in links}
            data = batch.to_pyg()
            block = batch.blocks[0]
            flows = {
                *zip(block.src_ids[block.indices.long()].tolist(), block.dst_ids[block.edge_dst].tolist())
            }
            shown += len(flows & links) if not hide else 0
            assert not (hide and flows & links)
            assert sum(store.num_edges for store in data.edge_stores) == block.num_edges
    assert shown  # there was something to hide


def test_random_links_have_random_sources_and_targets_by_weight() -> None:
    data = plain()
    weight = torch.zeros(40)
    weight[5:9] = 1
    chosen = {"mode": "binary", "amount": 1, "src_weight": weight, "dst_weight": weight.flip(0)}
    batch = next(iter(LinkNeighborLoader(data, [2], neg_sampling=chosen, batch_size=240, exclude=False)))
    seeds = batch.nodes.seeds
    assert set(seeds[batch.src[240:]].tolist()) == {5, 6, 7, 8}
    assert set(seeds[batch.dst[240:]].tolist()) == {31, 32, 33, 34}
    joined = {*zip(batch.src[240:].tolist(), batch.dst[240:].tolist())}
    assert len(joined) == 16, "a source says nothing of its target"
    free = next(iter(LinkNeighborLoader(data, [2], neg_sampling_ratio=2.0, batch_size=240)))
    assert len(torch.unique(free.src[240:])) > 35


def test_each_of_the_random_links_beside_a_link_is_drawn_by_itself() -> None:
    one = {"mode": "binary", "amount": 4, "src_weight": torch.eye(40)[0]}  # all leave node 0
    batch = next(iter(LinkNeighborLoader(plain(), [2], neg_sampling=one, batch_size=240, exclude=False)))
    targets = batch.dst[240:].reshape(4, 240)
    for other in range(1, 4):
        assert float((targets[0] == targets[other]).double().mean()) < 0.15, "by chance one in 40"


def test_negatives_of_triplets_go_by_weight_and_change_with_the_epoch() -> None:
    weight = torch.zeros(40)
    weight[5:9] = 1
    chosen = {"mode": "triplet", "amount": 2, "dst_weight": weight}
    loader = LinkNeighborLoader(plain(), [2], neg_sampling=chosen, batch_size=240, exclude=False)
    epochs = [batch.nodes.seeds[batch.negative] for batch in (loader.batch(0, 0), loader.batch(1, 0))]
    assert set(epochs[0].flatten().tolist()) == {5, 6, 7, 8}
    assert not torch.equal(*epochs)


def test_neighbours_are_drawn_by_weight_and_with_replacement_where_that_is_asked_for() -> None:
    # Three edges into node 0; of those that weigh anything there is one.
    graph = Graph.from_edges([[1, 2, 3], [0, 0, 0]], edge_weight=[0.0, 1.0, 0.0])

    def drawn(**options: Any) -> Tensor:
        block = LinkNeighborLoader(graph, [3], [[0], [0]], hide=False, **options).batch(0, 0).blocks[0]
        return block.src_ids[block.indices.long()]

    assert sorted(drawn().tolist()) == [1, 2, 3]
    assert set(drawn(weight_attr="edge_weight").tolist()) == {2}
    again = {tuple(sorted(drawn(replace=True, seed=seed).tolist())) for seed in range(20)}
    assert any(len(set(sources)) < 3 == len(sources) for sources in again)


def test_links_see_nothing_later_than_themselves() -> None:
    graph = Graph.from_pyg(plain())
    times = graph.given_edge_data()["time"]
    options: dict[str, Any] = {"time_attr": "time", "edge_label_time": times, "neg_sampling": "triplet"}
    edges = 0
    for batch in LinkNeighborLoader(graph, [-1, -1], batch_size=20, disjoint=True, **options):
        data = batch.to_pyg()
        time = torch.zeros(len(batch.nodes.seeds), dtype=times.dtype)
        for rows in (batch.src, batch.dst, batch.negative.flatten()):
            assert bool(((time[rows] == 0) | (time[rows] == batch.time)).all())
            time[rows] = batch.time
        assert bool((times[data.e_id] <= time[data.batch[data.edge_index[1]]]).all())
        edges += len(data.e_id)
    assert edges


def test_batches_are_the_same_on_any_number_of_threads_and_after_a_resume() -> None:
    def batches(threads: int, step: int) -> list[Any]:
        loader = LinkNeighborLoader(
            plain(), [3, 2], batch_size=32, shuffle=True, drop_last=True, neg_sampling="binary",
            threads=threads, convert=LinkBatch.to_pyg,
        )  # fmt: skip
        loader.load_state({"epoch": 1, "step": step})
        return [fields(data) | {(None, "e_id"): data.e_id} for data in loader]

    one, two = batches(0, 0), batches(3, 2)
    assert len(one) == 240 // 32 == len(two) + 2
    for a, b in zip(one[2:], two):
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(one[0][None, "input_id"], torch.arange(32))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = SAGEConv(16, 32), SAGEConv(32, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        out: Tensor = self.two(self.one(x, edges).relu(), edges)
        return out


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_a_model_of_pyg_trains_and_its_loss_falls(mode: str) -> None:
    torch.manual_seed(0)
    made = torch.Generator().manual_seed(0)
    group = torch.arange(200) % 8  # all links join two of a group
    src = torch.randint(200, (1600,), generator=made)
    dst = torch.randint(25, (1600,), generator=made) * 8 + group[src]
    x = torch.nn.functional.one_hot(group, 16).float() + 0.3 * torch.randn(200, 16, generator=made)
    data = Data(x=x, edge_index=torch.stack([src, dst]))
    loader = LinkNeighborLoader(data, [5, 5], neg_sampling=mode, batch_size=200, shuffle=True)
    model, losses = Net(), []
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(6):
        total = 0.0
        for batch in (each.to_pyg() for each in loader):
            h = model(batch.x, batch.edge_index)
            if mode == "binary":
                src, dst = batch.edge_label_index
                scores, label = (h[src] * h[dst]).sum(-1), batch.edge_label
            else:
                apart = h[batch.dst_pos_index] - h[batch.dst_neg_index]
                scores, label = (h[batch.src_index] * apart).sum(-1), torch.ones(len(apart))
            loss = nn.functional.binary_cross_entropy_with_logits(scores, label)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            total += float(loss.detach())
        losses.append(total)
    assert losses[-1] < 0.85 * losses[0]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (
            {"subgraph_type": "induced"},
            "subgraph_type='induced': weft's LinkNeighborLoader has 'directional'",
        ),
        ({"num_workers": 4}, "num_workers=4: .*use threads="),
        ({"transform": print}, "transform=.*use convert="),
        ({"disjoint": True}, "disjoint=True: .*edge_label_time"),
        ({"temporal_strategy": "last"}, "temporal_strategy='last'"),
        ({"courier": 1}, "courier=1: .*on the CPU"),
        ({"prefetch_factor": 2}, "takes no 'prefetch_factor'"),
        ({"time_attr": "time"}, "time_attr: expected 'time', that of edges, beside edge_label_time"),
        ({"neg_sampling": "hard"}, "neg_sampling: expected 'binary', 'triplet' or dict"),
        ({"neg_sampling": {"mode": "binary", "count": 2}}, "neg_sampling: expected"),
        ({"neg_sampling": {"mode": "triplet", "amount": 1.5}}, "amount must be a whole number for triplets"),
        ({"neg_sampling_ratio": -1.0}, "amount must be a number above 0"),
        ({"neg_sampling": {"mode": "binary", "dst_weight": [1.0]}}, "dst_weight: expected 40 values"),
        ({"neg_sampling": {"mode": "triplet", "src_weight": [1.0]}}, "triplets keep their sources"),
        ({"neg_sampling": "triplet", "edge_label": torch.ones(240)}, "edge_label: triplets have none"),
        ({"edge_label": torch.ones(3)}, "edge_label: expected 240 values"),
        ({"edge_label_time": torch.ones(3)}, "edge_label_time: expected 240 values"),
        ({"edge_label_index": torch.ones(2, 3)}, "expected ids .2, n., got torch.float32"),
        ({"edge_label_index": torch.full((2, 1), 40)}, "expected sources 0 … 39, got 40"),
        (
            {"num_neighbors": {("a", "b", "c"): [1], ("a", "c", "c"): [1, 2]}},
            "num_neighbors: expected as many",
        ),
        ({"hide": False, "reverse": True}, "reverse: nothing is hidden"),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_in_one_line(options: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError, match=line) as raised:
        LinkNeighborLoader(plain(), **{"num_neighbors": [2], **options})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("links", [None, torch.ones(2, 3).long(), ("author", "likes", "paper"), ("a", None)])
def test_links_of_named_types_need_their_relation(links: Any) -> None:
    with pytest.raises(InputError, match=r"edge_label_index: expected \(\(source, name, target\), index\)"):
        LinkNeighborLoader(typed(), [2], links)
    fanouts = {kind: [2, 1] for kind in typed().edge_types}
    batch = next(iter(LinkNeighborLoader(typed(), fanouts, (WRITES, None), batch_size=60)))
    assert torch.equal(batch.to_pyg()[WRITES].input_id, torch.arange(60))


def test_a_batch_is_shown_in_one_line() -> None:
    graph = Graph.from_edges([[0, 1, 2, 3], [1, 2, 3, 0]])
    shown = [
        repr(next(iter(LinkNeighborLoader(graph, [2], batch_size=3, neg_sampling=how, threads=0))))
        for how in ("triplet", "binary", None)
    ]
    assert shown[0].startswith("LinkBatch(links=3, negatives=3, nodes=Batch(seeds=")
    assert shown[1].startswith("LinkBatch(links=3, negatives=3, nodes=Batch(seeds=")
    assert shown[2].startswith("LinkBatch(links=3, negatives=0, nodes=Batch(seeds=")
    assert not any("tensor" in each or "\n" in each for each in shown)
