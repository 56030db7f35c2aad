import numpy as np
import torch

from weft import draw
from weft.kernels import reference_attention as reference


def test_keep_factors_are_the_numpy_draws() -> None:
    clock = torch.tensor([11, 3, 2**40])
    ids = np.array([0, 5, 2**40, 7], dtype=np.int64)
    key = draw.fold(11, draw.Stream.ATTENTION, 3, 2**40, 9)
    expected = draw.draw(key, ids[:, None], np.arange(5)[None]).astype(np.int64) >= draw.threshold(0.3)
    keep = reference.keep_factors(torch.from_numpy(ids), 5, 0.3, clock, 9, torch.float64)
    np.testing.assert_array_equal(keep.numpy(), expected / (1 - 0.3))
