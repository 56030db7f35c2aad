"""The native core is given no address of another device."""

import numpy as np
import pytest
import torch
from skewed_graph import skewed_graph

from weft.errors import GraphError
from weft.kernels import native
from weft.samplers.core import native_draws as sampling
from weft.samplers.core.request import Request, Slots


def test_the_native_core_is_given_no_address_of_another_device() -> None:
    whole, keys = skewed_graph(), np.zeros((1, 1), dtype=np.uint64)
    slots = Slots(whole.indptr, whole.indices, node_offsets=tuple(whole.node_offsets))
    elsewhere = Slots(whole.indptr, whole.indices.to("meta"), node_offsets=tuple(whole.node_offsets))
    fanouts, seeds, core = np.full((1, 1), 2), torch.arange(3), native.library()
    assert core is not None
    for request in (
        Request(elsewhere, seeds, fanouts, keys),
        Request(slots, seeds.to("meta"), fanouts, keys),
    ):
        with pytest.raises(GraphError, match="one lies on meta"):
            sampling.sample(core, request)
