"""Memory of batches that is taken again: never twice at once, and not kept without bound."""

import os
import threading

import numpy as np
import pytest
import torch

from weft.kernels import native
from weft.kernels.buffers import REUSED_BYTES, reused
from weft.train.saved.usage import memory_bytes

pytestmark = pytest.mark.skipif(not native.available(), reason="needs the native core, whose memory it is")

MIB = 1 << 20


def test_what_is_gone_is_taken_again():
    first = reused((3, MIB), torch.float32)
    address = first.data_ptr()
    view = first[1:]
    del first
    other = reused((3, MIB), torch.float32)
    assert other.data_ptr() != address, "a view still shows it"
    del view
    assert reused((3, MIB), torch.float32).data_ptr() == address


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int64])
@pytest.mark.parametrize("rows", [0, 1, 70_000])
def test_has_the_shape_and_holds_what_is_written(dtype: torch.dtype, rows: int):
    out = reused((rows, 17), dtype)
    assert (out.shape, out.dtype, out.is_contiguous()) == ((rows, 17), dtype, True)
    out.copy_(torch.arange(rows * 17).reshape(rows, 17) % 100)
    assert torch.equal(out, (torch.arange(rows * 17).reshape(rows, 17) % 100).to(dtype))
    assert out.nbytes < REUSED_BYTES or out.data_ptr() % 64 == 0


def test_threads_never_share_a_block():
    wrong: list[int] = []

    def work(number: int) -> None:
        random = np.random.default_rng(number)
        held: list[torch.Tensor] = []
        for _ in range(200):
            made = reused((int(random.integers(REUSED_BYTES, 4 * MIB)),), torch.uint8)
            made[::4096] = number
            held.append(made)
            if len(held) > 3:
                old = held.pop(int(random.integers(4)))
                if not bool((old[::4096] == number).all()):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_keeps_a_bounded_amount():
    before = memory_bytes(torch.device("cpu"))
    held = [reused((64 * MIB,), torch.uint8).fill_(1) for _ in range(16)]
    assert memory_bytes(torch.device("cpu")) - before > 700 * MIB
    del held
    assert memory_bytes(torch.device("cpu")) - before < 300 * MIB


def test_serves_a_forked_process():
    reused((MIB,), torch.float32)  # kept from here on
    child = os.fork()
    if child == 0:
        made = reused((MIB,), torch.float32).numpy()  # torch's threads are not there in the child
        made[:] = 2
        os._exit(0 if made.sum() == 2 * MIB else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
