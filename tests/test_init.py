"""The package front: names on first use, no torch before it."""

import subprocess
import sys

import pytest

import weft


def test_importing_weft_and_asking_for_help_load_no_torch() -> None:
    program = (
        "import sys, weft, weft.cli.main\n"
        "weft.cli.main.parser().format_help()\n"
        "print([name for name in ('torch', 'numpy', 'rich', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    for name in weft.__all__:
        assert getattr(weft, name) is not None, name


def test_a_module_is_there_without_being_imported_before() -> None:
    program = "import weft; print(weft.errors.InputError.__name__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "InputError\n", done.stderr


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = weft.nothing


def test_the_training_package_can_be_called_and_shows_its_signature() -> None:
    import inspect

    import weft.train.trainer  # importing a module of the package must not break the call

    assert callable(weft.train)
    assert list(inspect.signature(weft.train).parameters)[:2] == ["graph", "model"]
