"""A named store in shared memory: several processes, some of them killed."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from weft.errors import FormatError, InputError
from weft.graph import Graph
from weft.stores import SharedStore, shared
from weft.stores.shared import SHM, SharedSpace, share_of, sweep


@pytest.fixture
def name() -> Iterator[str]:
    made = f"test-{uuid.uuid4().hex}"
    yield made
    sweep()
    assert not left(made)


def left(name: str) -> list[str]:
    return [path.name for path in SHM.glob(f"*{name}*")]


def other(code: str, name: str) -> "subprocess.Popen[str]":
    """Start a process that runs some code with a store's name; it says "ready" and waits for a line."""
    program = "import sys, torch\nfrom weft.stores import SharedStore\nname = sys.argv[1]\n"
    program += textwrap.dedent(code) + "\nprint('ready', flush=True)\nsys.stdin.readline()\n"
    process = subprocess.Popen(
        [sys.executable, "-c", program + "store.close()", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_only_its_user_can_read_it(name: str) -> None:
    with SharedStore(name, torch.ones(3, 2)) as store:
        assert stat.S_IMODE(store.space.folder.stat().st_mode) == 0o700
        for path in store.space.folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_second_of_the_same_name_and_an_unknown_one_are_refused(name: str) -> None:
    with SharedStore(name, torch.ones(3, 2)), pytest.raises(InputError, match="in use"):
        SharedStore(name, torch.ones(3, 2))
    with pytest.raises(FormatError, match="no shared store"):
        SharedStore(name)
    for wrong in ("../x", "", "a/b", ".x"):
        with pytest.raises(InputError, match="letters, digits"):
            SharedStore(wrong, torch.ones(1, 1))


def test_too_little_shared_memory_is_told_and_nothing_is_left(name: str) -> None:
    with SharedStore(name, torch.ones(3, 2)) as store:
        with pytest.raises(InputError, match=r"bytes are needed, /dev/shm has"):
            store.init("huge", (1 << 40, 2))
        assert store.space.fields() == ["x"]
        assert len(list(store.space.folder.iterdir())) == 3


SMALL = """
import torch
from weft.errors import InputError
from weft.stores import SharedStore
from weft.stores.shared import SHM
with SharedStore("small", torch.ones(3, 2)) as store:
    try:
        store.init("more", (1 << 20, 2))
    except InputError as error:
        print(error)
    print(store.space.fields(), store.gather(torch.tensor([1])).tolist())
try:
    SharedStore("large", torch.ones(1 << 20, 2))
except InputError as error:
    print(error)
print([path.name for path in SHM.iterdir()])
"""


def test_a_small_dev_shm_is_told_and_nothing_is_left() -> None:
    mounted = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$0" -c "$1"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
    if os.geteuid() or subprocess.run([*command, "mount -t tmpfs tmpfs /dev/shm"]).returncode:
        pytest.skip("needs a /dev/shm of its own")
    done = subprocess.run([*command, mounted, sys.executable, SMALL], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert "8,388,608 bytes are needed, /dev/shm has" in lines[0]
    assert lines[1] == "['x'] [[1.0, 1.0]]"
    assert "8,388,608 bytes are needed, /dev/shm has" in lines[2]
    assert lines[3] == "[]"


def test_a_tensor_is_made_once_and_must_fit(name: str) -> None:
    with SharedStore(name, torch.ones(3, 2)) as store, SharedStore(name) as again:
        store.init("h", (3, 5)).write(torch.tensor([2]), torch.full((1, 5), 4.0))
        assert again.init("h", (3, 5))[:].sum() == 20
        assert again.field("h").gather(torch.tensor([2]))[0, 0] == 4
        with pytest.raises(InputError, match="asked for"):
            again.init("h", (3, 6))
        with pytest.raises(InputError, match=r"no tensor 'z'.*it has: h, x"):
            again.field("z")


@pytest.mark.parametrize(
    "note",
    [
        *(b"[]", b"{", b"[" * 5000, b"null", b'{"shape": [3, true], "dtype": "int8"}', b'{"shape": [3, 2]}'),
        *(b'{"shape": [3, 2], "dtype": "uint4"}', b'{"shape": [3000000, 2], "dtype": "float32"}'),
        b'{"shape": [4611686018427387904, 4611686018427387904, 0], "dtype": "float32"}',
    ],
)
def test_a_damaged_note_is_one_line(name: str, note: bytes) -> None:
    with SharedStore(name, torch.ones(3, 2)) as store:
        (store.space.folder / "x.json").write_bytes(note)
        with pytest.raises(FormatError, match=r"x\.(json|bin)") as caught:
            SharedStore(name)
        assert "\n" not in str(caught.value)


def test_shares_of_an_aggregation_make_the_whole(name: str) -> None:
    made = torch.Generator().manual_seed(0)
    graph = Graph.from_edges(torch.randint(50, (2, 400), generator=made), num_nodes=50)
    x = torch.rand(50, 3, generator=made)
    with SharedStore(name, x) as store:
        for reduce in ("sum", "mean", "max"):
            into = store.init(reduce, (50, 3))
            for place in range(3):
                store.aggregate(graph, into, reduce, share=(place, 3))
            assert torch.equal(into[:], graph.block().aggregate(x, reduce))
    bounds = [share_of(graph.indptr, place, 7) for place in range(7)]
    assert (bounds[0][0], bounds[-1][1]) == (0, 50)
    assert all(a[1] == b[0] for a, b in pairwise(bounds))


def test_another_process_reads_and_writes_and_the_last_to_close_removes_it(name: str) -> None:
    store = SharedStore(name, torch.ones(4, 2))
    process = other(
        """
        store = SharedStore(name)
        assert store.gather(torch.tensor([3])).tolist() == [[1, 1]]
        store.write(torch.tensor([2]), torch.tensor([[5.0, 6.0]]))
        """,
        name,
    )
    assert store.gather(torch.tensor([2])).tolist() == [[5.0, 6.0]]
    store.close()
    assert left(name)  # the other still owns it
    process.communicate("\n", timeout=60)
    assert process.returncode == 0
    assert not left(name)


def test_after_owners_are_killed_the_survivor_or_the_next_one_cleans_up(name: str) -> None:
    creator = other("store = SharedStore(name, torch.ones(4, 2))", name)
    survivor = SharedStore(name)
    creator.send_signal(signal.SIGKILL)
    creator.wait(60)
    assert survivor.gather(torch.tensor([0])).tolist() == [[1, 1]]  # it lives while one owner does
    killed = other("store = SharedStore(name); store.write(torch.tensor([0]), torch.zeros(1, 2))", name)
    survivor.close()
    killed.send_signal(signal.SIGKILL)  # the last owner
    killed.wait(60)
    assert left(name)
    with pytest.raises(FormatError, match="no shared store"):  # a dead one is not opened but removed
        SharedStore(name)
    assert not left(name)
    with SharedStore(name, torch.zeros(1, 1)) as new:
        assert new.shape == (1, 1)


def test_making_any_store_removes_dead_ones(name: str) -> None:
    folder = Path(f"{SHM}/weft-{os.getuid()}-{name}-dead")
    folder.mkdir(mode=0o700)
    (folder / "owners").touch()
    half = SHM / f".weft-{os.getuid()}-{name}.999999999.partial"  # killed while it was made
    half.mkdir()
    SharedSpace.create(name).close()
    assert not left(name)


def test_an_exit_and_a_dropped_store_leave_nothing(name: str) -> None:
    program = "import sys, torch\nfrom weft.stores import SharedStore\n"
    program += "store = SharedStore(sys.argv[1], torch.ones(4, 2))\n"
    subprocess.run([sys.executable, "-c", program, name], check=True, timeout=120)
    assert not left(name)
    store = SharedStore(name, torch.ones(4, 2))
    further = store.init("h", (4, 3))
    del store
    assert left(name)  # a further tensor of it is in use
    del further
    assert not left(name)


def test_the_exit_of_a_forked_child_leaves_the_store_to_its_parent(name: str) -> None:
    with SharedStore(name, torch.ones(4, 2)) as store:
        child = os.fork()
        if child == 0:
            store.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert left(name)


def test_a_lock_that_is_not_given_back_is_told(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "PATIENCE", 0.05)
    with SharedStore(name, torch.ones(4, 2)) as store:
        handle = os.open(store.space.folder, os.O_RDONLY)
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(InputError, match="has been locked for"):
            store.init("h", (4, 3))
        os.close(handle)
    store = SharedStore(name, torch.ones(4, 2))
    folder = store.space.folder
    other = os.open(folder / "owners", os.O_RDWR)
    fcntl.flock(store.space._hold.peek()[2][1], fcntl.LOCK_UN)  # type: ignore[index]
    fcntl.flock(other, fcntl.LOCK_EX)
    with pytest.raises(InputError, match="has been locked for"):
        SharedStore(name)
    os.close(other)
    store.close()
