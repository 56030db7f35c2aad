"""Tensors in a safetensors file, or one line that says what is wrong with it."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from weft.errors import FormatError
from weft.reading.bounds import expect_room
from weft.reading.damage import one_line, reading


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name."""
    with reading(path):
        expect_room(path.stat().st_size, path, "it")
        try:
            tensors: dict[str, Tensor] = load_file(path)
        except SafetensorError as error:
            raise FormatError(f"{path}: truncated or damaged ({one_line(error)})") from error
    return tensors


def expect_columns(tensors: dict[str, Tensor], path: Path, *, whole: tuple[str, ...] = ()) -> None:
    """Raise unless all tensors have one row for each row of the first; `whole` are those of whole numbers."""
    sizes = {value.shape[0] if value.dim() else -1 for value in tensors.values()}
    odd = [name for name in whole if name in tensors and str(tensors[name].dtype) != "torch.int64"]
    flat = all(tensors[name].dim() == 1 for name in whole if name in tensors)
    if len(sizes) > 1 or -1 in sizes or odd or not flat:
        shown = ", ".join(f"{name} {list(v.shape)} {v.dtype}" for name, v in sorted(tensors.items()))
        raise FormatError(f"{path}: damaged, columns that do not fit together: {shown[:200]}")
