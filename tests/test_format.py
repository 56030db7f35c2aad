"""Folders of arrays: whole or not at all, checked on the way in, never unpickled."""

import hashlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import format
from weft.errors import FormatError

ARRAYS = {
    "a": np.arange(6, dtype=np.int32).reshape(2, 3),
    "empty": np.zeros((0, 4)),
    "flag": np.array([True, False]),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    format.write_directory(tmp_path / "g", ARRAYS, {"name": "tiny"}, files={"ids.parquet": b"PAR1"})
    return tmp_path / "g"


def rewrite_manifest(folder: Path, change: Any) -> None:
    """Change the manifest and make its own checksum right again, as somebody with bad intentions would."""
    path = folder / format.MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    del manifest["checksum"]
    manifest["checksum"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps(manifest))


def test_what_is_written_is_read(folder: Path) -> None:
    arrays, meta = format.read_directory(folder)
    assert meta == {"name": "tiny"}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert np.array_equal(arrays[name], array)
    assert format.read_extra(folder, "ids.parquet") == b"PAR1"


def test_reading_maps_the_file_and_writes_never_reach_it(folder: Path) -> None:
    before = (folder / "a.npy").read_bytes()
    array = format.read_directory(folder)[0]["a"]
    assert isinstance(array, np.memmap)
    array[0, 0] = 77
    assert (folder / "a.npy").read_bytes() == before
    assert format.read_directory(folder)[0]["a"][0, 0] == 0


def test_an_existing_folder_is_kept_unless_told(folder: Path) -> None:
    with pytest.raises(FormatError, match="already exists; choose another path, or overwrite it"):
        format.write_directory(folder, {}, {})
    format.write_directory(folder, {"b": np.ones(1)}, {}, overwrite=True)
    assert list(format.read_directory(folder)[0]) == ["b"]
    assert [item.name for item in folder.parent.iterdir()] == ["g"]


def test_a_folder_that_is_not_ours_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(FormatError, match="is not a folder written by weft; it is left as it is"):
        format.write_directory(tmp_path / "thesis", {}, {}, overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_missing_folder_and_missing_manifest_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="nowhere does not exist"):
        format.read_directory(tmp_path / "nowhere")
    with pytest.raises(FormatError, match=r"holds no manifest.json"):
        format.read_directory(tmp_path)


def test_truncated_array_is_named_with_both_sizes(folder: Path) -> None:
    path = folder / "a.npy"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(
        FormatError, match=r"a.npy: truncated or changed, 148 bytes where the manifest lists 152"
    ):
        format.read_directory(folder, verify=False)


def test_a_flipped_bit_is_found(folder: Path) -> None:
    path = folder / "a.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"a.npy: damaged, its SHA-256 differs"):
        format.read_directory(folder)


@pytest.mark.parametrize("place", range(0, 400, 13))
def test_a_flipped_bit_in_the_manifest_is_found(folder: Path, place: int) -> None:
    path = folder / format.MANIFEST
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match=r"manifest|a.npy|format"):
        format.read_directory(folder)


def test_a_manifest_that_was_changed_is_not_believed(folder: Path) -> None:
    path = folder / format.MANIFEST
    path.write_text(path.read_text().replace('"tiny"', '"tin"'))
    with pytest.raises(FormatError, match=r"manifest\.json: damaged, its checksum differs"):
        format.read_directory(folder)


def test_a_flipped_bit_in_an_extra_file_is_found_where_it_is_read(folder: Path) -> None:
    (folder / "ids.parquet").write_bytes(b"PAR0")
    with pytest.raises(FormatError, match=r"ids\.parquet: damaged, its SHA-256 differs"):
        format.read_extra(folder, "ids.parquet")


