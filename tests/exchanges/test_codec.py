"""The codec: what members write, others read, whatever the bits of their links and the width of rows."""

import pytest
import torch
from post import Post

from weft.comm.ledger import Label
from weft.exchanges.codec import Codec

LINKS = torch.tensor([[16, 16, 16], [16, 16, 2], [16, 2, 16]])


def moved(width: int, dtype: torch.dtype, links: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return what each of three members got and what was sent to it: 2 rows from each to each."""
    post, clock = Post(3), torch.tensor([1, 0, 0])
    tables = [torch.randn(5, width, generator=torch.Generator().manual_seed(m)).to(dtype) for m in range(3)]
    rows = torch.tensor([4, 0, 1, 2, 3, 3])
    places = torch.tensor([5, 1, 0, 2, 4, 3])
    pending = []
    for member, table in zip(post.members, tables):
        codec = Codec(clock)
        codec.links = links
        counts = ([2, 2, 2], [2, 2, 2])
        pending.append(
            codec.move(member, table, rows=rows, ids=rows, counts=counts, places=places, label=Label("halo"))
        )
    told = []
    for rank, mail in enumerate(pending):
        true = torch.empty(6, width, dtype=dtype)
        true[places] = torch.cat([table[rows[2 * rank : 2 * rank + 2]] for table in tables])
        told.append((mail.wait(), true))
    return told


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("width", range(1, 9))
def test_members_whose_links_are_equal_read_those_whose_links_differ(width: int, dtype: torch.dtype) -> None:
    for got, true in moved(width, dtype, LINKS):
        extent = true.double().amax(1, keepdim=True) - true.double().amin(1, keepdim=True)
        error = (got.double() - true.double()).abs()
        assert bool((error <= extent / 3 + 0.02).all()), "at most a step of 2 bits"
    first, true = moved(width, dtype, LINKS)[0]
    assert torch.allclose(first.double(), true.double(), atol=0.02), "links of 16 bits"


@pytest.mark.parametrize("width", [1, 4, 64])
def test_rows_travel_as_they_are_at_32_bits_next_to_links_of_8(width: int) -> None:
    links = torch.full((3, 3), 32).fill_diagonal_(8)
    links[0, 1] = 8
    got, true = moved(width, torch.float32, links)[2]
    same = (got == true).all(1)
    assert int(same.sum()) >= 4, "both others send at 32 bits"
