"""Runs a function on several ranks: real processes, real gloo, forked from a server with torch loaded."""

import multiprocessing as mp
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from weft.comm.group import Group
from weft.comm.rendezvous import bound_socket, host_store

_CONTEXT = mp.get_context("forkserver")
# What nearly every job needs is loaded once, in the server; an optimiser's first step loads torch._dynamo.
_PRELOAD = ["pytest", "torch", "torch.distributed", "torch._dynamo", "weft.train.fit", "ranks"]
_CONTEXT.set_forkserver_preload(_PRELOAD)
LIMIT = 240.0


def run_ranks(size: int, job: Callable[..., Any], *arguments: Any, **connect: Any) -> list[Any]:
    """Return what `job(group, *arguments)` gave a rank; fails with the tracebacks of any that raised."""
    before = dict(os.environ)
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    store = host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=LIMIT)
    try:
        links = [_CONTEXT.Pipe(duplex=False) for _ in range(size)]
        places = [_environment(rank, size, store.port) for rank in range(size)]
        processes = [
            _CONTEXT.Process(target=_rank, args=(link[1], place, connect, job, arguments))
            for link, place in zip(links, places)
        ]
        for process in processes:
            process.start()
        answers = [_answer(link[0]) for link in links]
        for process in processes:
            process.join(10)
            if process.is_alive():
                process.kill()
    finally:
        os.environ.clear()
        os.environ |= before
    failed = [f"rank {rank}:\n{text}" for rank, (text, _) in enumerate(answers) if text]
    assert not failed, "\n".join(failed)
    assert [process.exitcode for process in processes] == [0] * size
    return [value for _, value in answers]


def _environment(rank: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _answer(link: Connection) -> tuple[str, Any]:
    if not link.poll(LIMIT):
        return "no answer", None
    try:
        return link.recv()
    except EOFError:
        return "ended without an answer", None


def _rank(
    link: Connection,
    place: dict[str, str],
    connect: dict[str, Any],
    job: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    os.environ |= place
    try:
        with Group.connect(**connect) as group:
            value = job(group, *arguments)
        link.send(("", value))
    except BaseException:
        link.send((traceback.format_exc(), None))
