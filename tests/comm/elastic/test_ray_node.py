"""What a node runs for a worker: its process, its words, its end."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from weft.comm.elastic.ray_node import WorkerKeeper, environment_of, interface_of

PATIENCE = 60.0


def started(program: str, folder: Path) -> WorkerKeeper:
    keeper = WorkerKeeper()
    env = {"RANK": "3", "GIVEN": "yes"}
    assert keeper.start(["python", "-S", "-c", program], env, str(folder), "127.0.0.1") == ""
    return keeper


def seen(keeper: WorkerKeeper) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Look until its end."""
    printed, deadline = {"out": b"", "err": b""}, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        told = keeper.look()
        for name, chunk in told["printed"]:
            printed[name] += chunk
        if told["code"] is not None:
            return printed, told
    raise AssertionError("it has not ended")


def test_a_worker_s_words_its_record_and_its_exit_code_are_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    program = (
        "import os, sys; print(os.getcwd(), os.environ['GIVEN'], os.environ['GLOO_SOCKET_IFNAME']); "
        "print(os.environ['WEFT_LAUNCHER'] == str(os.getppid()), file=sys.stderr); "
        "open(os.environ['WEFT_FAILURES'] + '/3.json', 'w').write('a record'); sys.exit(2)"
    )
    printed, told = seen(started(program, tmp_path))
    assert printed == {"out": f"{tmp_path} yes lo\n".encode(), "err": b"True\n"}
    assert (told["code"], told["record"]) == (2, "a record")
    assert list(scratch.iterdir()) == []


def test_a_process_that_is_stopped_is_ended(tmp_path: Path) -> None:
    keeper = started("import os, time; print(os.getpid(), flush=True); time.sleep(60)", tmp_path)
    while not (printed := keeper.look()["printed"]):
        continue
    os.kill(int(printed[0][1]), signal.SIGSTOP)
    keeper.end()
    assert seen(keeper)[1]["code"] == -signal.SIGKILL


def test_a_folder_that_a_node_does_not_see_is_named(tmp_path: Path) -> None:
    wrong = WorkerKeeper().start(["python"], {"RANK": "0"}, str(tmp_path / "no"), "10.0.0.2")
    assert wrong == f"node 10.0.0.2 has no folder {tmp_path / 'no'}; machines need the same folders"


def test_what_is_rays_stays_with_ray() -> None:
    node = {"PATH": "/bin", "RAY_AUTH_TOKEN": "secret", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    given = {"OMP_NUM_THREADS": "4"}
    assert environment_of(node, given, "198.18.0.1") == {"PATH": "/bin", "OMP_NUM_THREADS": "4"}
    own = environment_of({"GLOO_SOCKET_IFNAME": "ib0"}, {}, "127.0.0.1")
    assert own == {"GLOO_SOCKET_IFNAME": "ib0"}, "the user of a node knows better"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="interfaces are asked as Linux has them")
def test_the_interface_of_an_address_is_found() -> None:
    assert (interface_of("127.0.0.1"), interface_of("198.18.0.1")) == ("lo", None)
