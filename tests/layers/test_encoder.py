"""Encoder: one width for all node types."""

import pytest
import torch

import weft


def _graph() -> weft.Graph:
    torch.manual_seed(0)
    return weft.Graph.from_types(
        nodes={
            "author": {"x": torch.randn(3, 5)},
            "paper": {"x": torch.eye(4).to_sparse_csr()},
            "venue": {"num_nodes": 2},
        },
        edges={
            ("author", "writes", "paper"): {"edge_index": torch.tensor([[0, 1, 2], [0, 1, 3]])},
            ("paper", "in", "venue"): {"edge_index": torch.tensor([[0, 1], [0, 1]])},
        },
    )


def test_each_type_goes_through_its_own_map_or_embedding():
    graph = _graph()
    encoder = weft.nn.Encoder(weft.nn.GraphInfo.of(graph), 7)
    out = encoder(graph.block(), graph.x)
    assert out.shape == (9, 7)
    ranges = graph.block().type_ranges("src")
    author, paper = encoder.maps["type_author"], encoder.maps["type_paper"]
    torch.testing.assert_close(out[ranges["author"]], author(graph.node_data["author"]["x"]))
    torch.testing.assert_close(out[ranges["paper"]], paper.weight.t() + paper.bias)
    torch.testing.assert_close(out[ranges["venue"]], encoder.embeddings["type_venue"].weight)


def test_rows_of_a_part_look_their_embeddings_up_by_id():
    info = weft.nn.GraphInfo(in_features={"node": 0}, num_nodes={"node": 10})
    encoder = weft.nn.Encoder(info, 4)
    part = weft.Block(torch.tensor([0, 1]), torch.tensor([1]), num_src=3, src_ids=torch.tensor([8, 2, 5]))
    assert torch.equal(encoder(part, None), encoder.embeddings["type_node"].weight[[8, 2, 5]])


def test_missing_features_are_named():
    graph = _graph()
    encoder = weft.nn.Encoder(weft.nn.GraphInfo.of(graph), 7)
    with pytest.raises(weft.InputError, match="Encoder: no features given for node type 'paper'"):
        encoder(graph.block(), {"author": graph.node_data["author"]["x"]})


def test_graph_info_says_what_the_graph_holds():
    info = weft.nn.GraphInfo.of(_graph())
    assert info.in_features == {"author": 5, "paper": 4, "venue": 0}
    assert info.num_nodes == {"author": 3, "paper": 4, "venue": 2}
    assert info.num_relations == 2
    assert info.edge_types[1] == ("paper", "in", "venue")


def test_types_whose_names_differ_by_a_dot_have_maps_of_their_own():
    names = ("a.b", "a_b", "a%2Eb")
    info = weft.nn.GraphInfo(
        node_types=names, in_features=dict.fromkeys(names, 2), num_nodes=dict.fromkeys(names, 3)
    )
    assert len(weft.nn.Encoder(info, 4).maps) == 3


def test_no_rows_are_none_with_a_gradient():
    encoder = weft.nn.Encoder(weft.nn.GraphInfo.of(_graph()), 7)
    empty = weft.Block(torch.tensor([0]), torch.zeros(0, dtype=torch.int64), num_src=0)
    empty.typed_rows = lambda rows="src": []
    out = encoder(empty, {})
    assert out.shape == (0, 7)
    assert out.requires_grad
