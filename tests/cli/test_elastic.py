"""`--workers 2:8` and `weft scale`: what they take, and what they refuse in one line."""

from pathlib import Path

import pytest

from weft.cli.main import main

TENSOR_WORKERS = ["--set=strategy.name=asynchronous", "--set=strategy.tensor_workers=1"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "4:2"], "--workers 4:2: expected a least of at least 1, and a most not below it"),
        (["--workers", "0:2"], "--workers 0:2: expected a least of at least 1, and a most not below it"),
        (["--workers", "2:4", "--parts", "3"], "3 parts cannot occupy 4 workers; ask for at least 4"),
        (["--workers", "2:4", "--set", "strategy.name=grid"], "'grid' keeps its number of workers"),
        (["--workers", "2:4", "--set", "train.device=cuda"], "workers that come and go train on the CPU"),
        (
            ["--workers=2", "--notice=true"],
            "--notice: only workers that come and go can leave; add --workers",
        ),
        (["--workers=2", "--keep-parts"], "--keep-parts: parts move only where workers come and go"),
        (["--workers=2", "--grow=3"], "--grow: only workers that may come can be more; add --workers"),
        (["--workers=2:4", "--notice=no-such-command"], "'no-such-command' is no command that can be run"),
        (["--workers=2:4", "--notice=ftp://here/taken"], "expected http://HOST/PATH or https://HOST/PATH"),
        (["--ray-address=head:1", "--workers=2"], "--ray-address, --listen: these are of Ray; add --engine"),
        (["--listen=10.0.0.1", "--workers=2"], "--ray-address, --listen: these are of Ray; add --engine"),
        (["--engine=ray", "--listen=10.0.0.1", "--workers=2"], "a Ray of this machine alone is on loopback"),
        (
            ["--engine=ray", "--ray-address=a:1", "--listen=a", *TENSOR_WORKERS],
            "--listen: tensor workers are reached by Ray alone; leave it out",
        ),
        (["--engine=ray"], "--engine ray: say how many workers there may be, --workers LEAST:MOST"),
        (["--engine=ray", "--workers=2", "--set=strategy.name=grid"], "'grid' keeps its number of workers"),
        (
            ["--workers=2:4", "--set=strategy.name=sampled", "--set=strategy.samplers=1"],
            "strategy.samplers: workers that only sample do not come and go; leave it out",
        ),
        (
            ["--workers=2:4", '--set=strategy.exchange={name = "sampled", p = "auto"}'],
            "'auto' goes by links that change with the workers; give a number",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_span_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--workers", "2:x"])
    assert ended.value.code == 2
    assert "expected a number, or a least and a most as 2:8, got '2:x'" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["0", "-1", "often"])
def test_growth_that_is_none_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "--workers", "2:4", f"--grow={given}"])
    assert ended.value.code == 2
    assert f"expected a number of epochs, or value, got {given!r}" in capsys.readouterr().err
