"""The kept CSR of an edge_index."""

import gc

import torch
from torch_geometric.nn import GCNConv

import weft
from weft import kernels
from weft.interop.pyg.accelerate.adjacency import Kept, adjacency, plain, typed_adjacency, with_loops


def test_the_same_tensor_gives_the_same_csr_until_it_changes():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    first = adjacency(edges, 3, 3)
    assert adjacency(edges, 3, 3) is first
    assert adjacency(edges, 4, 4) is not first
    assert adjacency(edges.clone(), 3, 3) is not first
    edges[0, 0] = 2
    assert adjacency(edges, 3, 3).indices.tolist() == [2, 2, 1]


def test_nothing_outlives_the_tensor():
    kept, made = Kept(), []
    tensor = torch.ones(2)
    kept.get((tensor,), "x", lambda: made.append(1))
    assert len(kept._results) == 1
    del tensor
    gc.collect()
    assert len(kept._results) == 0


def test_few_results_are_kept_and_gradients_never():
    kept = Kept(2)
    tensors = [torch.ones(2) for _ in range(4)]
    for tensor in tensors:
        kept.get((tensor,), "x", lambda: object())
    assert len(kept._results) == 2
    wanted = torch.ones(2, requires_grad=True)
    assert kept.get((wanted,), "x", lambda: object()) is not kept.get((wanted,), "x", lambda: object())


def test_what_is_kept_in_inference_mode_can_be_used_in_training():
    edges, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([1.0, 2.0])
    with torch.inference_mode():
        adjacency(edges, 2, 2).ordered(values)
    x = torch.ones(2, 2, requires_grad=True)
    edges = adjacency(edges, 2, 2)
    edges.spmm(x, edges.ordered(values)).sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [2.0, 2.0]]


def test_a_convolution_that_was_evaluated_in_inference_mode_can_be_trained():
    edges, x = torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.ones(3, 4)
    conv = weft.accelerate(GCNConv(4, 2))
    with torch.inference_mode():
        conv(x, edges)
    conv(x, edges).sum().backward()
    assert conv.lin.weight.grad.abs().sum() > 0


def test_loops_are_replaced_or_completed_as_pyg_does():
    edges = torch.tensor([[0, 1, 1], [0, 0, 1]])
    assert with_loops(edges, 3, "replaced").tolist() == [[1, 0, 1, 2], [0, 0, 1, 2]]
    assert with_loops(edges, 3, "completed").tolist() == [[1, 0, 1, 2], [0, 0, 1, 2]]
    assert with_loops(edges, 3, "as given") is edges


def test_values_follow_their_edges():
    edges, values = torch.tensor([[0, 1, 2], [2, 0, 1]]), torch.tensor([10.0, 20.0, 30.0])
    made = adjacency(edges, 3, 3)
    assert made.ordered(values).tolist() == [20.0, 30.0, 10.0]
    typed = typed_adjacency(edges, torch.tensor([1, 0, 1]), 3, 3)
    assert typed.edge_type.tolist() == [0, 1, 1]
    assert plain(edges) is edges


def test_what_is_written_without_a_new_version_is_seen():
    edges, values = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([1.0, 2.0, 3.0])
    kept = adjacency(edges, 3, 3)
    assert kept.ordered(values).tolist() == [3.0, 1.0, 2.0]
    values.data[0] = 7.0
    assert kept.ordered(values).tolist() == [3.0, 7.0, 2.0]
    edges.numpy()[0, 0] = 2
    assert adjacency(edges, 3, 3).indices.tolist() == [2, 2, 1]
    edges.data[:, [0, 1]] = edges.data[:, [1, 0]]  # the same edges in another order
    assert adjacency(edges, 3, 3).ordered(values).tolist() == [3.0, 2.0, 7.0]


def test_edges_that_lie_transposed_are_compared_where_they_lie(monkeypatch):
    copied, fingerprint = [], kernels.fingerprint

    def noted(tensor):
        copied.append(not tensor.is_contiguous())
        return fingerprint(tensor)

    monkeypatch.setattr(kernels, "fingerprint", noted)
    edges = torch.tensor([[0, 1], [1, 2], [2, 0]]).t()
    kept = adjacency(edges, 3, 3)
    assert adjacency(edges, 3, 3) is kept
    edges.numpy()[0, 0] = 2
    assert adjacency(edges, 3, 3).indices.tolist() == [2, 2, 1]
    assert copied == [False] * 3
