"""Modules made of text that weft wrote itself: imported from memory, nothing lies on disk.

Triton reads a kernel's source by `inspect`, which asks `linecache`: the text is put there under the name of
the module. What Triton compiles of it stands in Triton's own cache, by the text's hash.
"""

import hashlib
import importlib.util
import linecache
import sys
from importlib.abc import SourceLoader
from types import ModuleType


class TextLoader(SourceLoader):
    """Gives a module its text."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        return self.text.encode()


def module_of(text: str) -> ModuleType:
    """Return the module of a text; the same text gives the same module."""
    name = "weft_generated_" + hashlib.sha256(text.encode()).hexdigest()[:32]
    known = sys.modules.get(name)
    if known is not None:
        return known
    path = f"<{name}>"
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    spec = importlib.util.spec_from_loader(name, TextLoader(path, text))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
