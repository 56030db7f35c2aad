"""A bit that flips on disk, in records, weights or a graph, is told in one line instead of trained on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from records_jobs import plain_graph

import weft
from weft.cli.main import main
from weft.errors import FormatError, InputError
from weft.pipeline.flatten.flattening import flatten
from weft.pipeline.record_hops import read_records
from weft.strategies.records.record_loader import RecordFiles

TRAIN = ["train", "--set", "train.epochs=2", "--set", "model.hidden=4"]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    plain_graph().save("g")
    flatten("g", "r", fanout=[3, 2], features="value")
    return Path("r")


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Have one bit of a file flipped for a while."""
    sound = path.read_bytes()
    data = bytearray(sound)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    try:
        yield
    finally:
        path.write_bytes(sound)


def bits(path: Path, every: int) -> range:
    return range(0, 8 * path.stat().st_size, every)


def test_every_flip_in_records_is_refused_where_they_are_read(records: Path) -> None:
    def read() -> None:
        files = RecordFiles.open(records)
        for part in range(len(files.sizes)):
            files.read(part, 0, files.sizes[part])

    read()
    files = sorted(records.iterdir())
    assert {path.name for path in files} == {"records.json", "part-00000.parquet"}
    for path in files:
        for bit in bits(path, 211):
            with flipped(path, bit), pytest.raises(FormatError, match=path.name):
                read()
            if bit % 5 == 0:
                with flipped(path, bit), pytest.raises(FormatError, match=path.name):
                    read_records(records)


def test_training_names_the_file_and_the_records(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = records / "part-00000.parquet"
    for number, bit in enumerate(bits(part, 8 * part.stat().st_size // 3)):
        with flipped(part, bit):
            assert main([*TRAIN, "--set", "data.path=r", "--out", f"no{number}"]) == 2
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert "part-00000.parquet: damaged" in told
        assert "records 0 … 24 are in it; flatten the graph again" in told
    with flipped(records / "records.json", 1003):
        assert main([*TRAIN, "--set", "data.path=r", "--out", "no"]) == 2
    assert "records.json: " in capsys.readouterr().err


def test_every_flip_in_weights_is_refused(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TRAIN, "--set", "data.path=g", "--out", "run"]) == 0
    path, model = Path("run/model.safetensors"), weft.nn.Stack(3, 3, layer="sage", hidden=4)
    weft.train.load_weights(path, model)
    for bit in bits(path, 97):
        with flipped(path, bit), pytest.raises(InputError):
            weft.train.load_weights(path, model)
    for bit in bits(path, 8 * path.stat().st_size // 4):
        with flipped(path, bit):
            assert main(["infer", "run", "--out", "p"]) == 2
        assert "model.safetensors" in capsys.readouterr().err
        assert not Path("p").exists()
    assert main(["infer", "run", "--out", "p"]) == 0


def test_a_graph_is_compared_with_its_checksums_before_it_is_flattened(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in sorted(Path("g").iterdir()):
        with flipped(path, 8 * path.stat().st_size - 9):
            assert main(["flatten", "g", "--fanout", "2,2", "--out", "again"]) == 2
        assert path.name in capsys.readouterr().err
        assert not Path("again").exists()
