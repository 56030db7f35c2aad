"""Registries: names that are nearly right."""

from importlib import import_module
from pathlib import Path

import pytest

from weft.registry import suggest


@pytest.mark.parametrize(
    ("name", "known", "nearest"),
    [
        ("gnc", ["sgc", "gcn", "gin"], "gcn"),  # letters in another order before other letters
        ("epoch", ["epochs", "patience"], "epochs"),
        ("gatt", ["gat", "gatv2"], "gat"),
    ],
)
def test_the_likeliest_name_is_suggested(name: str, known: list[str], nearest: str) -> None:
    assert suggest(name, known) == f"did you mean {nearest!r}? "
    assert suggest(name, known[::-1]) == f"did you mean {nearest!r}? "


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    assert suggest("x", ["gcn"]) == ""


def test_entries_in_folders_of_the_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter = "from weft_shelf import things\n\nthings.add({name!r})(object())\n"
    room = tmp_path / "weft_shelf" / "room" / "inner"
    room.mkdir(parents=True)
    shelf = "from weft.registry import Registry\n\nthings = Registry('thing', 'weft_shelf')\n"
    (tmp_path / "weft_shelf" / "__init__.py").write_text(shelf)
    (room.parent / "__init__.py").write_text("")
    (room / "__init__.py").write_text("")
    for folder, name in ((room.parents[1], "top"), (room.parent, "deep"), (room, "deeper")):
        (folder / "entry.py").write_text(enter.format(name=name))
    monkeypatch.syspath_prepend(str(tmp_path))
    things = import_module("weft_shelf").things
    assert things.names() == ["deep", "deeper", "top"]
