"""One line for a file that is damaged, cut short, or another thing than its name says."""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import FormatError, WeftError

# What parsers and array arithmetic raise over values that no writer of the format would have written. Errors
# of the program itself look the same, so the line says which kind it was and the cause stays attached.
_DAMAGE = (
    *(ArithmeticError, AttributeError, LookupError, NotImplementedError, RuntimeError, SyntaxError),
    *(TypeError, ValueError, struct.error, tokenize.TokenError),
)
_CUT = (EOFError, zipfile.BadZipFile, zlib.error)


@contextmanager
def reading(path: Path | str) -> Iterator[None]:
    """Turn what goes wrong while a file or folder is read into a `FormatError` that names it."""
    try:
        yield
    except WeftError:
        raise
    except FileNotFoundError as error:
        raise FormatError(f"{error.filename or path}: no such file or folder") from error
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error
    except MemoryError as error:
        raise FormatError(f"{path}: needs more memory than this process may take") from error
    except RecursionError as error:
        raise FormatError(f"{path}: nested too deeply to be what it should be") from error
    except _CUT as error:
        raise FormatError(f"{path}: truncated or damaged ({one_line(error)})") from error
    except _DAMAGE as error:
        text = one_line(error)
        if "pickle" in text or "Object arrays" in text or "Python objects" in text:
            raise FormatError(f"{path}: holds Python objects (a pickle), which weft never opens") from error
        raise FormatError(
            f"{path}: damaged, or not in the format it should have ({type(error).__name__}: {text})"
        ) from error


def one_line(error: BaseException) -> str:
    """Return what an error says, on one line of bounded length."""
    return " ".join(str(error).split())[:200]
