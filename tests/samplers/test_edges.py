"""Batches of edges."""

import pytest
import torch

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.samplers import EdgeLoader, NegativeSampler, NeighborSampler, split_edges


def random_graph() -> Graph:
    made = torch.Generator().manual_seed(0)
    edges = torch.randint(40, (2, 150), generator=made)
    return Graph.from_edges(edges, num_nodes=40, x=torch.rand(40, 3, generator=made)).symmetrise()


def loader(graph: Graph, **options: object) -> EdgeLoader:
    return EdgeLoader(
        NeighborSampler(graph, [-1, 4]),
        NegativeSampler(graph, 2),
        batch_size=50,
        **options,  # type: ignore[arg-type]
    )


def test_rows_are_the_ends_of_the_edges_and_every_edge_comes_once() -> None:
    graph, seen = random_graph(), []
    for batch in loader(graph):
        seeds = batch.nodes.seeds
        assert torch.equal(seeds[batch.src], graph.indices[batch.edges].long())
        assert torch.equal(seeds[batch.dst], torch.repeat_interleave(graph.indptr.diff())[batch.edges])
        assert batch.negative.shape == (len(batch.edges), 2)
        assert torch.equal(batch.x, graph.x[batch.nodes.nodes])
        assert batch.blocks[-1].num_dst == len(seeds)
        seen.append(batch.edges)
    assert torch.equal(torch.cat(seen).sort().values, torch.arange(graph.num_edges))


def test_no_message_flows_along_an_edge_that_is_to_be_predicted_or_its_reverse() -> None:
    graph = random_graph()
    shown = 0
    for hide in (True, False):
        for batch in loader(graph, hide=hide):
            seeds = batch.nodes.seeds
            ends = torch.stack([seeds[batch.src], seeds[batch.dst]]).T.tolist()
            asked = {tuple(pair) for pair in ends} | {(v, u) for u, v in ends}
            for block in batch.blocks:
                src, dst = block.src_ids[block.indices.long()], block.dst_ids[block.edge_dst]
                flows = set(zip(src.tolist(), dst.tolist()))
                shown += len(flows & asked) if not hide else 0
                assert not (hide and flows & asked)
                assert torch.equal(
                    block.indptr.diff(), torch.bincount(block.edge_dst, minlength=block.num_dst)
                )
                assert torch.equal(block.in_degree(), graph.in_degree()[block.dst_ids])
    assert shown  # there was something to hide


def test_the_same_batches_on_any_number_of_threads_and_after_a_resume() -> None:
    graph = random_graph()
    one = [(batch.edges, batch.negative, batch.nodes.nodes) for batch in loader(graph, threads=0)]
    later = loader(graph, threads=3)
    later.load_state({"epoch": 0, "step": 1})
    two = [(batch.edges, batch.negative, batch.nodes.nodes) for batch in later]
    assert len(one) == len(two) + 1
    assert all(torch.equal(a, b) for first, second in zip(one[1:], two) for a, b in zip(first, second))


def test_a_split_hides_both_directions_and_keeps_the_rest() -> None:
    graph = random_graph()
    left, val, test = split_edges(graph, val=0.1, test=0.2)
    kept = {tuple(pair) for pair in left.edge_index.T.tolist()}
    held = {tuple(pair) for pair in torch.cat([val, test], 1).T.tolist()}
    assert len(held) == val.shape[1] + test.shape[1]
    assert not kept & (held | {(v, u) for u, v in held})
    everything = {tuple(pair) for pair in graph.edge_index.T.tolist()}
    assert kept | held | {(v, u) for u, v in held} == everything
    assert torch.equal(left.x, graph.x)
    with pytest.raises(InputError, match="shares"):
        split_edges(graph, val=0.5, test=0.5)


def test_edges_outside_and_several_types_are_refused() -> None:
    graph = random_graph()
    with pytest.raises(GraphError, match="expected places"):
        EdgeLoader(NeighborSampler(graph, [1]), NegativeSampler(graph), [graph.num_edges])
    typed = Graph.from_types({"a": {"num_nodes": 2}, "b": {"num_nodes": 2}}, {("a", "to", "b"): [[0], [1]]})
    with pytest.raises(InputError, match="one node type"):
        EdgeLoader(NeighborSampler(typed, [1]), NegativeSampler(typed))


def test_hidden_edges_do_not_come_back_as_pyg_data() -> None:
    pytest.importorskip("torch_geometric")
    graph = random_graph()
    for expand in ("hop", "once"):
        sampler = NeighborSampler(graph, [-1, 4], expand=expand)  # type: ignore[arg-type]
        for batch in EdgeLoader(sampler, NegativeSampler(graph, 2), batch_size=50):
            seeds = batch.nodes.seeds
            ends = torch.stack([seeds[batch.src], seeds[batch.dst]]).T.tolist()
            data = batch.nodes.to_pyg()
            flows = {tuple(pair) for pair in data.n_id[data.edge_index].T.tolist()}
            assert flows
            assert not flows & ({tuple(pair) for pair in ends} | {(v, u) for u, v in ends})
            assert sum(data.num_sampled_edges) == data.edge_index.shape[1]
            first = data.edge_index[1, : data.num_sampled_edges[0]]
            assert int(first.max()) < len(seeds), "edges of the first hop go to seeds"


def test_what_an_edge_loader_cannot_do_is_refused_by_name() -> None:
    graph = random_graph()
    with pytest.raises(InputError, match="courier: batches of edges"):
        loader(graph, courier=object())
    with pytest.raises(GraphError, match="got -3"):
        EdgeLoader(NeighborSampler(graph, [1]), NegativeSampler(graph), [5, -3])
