"""The files for clusters: they parse, name files that exist, and their commands are ones that weft takes."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
PAGE = ROOT / "docs" / "running-on-a-cluster.md"
SLURM = (DEPLOY / "weft.slurm").read_text()
INSTRUCTIONS = {"FROM", "RUN", "WORKDIR", "COPY", "USER", "ENTRYPOINT", "CMD"}
TORCHRUN = re.compile(r"torchrun (.*?)-m weft (.*)$")


def manifest() -> list[dict[str, object]]:
    """Return the documents of the Kubernetes manifest."""
    yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifest")
    return list(yaml.safe_load_all((DEPLOY / "weft-job.yaml").read_text()))


def job_script() -> str:
    """Return the script that a pod runs."""
    job = next(held for held in manifest() if held["kind"] == "Job")
    (container,) = job["spec"]["template"]["spec"]["containers"]  # type: ignore[index]
    assert container["command"][0] == "bash"
    (script,) = container["args"]
    return str(script)


def joined(text: str) -> list[str]:
    """Return the lines of a script, those that are continued in one."""
    return re.sub(r"\\\n\s*", " ", text).splitlines()


def page_commands() -> Iterator[str]:
    """Give the commands of the page that are shown but not run."""
    for body in re.findall(r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        yield from (line for line in joined(body) if line.startswith(("weft ", "torchrun ")))


def check_command(line: str) -> None:
    """Parse a command as the programs would, with 1 for every variable of the shell."""
    line = re.sub(r"\$\w+", "1", line.replace(" $resume", " --resume"))
    found = TORCHRUN.search(line)
    if found:
        from torch.distributed.run import get_args_parser

        words = [*shlex.split(found[1]), "-m", "weft", *shlex.split(found[2])]
        taken = get_args_parser().parse_args(words)
        assert (taken.module, taken.training_script) == (True, "weft")
    command = found[2] if found else line.removeprefix("weft ")
    parser().parse_args(shlex.split(command))


def test_the_batch_script_is_bash_and_its_command_is_one_of_wefts() -> None:
    subprocess.run(["bash", "-n"], input=SLURM, text=True, check=True)
    (inner,) = re.findall(r"-c '\n(.*?)'\n", SLURM, re.DOTALL)
    subprocess.run(["bash", "-n"], input=inner, text=True, check=True)
    (command,) = [line for line in joined(inner) if "torchrun" in line]
    check_command(command)
    directives = [line for line in SLURM.splitlines() if line.startswith("#SBATCH")]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+(=\S+)?", line) for line in directives)
    # Slurm reads directives up to the first command.
    assert SLURM.index("set -euo") > SLURM.rindex("#SBATCH")


def test_the_job_starts_as_many_pods_as_it_waits_for() -> None:
    service, policy, job = manifest()
    assert [held["kind"] for held in (service, policy, job)] == ["Service", "NetworkPolicy", "Job"]
    spec = job["spec"]
    assert spec["completions"] == spec["parallelism"] == 4  # type: ignore[index]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]  # type: ignore[index]
    script = job_script()
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)
    assert f"--nnodes {spec['completions']} " in script  # type: ignore[index]
    (command,) = [line for line in joined(script) if "torchrun" in line]
    check_command(command)


def test_the_image_is_built_of_files_that_exist() -> None:
    lines = joined((DEPLOY / "Dockerfile").read_text())
    steps = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    assert {step[0] for step in steps} <= INSTRUCTIONS
    sources = [name for step in steps if step[0] == "COPY" and "--from" not in step[1] for name in step[1:-1]]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for name in sources:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    assert steps[-3] == ["WORKDIR", "/work"]
    assert ["USER", "weft"] in steps


def test_commands_of_the_page_are_ones_that_weft_takes() -> None:
    commands = list(page_commands())
    assert len(commands) >= 4
    for command in commands:
        check_command(command)


def test_the_page_names_every_file_for_clusters() -> None:
    text = PAGE.read_text()
    for path in DEPLOY.iterdir():
        assert path.name.startswith("Dockerfile.") or f"../deploy/{path.name}" in text