def test_a_header_that_promises_more_than_the_file_holds_is_told(folder: Path) -> None:
    path = folder / "a.npy"
    path.write_bytes(path.read_bytes()[:-4])

    def change(manifest: Any) -> None:
        manifest["arrays"]["a"]["bytes"] -= 4
        manifest["arrays"]["a"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()

    rewrite_manifest(folder, change)
    with pytest.raises(FormatError, match=r"a\.npy: \(2, 3\) of <i4 needs 152 bytes, the file holds 148"):
        format.read_directory(folder)


def test_a_link_to_a_folder_of_ours_is_not_replaced(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    with pytest.raises(FormatError, match="is not a folder written by weft; it is left as it is"):
        format.write_directory(link, {}, {}, overwrite=True)
    assert link.is_symlink()


@pytest.mark.parametrize("name", ["../secret", "manifest.json", ".hidden"])
def test_a_folder_is_not_sealed_with_files_outside_it(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    with (
        pytest.raises(FormatError, match="not a plain file name"),
        format.new_directory(tmp_path / "d") as made,
    ):
        format.seal_directory(made, {}, files=[name])


def test_missing_array_is_named(folder: Path) -> None:
    (folder / "flag.npy").unlink()
    with pytest.raises(FormatError, match=r"flag.npy: missing, the manifest lists 130 bytes"):
        format.read_directory(folder)


@pytest.mark.parametrize("name", ["../secret.npy", "/etc/passwd", "sub/a.npy"])
def test_a_manifest_cannot_point_outside_its_folder(folder: Path, name: str) -> None:
    (folder.parent / "secret.npy").write_bytes((folder / "a.npy").read_bytes())

    def change(manifest: Any) -> None:
        manifest["arrays"]["a"]["file"] = name

    rewrite_manifest(folder, change)
    with pytest.raises(FormatError, match="outside its folder"):
        format.read_directory(folder)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".hidden", "", "manifest.json"])
def test_names_of_arrays_stay_inside_the_folder(folder: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(FormatError, match="not a plain file name"):
        format.write_directory(tmp_path / "other", {name: np.ones(1)}, {})

    def change(manifest: Any) -> None:
        manifest["arrays"][name] = manifest["arrays"].pop("a") | {"file": f"{name}.npy"}

    rewrite_manifest(folder, change)
    with pytest.raises(FormatError, match="not a plain file name"):
        format.read_directory(folder)


def test_a_symbolic_link_is_refused(folder: Path) -> None:
    shutil.move(folder / "a.npy", folder.parent / "elsewhere.npy")
    (folder / "a.npy").symlink_to(folder.parent / "elsewhere.npy")
    with pytest.raises(FormatError, match="a symbolic link"):
        format.read_directory(folder)


class Bomb:
    """Leaves a mark when unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploded",)


@pytest.mark.parametrize("inside_npy", [False, True])
def test_a_pickle_renamed_to_npy_is_refused_and_not_run(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside_npy: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = folder / "a.npy"
    if inside_npy:
        np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Bomb()))

    def change(manifest: Any) -> None:
        data = path.read_bytes()
        manifest["arrays"]["a"] |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}

    rewrite_manifest(folder, change)
    with pytest.raises(FormatError, match=r"Python objects|not in the format it should have"):
        format.read_directory(folder)
    assert not (tmp_path / "exploded").exists()


def test_arrays_of_objects_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="dtype object cannot be stored"):
        format.write_directory(tmp_path / "g", {"a": np.array([{}])}, {})
    assert list(tmp_path.iterdir()) == []


def test_a_newer_version_says_upgrade(folder: Path) -> None:
    rewrite_manifest(folder, lambda manifest: manifest.update(version=99))
    with pytest.raises(FormatError, match="format version 99, this weft reads up to 1; upgrade weft"):
        format.read_directory(folder)


def test_a_manifest_of_something_else_is_refused(folder: Path) -> None:
    (folder / format.MANIFEST).write_text('{"name": "web-app", "version": 3}')
    with pytest.raises(FormatError, match="not a manifest written by weft"):
        format.read_directory(folder)
    rewrite_manifest_without_arrays = {"kind": "weft", "version": 1}
    (folder / format.MANIFEST).write_text(json.dumps(rewrite_manifest_without_arrays | {"checksum": ""}))
    rewrite_manifest(folder, lambda manifest: None)
    with pytest.raises(FormatError, match=r"manifest.json"):
        format.read_directory(folder)


def test_shape_and_dtype_are_compared_with_the_manifest(folder: Path) -> None:
    rewrite_manifest(folder, lambda manifest: manifest["arrays"]["a"].update(shape=[3, 2]))
    with pytest.raises(FormatError, match=r"the manifest says <i4 \(3, 2\), the file holds <i4 \(2, 3\)"):
        format.read_directory(folder, verify=False)


def test_read_only_place_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FormatError, match=r"cannot write .*: (Not a directory|File exists)"):
        format.write_directory(tmp_path / "file" / "g", ARRAYS, {})


WRITER = """
import sys, numpy as np
from weft import format
print("ready", flush=True)
while True:
    array = np.random.default_rng().random(4_000_000)
    meta = {"sum": float(array.sum())}
    format.write_directory(sys.argv[1], {"a": array, "b": array[:1000]}, meta, overwrite=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_folder_or_none(tmp_path: Path) -> None:
    target = tmp_path / "g"
    for moment in (0.005, 0.03, 0.06, 0.1, 0.15, 0.25):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(target)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(moment)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        if target.exists():
            arrays, meta = format.read_directory(target)
            assert float(np.asarray(arrays["a"]).sum()) == meta["sum"]
    format.write_directory(target, ARRAYS, {}, overwrite=True)
    assert [item.name for item in tmp_path.iterdir()] == ["g"], (
        "what killed writers left is removed by the next"
    )


def test_an_overwrite_killed_between_its_renames_gets_the_old_folder_back(folder: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    aside = folder.with_name(f".g.{socket.gethostname()}-{gone.pid}.x.old.partial")
    folder.rename(aside)
    assert format.read_directory(folder)[1] == {"name": "tiny"}
    folder.rename(aside)
    with pytest.raises(FormatError, match="already exists"):
        format.write_directory(folder, {}, {})


def test_what_a_killed_writer_left_of_a_folder_named_old_is_not_put_in_its_place(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".graph.old.{socket.gethostname()}-{gone.pid}.x.partial").mkdir()
    with pytest.raises(FormatError, match="does not exist"):
        format.read_directory(tmp_path / "graph.old")


def test_files_are_whole_when_they_are_asked_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: dict[str, int] = {}

    def asked(handle: int) -> None:
        name = Path(os.readlink(f"/proc/self/fd/{handle}")).name
        sizes[name] = os.fstat(handle).st_size

    monkeypatch.setattr(os, "fsync", asked)
    file = format.ArrayFile(tmp_path / "rows.npy", np.int32, (3,))
    file.append(np.arange(3))
    file.close()
    format.write_directory(tmp_path / "g", {"a": np.zeros(5)}, {}, files={"more": b"12345"})
    format.atomic_write(tmp_path / "one", b"x" * 10)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 5
    assert {path.stat().st_size for path in written} <= set(sizes.values())


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A disk of 256 KiB, where the tests may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_gives_one_line_and_leaves_nothing(small_disk: Path) -> None:
    with pytest.raises(FormatError, match="No space left on device; free some space") as raised:
        format.write_directory(small_disk / "g", {"a": np.zeros(100_000)}, {})
    assert "\n" not in str(raised.value)
    assert list(small_disk.iterdir()) == []
    with pytest.raises(FormatError, match="No space left on device"):
        format.atomic_write(small_disk / "file", b"x" * 500_000)
    assert list(small_disk.iterdir()) == []


def test_a_full_disk_is_told_of_the_folder_that_was_asked_for(small_disk: Path) -> None:
    outer = small_disk / "parts"
    with (
        pytest.raises(FormatError, match=rf"^cannot write {outer}: No space"),
        format.new_directory(outer) as made,
    ):
        format.write_directory(made / "part-0", {"a": np.zeros(100_000)}, {})
    assert list(small_disk.iterdir()) == []


def test_a_failing_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match="No space left on device; free some space"):
        format.write_directory(tmp_path / "g", ARRAYS, {})
    with pytest.raises(FormatError, match="No space left on device"):
        format.atomic_write(tmp_path / "file", b"x")
    assert list(tmp_path.iterdir()) == []


def test_atomic_write_replaces_a_file_and_keeps_its_neighbours(tmp_path: Path) -> None:
    format.atomic_write(tmp_path / "run.json", b"{}")
    format.atomic_write(tmp_path / "run.json", b'{"a": 1}')
    assert (tmp_path / "run.json").read_bytes() == b'{"a": 1}'
    assert [item.name for item in tmp_path.iterdir()] == ["run.json"]


def test_atomic_write_changes_a_file_at_once_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    format.atomic_write(path, b"before")
    with path.open("rb") as reader:
        format.atomic_write(path, b"after, and longer")
        assert reader.read() == b"before", "who has opened it reads on in the old one"

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FormatError, match="No space left on device"):
        format.atomic_write(path, b"lost")
    assert path.read_bytes() == b"after, and longer"


def test_a_linked_manifest_is_refused(folder: Path) -> None:
    (folder / "manifest.json").rename(folder.parent / "elsewhere.json")
    (folder / "manifest.json").symlink_to(folder.parent / "elsewhere.json")
    with pytest.raises(FormatError, match=r"manifest\.json: a symbolic link"):
        format.read_directory(folder)


def test_writing_leaves_the_mask_of_new_files_as_it_was(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        format.write_directory(tmp_path / "d", ARRAYS, {})
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o750


def test_a_folder_to_fill_takes_away_what_a_killed_writer_left(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    left = tmp_path / f".d.{socket.gethostname()}-{process.pid}.x.partial"
    left.mkdir()
    with format.new_directory(tmp_path / "d") as folder:
        assert not left.exists()
        (folder / "file").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


def test_an_array_written_in_pieces_is_whole_once_it_is_closed(tmp_path: Path) -> None:
    file = format.ArrayFile(tmp_path / "a.npy", np.int32, (3, 2))
    file.append(np.arange(2).reshape(1, 2))
    file.append(np.arange(4).reshape(2, 2))
    entry = file.close()
    data = (tmp_path / "a.npy").read_bytes()  # what is there for others, though the object lives on
    assert np.load(tmp_path / "a.npy").tolist() == [[0, 1], [0, 1], [2, 3]]
    assert entry["bytes"] == len(data)
    assert entry["sha256"] == hashlib.sha256(data).hexdigest()


def test_all_of_a_folder_reaches_the_disk_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    target, fsync = tmp_path / "d", os.fsync

    def noted(handle: int) -> None:
        seen.append((Path(os.readlink(f"/proc/self/fd/{handle}")).name, target.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with format.new_directory(target) as made:
        file = format.ArrayFile(made / "a.npy", np.int32, (1,))
        file.append(np.ones(1))
        (made / "ids").write_bytes(b"x")
        format.seal_directory(made, {}, arrays={"a": file.close()}, files=["ids"])
    assert {"a.npy", "ids", "manifest.json"} <= {name for name, there in seen if not there}
    assert any(name.endswith(".partial") for name, there in seen if not there)
    assert seen[-1] == (tmp_path.name, True), "and the name itself"
    seen.clear()
    format.write_directory(target, ARRAYS, {}, overwrite=True, files={"ids": b"y"})
    partial = [name for name, _ in seen]
    assert {"a.npy", "empty.npy", "ids", "manifest.json", tmp_path.name} <= set(partial)
    assert [name.endswith(".partial") for name in partial[-2:]] == [True, False]
    seen.clear()
    format.atomic_write(tmp_path / "f", b"z")
    assert len(seen) == 2
    assert seen[0][0].startswith(".f.")
    assert seen[1][0] == tmp_path.name
