"""What rows cost on the wire."""

import pytest
import torch

from weft.kernels.quantise import coded_bytes


@pytest.mark.parametrize(("bits", "share"), [(16, 0.52), (8, 0.27), (4, 0.15), (2, 0.08)])
def test_codes_cost_little_more_than_their_bits_at_width_128(bits: int, share: float) -> None:
    assert coded_bytes(128, bits) <= share * 128 * torch.float32.itemsize
