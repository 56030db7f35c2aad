"""Memory of large tensors: in huge pages, and given back when they are freed."""

import os
import subprocess
import sys

import pytest

# Tensors of 8 MiB between small ones that stay: where large blocks come from the heap, it is full of holes.
HOLES = """
from weft.cli import memory
memory.prepare()
import os, torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
torch.ones(1 << 23).sum()
before, kept = resident(), []
for turn in range(20):
    large = [torch.ones(1 << 21) for _ in range(16)]
    kept.append([torch.ones(1 << 10) for _ in range(16)])
    del large
print(os.environ["THP_MEM_ALLOC_ENABLE"], (resident() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size from /proc")
def test_what_is_freed_goes_back_to_the_system_and_a_choice_of_the_user_stays() -> None:
    for given, shown in (({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")):
        plain = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
        told = subprocess.run(
            [sys.executable, "-c", HOLES], env={**plain, **given}, capture_output=True, text=True, timeout=120
        )
        assert told.returncode == 0, told.stderr
        chosen, grown = told.stdout.split()
        assert chosen == shown
        assert int(grown) < 16, "128 MiB were taken and freed in each turn"
