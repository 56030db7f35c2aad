"""METIS's own k-way partitioning with several weights a node, out of the library that pymetis carries.

pymetis passes one weight per node. Its extension module is METIS itself and exports its functions, so they
are called from there; where a build hides them, `library` gives None.
"""

import ctypes
from functools import cache
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from weft.errors import MissingExtra, PartitionError
from weft.partitioners.base import Undirected
from weft.partitioners.constraints import Constraints, Parts

_OK = 1
_OPTIONS = 40
_VOLUME = 1
_CALLS = ("METIS_SetDefaultOptions", "METIS_PartGraphKway", "METIS_PartGraphRecursive")


@cache
def library() -> ctypes.CDLL | None:
    """Return METIS with 64-bit indices, or None where pymetis does not show it."""
    try:
        inner = import_module("pymetis._internal")
    except ImportError as error:
        raise MissingExtra("pymetis is not installed; install it with: pip install pymetis") from error
    loaded = ctypes.CDLL(inner.__file__)
    # Older releases do not tell how wide their integers are.
    shown = hasattr(inner, "_idx_type_width") and all(hasattr(loaded, name) for name in _CALLS)
    return loaded if shown and inner._idx_type_width() == 64 else None


def divide(
    metis: ctypes.CDLL, near: Undirected, limits: Constraints, *, volume: bool, recursive: bool, seed: int
) -> Parts:
    """Return the part of each node; METIS keeps to the bounds as well as it can, which is not always."""
    count, kinds = len(near.indptr) - 1, len(limits.names)
    # METIS keeps the options in 64-bit integers and the tolerances in 32-bit floats.
    options = np.empty(_OPTIONS, dtype=np.int64)
    metis.METIS_SetDefaultOptions(_pointer(options))
    where = import_module("pymetis._internal").options_indices
    options[where.SEED] = seed
    if volume and not recursive:
        options[where.OBJTYPE] = _VOLUME
    weights = np.ascontiguousarray(limits.weights.T)
    tolerance = (limits.bounds / limits.mean).astype(np.float32)
    parts = np.zeros(count, dtype=np.int64)
    call = metis.METIS_PartGraphRecursive if recursive else metis.METIS_PartGraphKway
    status = call(
        _number(count),
        _number(kinds),
        _pointer(near.indptr),
        _pointer(near.indices),
        _pointer(weights),
        None,  # sizes of nodes for the volume: all alike
        None,  # weights of edges: all alike
        _number(limits.num_parts),
        None,  # shares of the parts: all alike
        _pointer(tolerance),
        _pointer(options),
        _number(0),  # METIS writes the cut here
        _pointer(parts),
    )
    if status != _OK:
        raise PartitionError(f"METIS ended with status {status}")
    return parts.astype(np.int32)


def _number(value: int) -> ctypes.c_void_p:
    return ctypes.cast(ctypes.pointer(ctypes.c_int64(value)), ctypes.c_void_p)


def _pointer(array: NDArray[np.int64] | NDArray[np.float32]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
