"""The user's own code by its name: "my_package.my_module:Net", or "path/to/script.py:Net".

Other processes, recipes and runs name code, they never carry it. A module is found as Python finds it and,
last, in the folder where the command was started. A file, such as the script that was started, is imported by
its path under another name, so that its `if __name__ == "__main__":` does not run again.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from weft.errors import RecipeError
from weft.registry import suggest

_PREFIX = "_weft_file_"


def is_code(name: object) -> TypeGuard[str]:
    """Return whether a name is that of code: a module or a file, and what it holds."""
    return isinstance(name, str) and ":" in name


def load_code(name: str, where: str) -> Any:
    """Return what a name stands for; `where` is the key that named it."""
    source, _, path = name.rpartition(":")
    if not source or not path:
        raise RecipeError(f"{where}: expected 'module:name', as 'my_package.my_module:Net', got {name!r}")
    found: Any = _import(source, where)
    for part in path.split("."):
        if not hasattr(found, part):
            raise RecipeError(f"{where}: {source} has no {part!r}; {suggest(part, dir(found))}got {name!r}")
        found = getattr(found, part)
    return found


def name_of(item: Any) -> str | None:
    """Return the name by which another process finds a class or function; None where it would not."""
    path, module = getattr(item, "__qualname__", None), sys.modules.get(getattr(item, "__module__", "") or "")
    source = None if module is None else _source(module)
    if source is None or not isinstance(path, str):
        return None
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return f"{source}:{path}" if found is item else None


def refuse_within(name: str, folder: Path) -> None:
    """Refuse code that lies in a folder of data: what is read is never run."""
    source = name.rpartition(":")[0]
    add_paths([os.getcwd()])
    try:
        spec = None if source.endswith(".py") else importlib.util.find_spec(source.partition(".")[0])
    except (ImportError, ValueError):
        spec = None  # and importing it will say why
    file = source if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    if Path(file).resolve().is_relative_to(folder.resolve()):
        raise RecipeError(
            f"{name} would be imported from {file}, in the folder that names it; move it where you keep "
            "code, and add that to PYTHONPATH"
        )


def told(item: Any) -> str:
    """Return a name of code for people: that by which it is found, or else what it calls itself."""
    kind = item if hasattr(item, "__qualname__") else type(item)
    return name_of(kind) or f"{kind.__module__}:{kind.__qualname__}"


def add_paths(paths: list[str]) -> None:
    """Have modules found where another process finds them."""
    sys.path += [path for path in paths if path not in sys.path]


def _source(module: ModuleType) -> str | None:
    """Return what imports a module: its name, or the file of one that has no name elsewhere."""
    if module.__name__ == "__main__":
        spec = getattr(module, "__spec__", None)
        if spec is not None:  # python -m package.module
            return str(spec.name)
    elif not module.__name__.startswith(_PREFIX):
        return module.__name__
    file = getattr(module, "__file__", None)
    return None if file is None else str(Path(file).resolve())


def _import(source: str, where: str) -> ModuleType:
    add_paths([os.getcwd()])
    try:
        return _import_file(Path(source)) if source.endswith(".py") else importlib.import_module(source)
    except (ImportError, OSError) as error:
        raise RecipeError(
            f"{where}: cannot import {source!r} ({_line(error)}); give a module on PYTHONPATH or in this "
            "folder, or the path of a file"
        ) from None
    except Exception as error:
        raise RecipeError(
            f"{where}: {source!r} cannot be imported, it raises {type(error).__name__}: {_line(error)}"
        ) from error


def _import_file(path: Path) -> ModuleType:
    path = path.resolve()
    main = sys.modules["__main__"]
    if getattr(main, "__spec__", None) is None and _source(main) == str(path):
        return main
    name = f"{_PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, "a file of Python"
    assert spec.loader is not None, "which Python reads itself"
    module = importlib.util.module_from_spec(spec)
    add_paths([str(path.parent)])  # as for a script: it may import what lies beside it
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())
