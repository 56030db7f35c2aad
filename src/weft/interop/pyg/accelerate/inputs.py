"""Dense inputs that are almost all zeros: kept sparse inside an accelerated model.

PyG's examples hold bag-of-words features as a dense matrix and drop out elements of it before the first
layer. When such a matrix comes again unchanged, its non-zeros are kept beside it (weakly), and the first
linear map of a layer multiplies those. Its dropout gives a tensor that knows its non-zeros and becomes dense
only if something else than an accelerated layer looks at it.
"""

import threading
import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from weft import kernels
from weft.graph.sparse import Features, SparseFeatures
from weft.interop.pyg.accelerate.adjacency import Kept
from weft.layers.base import linear as weft_linear

_SMALLEST = 1 << 20  # elements: below, a dense product is as fast
_DENSITY = 0.05
_DROPPED = (torch.float32, torch.float64)
_SAMPLED_ROWS = 256
_SAMPLED_VALUES = 4096

_kept = Kept(4)
_seen: "weakref.WeakValueDictionary[int, Tensor]" = weakref.WeakValueDictionary()


def sparse_of(x: Tensor) -> SparseFeatures | None:
    """Return the non-zeros of a constant input that is worth keeping sparse, else None."""
    if isinstance(x, SparseBacked):
        return x.sparse
    if type(x) is not Tensor or x.requires_grad or x.dim() != 2 or x.numel() < _SMALLEST or x.is_inference():
        return None
    if x.layout is not torch.strided or not x.is_floating_point() or x.device.type != "cpu":
        return None
    # A tensor that is seen once may never come again: looking for its zeros would cost more than it gives.
    if _seen.get(id(x)) is not x:
        _seen[id(x)] = x
        return None
    return _kept.get((x,), "sparse", lambda: _nonzeros(x), lambda found: _is_still(x, found))


def linear(lin: nn.Module, x: Tensor) -> Tensor:
    """Return lin(x) for a PyG or torch linear map, by the non-zeros of x where they are known."""
    sparse = sparse_of(x) if _plain_linear(lin) else None
    return lin(x) if sparse is None else weft_linear(sparse, lin.weight, lin.bias)  # type: ignore[no-any-return, arg-type]


def features(x: Tensor) -> Features:
    """Return the sparse form of x where it is known, else x."""
    sparse = sparse_of(x)
    return x if sparse is None else sparse


class SparseBacked(Tensor):
    """A dense matrix known by its non-zeros; any operation on it sees the dense values."""

    sparse: SparseFeatures | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, sparse: SparseFeatures) -> "SparseBacked":
        made: SparseBacked = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, sparse.shape, dtype=sparse.dtype, device=sparse.device
        )
        made.sparse = sparse
        made._dense = None
        return made

    _dense: Tensor | None

    def dense(self) -> Tensor:
        """Return the ordinary tensor, made once."""
        if self._dense is None:
            assert self.sparse is not None
            self._dense = self.sparse.to_dense()
        return self._dense

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def dense(item: Any) -> Any:
            if not isinstance(item, SparseBacked):
                return item
            value = item.dense()
            if func._schema.is_mutable:
                item.sparse = None  # the dense values are about to change: they are the truth from now on
            return value

        return func(*tree_map(dense, args), **tree_map(dense, kwargs or {}))


class _Dropout(TorchFunctionMode):
    """Dropout of a constant sparse input draws for its non-zeros only, of large matrices by counters."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = _dropped(*args, **(kwargs or {})) if func is F.dropout else None
        return func(*args, **(kwargs or {})) if out is None else out


def _dropped(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor | None:
    if not training or inplace or not 0.0 < p < 1.0 or not isinstance(input, Tensor):
        return None
    sparse = sparse_of(input)
    if sparse is not None:
        return SparseBacked(sparse.with_values(F.dropout(sparse.values, p)))
    if (
        type(input) is not Tensor
        or input.dim() != 2
        or input.dtype not in _DROPPED
        or input.device.type != "cpu"
    ):
        return None
    if input.numel() < _SMALLEST:
        return None
    # By counters: drawn on all threads, and no mask is kept for backward.
    return kernels.dropout(input, torch.arange(input.shape[0]), p, clock=torch.randint(2**62, (3,)))


def watch_inputs(model: nn.Module) -> None:
    """Run the model's forward with dropout of sparse inputs kept sparse."""
    if _enter not in model._forward_pre_hooks.values():
        model.register_forward_pre_hook(_enter)
        model.register_forward_hook(_leave, always_call=True)


def _enter(model: nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling():
        return
    mode = _Dropout()
    mode.__enter__()  # type: ignore[no-untyped-call]
    _entered.models.append((weakref.ref(model), mode))


def _leave(model: nn.Module, args: Any, out: Any) -> None:
    if _entered.models and _entered.models[-1][0]() is model:
        _entered.models.pop()[1].__exit__(None, None, None)  # type: ignore[no-untyped-call]


class _Entered(threading.local):
    """The models whose forward is under way in this thread."""

    def __init__(self) -> None:
        self.models: list[tuple[Any, _Dropout]] = []


_entered = _Entered()


def _plain_linear(lin: nn.Module) -> bool:
    from torch_geometric.nn import Linear

    hooked = lin._forward_hooks or lin._forward_pre_hooks or lin._backward_hooks
    return type(lin) in (Linear, nn.Linear) and not hooked


def _is_still(x: Tensor, found: SparseFeatures | None) -> bool:
    """Return whether a matrix looks as it did: `.data` and numpy write without a new version.

    Some of its non-zeros are compared, and some whole rows for zeros that are none any more; all of it would
    take as long as what its zeros save.
    """
    if found is None or not found.nnz:
        return found is None or not x.any()
    step = -(-x.shape[0] // _SAMPLED_ROWS)
    counts = found.indptr[1::step] - found.indptr[:-1:step]
    if not torch.equal(x[::step].count_nonzero(dim=1), counts):
        return False
    some = torch.arange(0, found.nnz, -(-found.nnz // _SAMPLED_VALUES))
    rows = torch.searchsorted(found.indptr, some, right=True) - 1
    now, before = x[rows, found.indices[some].long()], found.values[some]
    return bool(((now == before) | (now.isnan() & before.isnan())).all())


def _nonzeros(x: Tensor) -> SparseFeatures | None:
    rows = x[:: max(1, x.shape[0] // _SAMPLED_ROWS)]
    if int(rows.count_nonzero()) > _DENSITY * rows.numel():
        return None
    sparse = SparseFeatures.from_dense(x)
    if sparse.nnz > _DENSITY * x.numel():
        return None
    _ = sparse.transposed  # made now, so that all that is derived from it shares it
    return sparse
