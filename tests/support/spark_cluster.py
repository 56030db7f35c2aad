"""A Spark cluster on loopback: a master and workers from the pyspark package, ended with the test."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 120.0


@dataclass
class Cluster:
    """The processes of a cluster."""

    url: str
    folder: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    drivers: list["subprocess.Popen[str]"] = field(default_factory=list)
    """Programs that run on the cluster; those that are left are ended with it."""

    def executors(self) -> list[int]:
        """Return the processes that run tasks, oldest first."""
        found = []
        for worker in self.processes[1:]:
            found += [pid for pid in children(worker.pid) if "CoarseGrainedExecutorBackend" in command(pid)]
        return sorted(found)

    def logs(self) -> set[Path]:
        """Return the logs of all executors that there were."""
        return set(self.folder.glob("work/app-*/*/stderr"))

    def ran_twice(self, since: set[Path]) -> bool:
        """Return whether an executor that came after those logs started a task for the second time."""
        new = self.logs() - since
        return any(re.search(r"Running task \d+\.1 in stage", log.read_text()) for log in new)


@contextmanager
def cluster(folder: Path, workers: int = 2, memory: str = "1g") -> Iterator[Cluster]:
    """Start a cluster, and end all of its processes whatever happens."""
    import pyspark

    port = free_port()
    made = Cluster(f"spark://127.0.0.1:{port}", folder)
    spark = Path(pyspark.__file__).parent / "bin" / "spark-class"
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
    package = "org.apache.spark.deploy"
    master = [f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [f"{package}.worker.Worker", "--cores", "1", "--memory", memory, "--webui-port", "0"]
    worker += ["--work-dir", str(folder / "work")]
    # Hosts of their own: Spark runs no task a second time on the host of the first.
    hosts = [["--host", f"127.0.0.{number + 1}"] for number in range(workers)]
    try:
        for number, words in enumerate([master, *([*worker, *host, made.url] for host in hosts)]):
            with open(folder / f"daemon-{number}.log", "wb") as log:
                made.processes.append(
                    subprocess.Popen(
                        [str(spark), *words],
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        start_new_session=True,
                    )
                )
        registered = folder / "daemon-0.log"
        wait_for(lambda: registered.read_text().count("Registering worker") >= workers, "workers registered")
        yield made
    finally:
        started: list[subprocess.Popen[Any]] = [*made.drivers, *made.processes]
        for process in started:
            kill_group(process)
        for pid in made.executors():
            os.kill(pid, signal.SIGKILL)


def kill_group(process: "subprocess.Popen[Any]") -> None:
    """End a process and all that it started."""
    below = descendants(process.pid)
    for pid in [process.pid, *below]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait(30)


def wait_for(test: Callable[[], bool], told: str, patience: float = PATIENCE) -> None:
    """Wait until something is true, for a bounded time."""
    end = time.monotonic() + patience
    while not test():
        assert time.monotonic() < end, f"not within {patience:g} s: {told}"
        time.sleep(0.05)


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(word) for task in tasks for word in (task / "children").read_text().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    """Return all processes below a process."""
    below = children(pid)
    return below + [other for child in below for other in descendants(child)]


def command(pid: int) -> str:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])
