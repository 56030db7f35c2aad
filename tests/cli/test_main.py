"""The command line: one line for a mistake, the right exit code, results on standard output alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.cli.main import main

SMALL = ["--set", "data.name=community", "--set", "data.nodes=200", "--set", "data.features=8"]
FAST = [*SMALL, "--set", "model.hidden=8", "--set", "train.epochs=3"]


def test_json_is_one_object_on_standard_output_with_every_promised_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *FAST, "--out", str(tmp_path / "run"), "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("\n") == 1
    promised = """test_accuracy val_accuracy loss epochs epoch_seconds_median seconds bytes_sent messages
        exposed_comm_seconds peak_memory_bytes strategy workers out"""
    summary = json.loads(shown.out)
    assert set(promised.split()) <= set(summary)
    assert summary["epochs"] == 3
    assert summary["workers"] == 1
    assert summary["peak_memory_bytes"] > 2**20
    assert "epoch     3  loss" in shown.err
    assert "report.html" in shown.err
    assert (tmp_path / "run" / "report.html").read_text().startswith("<!")


def test_options_of_data_alone_are_those_of_the_built_in_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--set", "data.nodes=150", "--set", "train.epochs=1", "--out", str(tmp_path / "run")]
    assert main(["train", *short, "--json"]) == 0
    assert "150 nodes" in capsys.readouterr().err


def test_without_json_standard_output_stays_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *FAST, "--out", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == ""


def test_the_default_folder_is_named_for_data_and_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *FAST]) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("community-sage-2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--workers", "0"], "--workers 0: expected a whole number of at least 1"),
        (["train", "--workers", "2", "--parts", "1"], "1 parts cannot occupy 2 workers"),
        (["train", "absent.toml"], "no recipe absent.toml"),
        (["train", "--resume"], "--resume needs the folder of the run: --out DIR"),
        (["train", "--resume", "--out", "absent"], "absent holds no run to continue"),
        (["train", "--out", ""], "--out: expected a folder, got an empty name"),
        (["train", "--set", "train.epoch=3"], "did you mean 'epochs'?"),
        (["train", "--set", "epochs=3"], "expected section.key=value"),
        (
            ["train", "--set", "model.heads=0", "--set", "model.name=gat"],
            "model.heads: expected a number >= 1",
        ),
        (["train", "--set", "data.path=absent.npz"], "absent.npz: no such file"),
        (["train", "--set", "train.device=cuda:9"], "train.device"),
        (["train", "--ot", "x"], "unrecognized arguments: --ot"),
        (["train", "--workers", "many"], "expected a number, or a least and a most as 2:8, got 'many'"),
        (["trian"], "invalid choice: 'trian'"),
        ([], "required: COMMAND"),
        (["report", "absent"], "absent"),
        (["selftest", "kernel"], "did you mean 'kernels'?"),
        (["train", *SMALL, "--set", "model.hidden=100000000000"], "there is no memory for "),
        (["flatten", "absent", "--fanout", "-1,-1", "--out", "new"], "absent"),
        (["train", "--set", "data.nods=9"], "unknown key data.nods; did you mean 'nodes'?"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2_and_writes_nothing(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(arguments)
    except SystemExit as stopped:  # argparse leaves this way
        code = int(stopped.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert shown.out == ""
    assert shown.err.startswith("weft: error: ")
    assert shown.err.count("\n") == 1
    assert message in shown.err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_holds_a_run_is_refused_before_the_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run.json").write_text("{}")
    assert main(["train", *FAST, "--out", str(tmp_path)]) == 2
    assert "already holds a run" in capsys.readouterr().err


def test_a_run_is_continued_with_its_own_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "run")]
    assert main(["train", *FAST, *out]) == 0
    assert main(["train", *out, "--resume", "--set", "train.epochs=5", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["epochs"] == 5
    assert "continuing after epoch 3" in shown.err
    assert main(["train", *out, "--resume", "--set", "train.lr=0.5"]) == 2
    assert "train.lr: 0.01 → 0.5" in capsys.readouterr().err


def test_version_and_help_answer(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["--help"], ["train", "--help"], ["doctor", "--help"]):
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        assert not stopped.value.code
    assert f"weft {weft.__version__}" in capsys.readouterr().out


def test_an_error_of_the_machine_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("weft.cli.train.resolve", refuse)
    assert main(["train"]) == 2
    assert capsys.readouterr().err == "weft: error: /some/file: Permission denied\n"


def test_an_error_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.cli.train.resolve", None)  # raised in weft's code, not in a user's
    with pytest.raises(TypeError, match="not callable"):
        main(["train"])


_BUSY = """
import sys, threading, time
import torch
from weft.cli import doctor, main

def work():
    rows = torch.rand(1500, 1500)
    while True:
        torch.mm(rows, rows)

def run(options):
    threading.Thread(target=work, daemon=True).start()
    time.sleep(0.5)
    raise KeyboardInterrupt

doctor.run = run
sys.argv = ["weft", "doctor"]
raise SystemExit(main.main())
"""


def test_a_command_ends_in_order_while_its_threads_are_in_torch() -> None:
    ended = subprocess.run([sys.executable, "-c", _BUSY], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.strip().splitlines()[-1]) == (130, "weft: interrupted")
