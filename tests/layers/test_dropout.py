"""Dropout by counters."""

import numpy as np
import pytest
import torch

import weft
from weft.draw import Stream, draw, fold, threshold


def _block(num_nodes: int = 50) -> weft.Block:
    edges = torch.stack([torch.arange(num_nodes), torch.arange(num_nodes).roll(1)])
    return weft.Graph.from_edges(edges, num_nodes=num_nodes, x=torch.ones(num_nodes, 1)).block()


def test_mask_is_the_draw_of_row_id_and_column():
    block, layer = _block(), weft.nn.Dropout(0.3)
    block.clock, layer.draw_layer = torch.tensor([5, 2, 1]), 4
    out = layer(block, torch.ones(50, 8))
    key = fold(5, Stream.DROPOUT, 2, 1, 4)
    dropped = draw(key, np.arange(50)[:, None], np.arange(8)[None]).astype(np.int64) < threshold(0.3)
    expected = torch.where(torch.from_numpy(dropped), 0.0, 1 / 0.7)
    torch.testing.assert_close(out, expected)


def test_sparse_features_lose_what_dense_ones_lose():
    block, layer = _block(), weft.nn.Dropout(0.5)
    block.clock = torch.tensor([1, 1, 1])
    x = torch.rand(50, 20) * (torch.rand(50, 20) < 0.2)
    out = layer(block, weft.SparseFeatures.from_dense(x))
    torch.testing.assert_close(out.to_dense(), layer(block, x))


def test_without_a_clock_each_call_draws_anew_from_torchs_generator():
    block, layer, x = _block(), weft.nn.Dropout(0.5), torch.ones(50, 8)
    torch.manual_seed(0)
    first, second = layer(block, x), layer(block, x)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(layer(block, x), first)


def test_evaluation_and_p_zero_return_the_input_itself():
    block, x = _block(), torch.ones(50, 8)
    assert weft.nn.Dropout(0.5).eval()(block, x) is x
    assert weft.nn.Dropout(0.0)(block, x) is x


def test_gradient_has_the_same_mask():
    block, layer = _block(), weft.nn.Dropout(0.5)
    block.clock = torch.tensor([1, 2, 3])
    x = torch.ones(50, 8, requires_grad=True)
    out = layer(block, x)
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_destination_rows_have_the_ids_of_destinations():
    whole = _block()
    part = weft.Block(
        torch.tensor([0, 1, 2]), torch.tensor([2, 1]), num_src=3, src_ids=torch.tensor([7, 9, 3])
    )
    layer = weft.nn.Dropout(0.5)
    whole.clock = part.clock = torch.tensor([1, 2, 3])
    rows = layer(whole, torch.ones(50, 8))
    assert torch.equal(layer(part, torch.ones(2, 8), rows="dst"), rows[[7, 9]])
    assert torch.equal(layer(part, torch.ones(3, 8)), rows[[7, 9, 3]])


def test_p_of_one_is_refused():
    with pytest.raises(weft.InputError, match=r"Dropout: p must be in \[0, 1\), got 1.0"):
        weft.nn.Dropout(1.0)
