"""The parts of a block's edges."""

import torch

from weft.graph.message.block import Block
from weft.strategies.sequential.parts import Part


def test_the_block_over_all_rows_is_made_once() -> None:
    block = Block(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 0]), num_src=2)
    part = Part(block, torch.tensor([1, 3]), torch.tensor([4, 5]), None)
    whole = part.over_all_rows(5)
    assert whole.indptr.tolist() == [0, 0, 2, 2, 3, 3]
    assert part.over_all_rows(5) is whole, "and with it the chunks that it was cut into"
    assert part.over_all_rows(4).indptr.tolist() == [0, 0, 2, 2, 3]
    assert Part(block, None, torch.tensor([4, 5]), None).over_all_rows(2) is block
