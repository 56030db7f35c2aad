"""Say what this installation is made of, and what is missing with the command that installs it.

examples:
  weft doctor
  weft doctor --json
"""

import argparse
import json
import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from weft import machine, process
from weft.comm.run_store import TOKEN

# Optional package to the extra that installs it and what it is for.
EXTRAS = {
    "torch_geometric": ("pyg", "PyG models and data sets"),
    "kaminpar": ("kaminpar", "KaMinPar, a second partitioner"),
    "duckdb": ("data", "tables to graphs: weft ingest, weft validate"),
    "pyspark": ("spark", "the data plane on a cluster: --engine spark"),
    "ray": ("ray", "workers, or tensor workers, that Ray places: weft train --engine ray"),
    "triton": ("gpu", "kernels for GPUs"),
    "tensorboard": ("tensorboard", "TensorBoard files of a run"),
}

# Environment variables that weft reads or sets for others; docs/running-on-a-cluster.md says what they do.
VARIABLES = (
    "WEFT_TIMEOUT",
    "WEFT_STALL",
    "WEFT_JOIN",
    "WEFT_TOKEN",
    "WEFT_NATIVE",
    "WEFT_COMMAND",
    "WEFT_MEMBER",
    "WEFT_ATTEMPT",
    "WEFT_LAUNCHER",
    "WEFT_BEGAN",
    "WEFT_FAILURES",
    "WEFT_LIMITED",
    "WEFT_CHOSEN",
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "ONEDNN_MAX_CPU_ISA",
    "GLOO_SOCKET_IFNAME",
    "THP_MEM_ALLOC_ENABLE",
    "TRITON_INTERPRET",
    "JAVA_HOME",
    "PYSPARK_PYTHON",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Print the findings."""
    found = examine()
    if options.json:
        print(json.dumps(found))
        return 0
    from weft.cli.output import show_table

    for section, entries in found.items():
        if entries:
            show_table(section, [(f" {name}", str(value)) for name, value in entries.items()])
    return 0


def examine() -> dict[str, dict[str, Any]]:
    """Return everything the command shows, by section."""
    return {
        "versions": _versions(),
        "native core": _native(),
        "machine": _machine(),
        "measured": _measured(),
        "environment": {name: _variable(name) for name in VARIABLES if name in os.environ},
        "extras": {name: _extra(name, extra, use) for name, (extra, use) in EXTRAS.items()},
        "missing": {
            name: f"pip install 'weft[{extra}]'" for name, (extra, _) in EXTRAS.items() if not _held(name)
        }
        | _java(),
    }


def _variable(name: str) -> str:
    if name == TOKEN:
        return "(a secret, not shown)"
    return os.environ[name] if process.set_by_user(name) else f"{os.environ[name]} (by weft)"


def _java() -> dict[str, str]:
    """Return how to get the Java that Spark needs, where there is none."""
    from weft.pipeline.engines.java import HOW, LEAST, java_version

    found = java_version()
    return {} if found is not None and found >= LEAST else {"java": f"for --engine spark: {HOW}"}


def _versions() -> dict[str, str]:
    from weft.train.saved.run_folder import versions

    return versions()


def _native() -> dict[str, Any]:
    from weft.kernels import native

    return {"available": native.available(), "library": native.describe(), "cpu features": native.features()}


def _machine() -> dict[str, Any]:
    import torch

    from weft.kernels import gpu

    disk = shutil.disk_usage(Path.cwd())
    return {
        "cpus": machine.usable_cores(),
        "threads": torch.get_num_threads(),
        "matrix tiles": _tiles(),
        "memory": f"{_memory('MemAvailable')} of {_memory('MemTotal')} free",
        "disk here": f"{disk.free / 2**30:.1f} of {disk.total / 2**30:.1f} GiB free",
        "shared memory": _shared_memory(),
        "gpus": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "gpu memory": _gpu_memory(),
        "kernels on a gpu": gpu.describe(),
    }


def _measured() -> dict[str, str]:
    """Return what `weft plan --measure` found here, or how to have it measured."""
    from weft.errors import FormatError
    from weft.plan.machine import read_machine

    try:
        found = read_machine()
    except FormatError as error:
        return {"rates": str(error)}
    return {"rates": "not measured yet: weft plan --measure"} if found is None else dict(found.measured)


def _tiles() -> str:
    if not process.tiles_work():
        return f"shown and forbidden: bfloat16 does without ({process.ONEDNN}={process.WITHOUT_TILES})"
    return "work" if process.has_tiles() else "none"


def _gpu_memory() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none"
    free, total = torch.cuda.mem_get_info()
    return f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"


def _memory(key: str) -> str:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return "unknown"
    found = [int(line.split()[1]) for line in lines if line.startswith(f"{key}:")]
    return f"{found[0] / 2**20:.1f} GiB" if found else "unknown"


def _shared_memory() -> str:
    try:
        return f"{shutil.disk_usage('/dev/shm').free / 2**30:.1f} GiB free"
    except OSError:
        return "none"


def _held(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def _extra(package: str, extra: str, use: str) -> str:
    state = version(package) if _held(package) else f"not installed: pip install 'weft[{extra}]'"
    return f"{state} ({use})"
