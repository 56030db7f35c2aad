"""The user's own code by its name: a module or a file, and what it holds."""

import sys
from pathlib import Path

import own_code
import pytest

from weft.code import is_code, load_code, name_of, refuse_within, told
from weft.errors import RecipeError


def test_a_name_of_code_has_a_colon_and_finds_what_it_names() -> None:
    assert [is_code(name) for name in ("own_code:Net", "sage", 3, None)] == [True, False, False, False]
    assert load_code("own_code:Net", "model.class") is own_code.Net
    assert load_code("own_code:Net.forward", "model.class") is own_code.Net.forward


def test_a_file_is_imported_once_and_finds_what_lies_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside_it.py").write_text("WIDTH = 5\n")
    (tmp_path / "mine.py").write_text("from beside_it import WIDTH\nclass Net:\n    width = WIDTH\n")
    found = load_code(f"{tmp_path / 'mine.py'}:Net", "model.class")
    assert found.width == 5
    assert load_code(f"{tmp_path / 'mine.py'}:Net", "model.class") is found
    assert name_of(found) == f"{tmp_path / 'mine.py'}:Net"


def test_what_no_other_process_finds_has_no_name() -> None:
    class Local:
        pass

    assert name_of(own_code.Net) == "own_code:Net"
    assert name_of(Local) is None
    assert name_of(lambda: None) is None
    assert told(Local).endswith("Local")
    assert told(own_code.Net) == "own_code:Net"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (":Net", "expected 'module:name', as 'my_package.my_module:Net', got ':Net'"),
        ("own_code:", "expected 'module:name'"),
        ("own_code:Nat", "own_code has no 'Nat'; did you mean 'Net'"),
        ("no_such_module:Net", "cannot import 'no_such_module'"),
        ("nowhere/file.py:Net", "cannot import 'nowhere/file.py'"),
    ],
)
def test_what_is_not_there_is_one_line_with_its_key(name: str, said: str) -> None:
    with pytest.raises(RecipeError) as caught:
        load_code(name, "model.class")
    assert str(caught.value).startswith("model.class: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_code_that_raises_is_told_and_can_be_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "mine.py"
    file.write_text("1 / 0\n")
    with pytest.raises(
        RecipeError, match="cannot be imported, it raises ZeroDivisionError: division by zero"
    ):
        load_code(f"{file}:Net", "model.class")
    file.write_text("class Net: ...  # mended\n")
    assert load_code(f"{file}:Net", "model.class").__name__ == "Net"


def test_code_in_a_folder_of_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sneaky.py").write_text("class Net: ...\n")
    for name in (f"{tmp_path / 'sneaky.py'}:Net", "sneaky:Net"):
        with pytest.raises(RecipeError, match="in the folder that names it; move it where you keep code"):
            refuse_within(name, tmp_path)
    refuse_within("own_code:Net", tmp_path)
    assert "sneaky" not in sys.modules
