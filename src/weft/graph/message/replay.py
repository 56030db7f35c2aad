"""Messages that are made again in backward: with the same draws, and with gradients of all that they use."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.compiler.tracing.held import held_by
from weft.errors import GraphError
from weft.graph.message.reduction import Message
from weft.graph.message.rehearsal import rehearsed


class ForwardState:
    """Random state, autocast and all that functions read in forward, so that backward does the very same."""

    def __init__(self, tensors: Sequence[Tensor], functions: Sequence[Callable[..., Any]] = ()) -> None:
        """Take what tells the devices, and the functions that run again."""
        self.held = held_by(*functions) if functions else None
        self.reads = _ReadVersions(self.held.tensors if self.held else ())
        self.kind = tensors[0].device.type if tensors else "cpu"
        self.devices = sorted({t.device.index or 0 for t in tensors if t.device.type == "cuda"})
        self.cpu_state = torch.get_rng_state()
        self.cuda_states = [torch.cuda.get_rng_state(device) for device in self.devices]
        self.autocast = torch.is_autocast_enabled(self.kind), torch.get_autocast_dtype(self.kind)

    def noted(self) -> contextlib.AbstractContextManager[object]:
        """Note what functions read beside their arguments while they run first."""
        return self.reads if self.reads.known else contextlib.nullcontext()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Have everything as it was in forward, or refuse where that cannot be."""
        self.reads.require_unchanged()
        with self._settings(), contextlib.nullcontext() if self.held is None else self.held.again():
            yield

    @contextlib.contextmanager
    def _settings(self) -> Iterator[None]:
        enabled, dtype = self.autocast
        narrow = torch.autocast(self.kind, dtype=dtype, enabled=enabled, cache_enabled=False)
        with torch.random.fork_rng(self.devices), narrow:
            torch.set_rng_state(self.cpu_state)
            for device, state in zip(self.devices, self.cuda_states):
                torch.cuda.set_rng_state(state, device)
            yield


class _ReadVersions(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which of some tensors operators read, and their versions then."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = {id(each) for each in tensors if not each.is_inference()}
        self.versions: dict[int, tuple[Tensor, int]] = {}

    def __torch_dispatch__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        for each in tree_leaves((args, kwargs or {})):
            if id(each) in self.known:
                self.versions.setdefault(id(each), (each, each._version))
        return func(*args, **(kwargs or {}))

    def require_unchanged(self) -> None:
        """Refuse to run again on a tensor that was written to."""
        if any(each._version != version for each, version in self.versions.values()):
            raise GraphError(
                "propagate: a tensor that the message uses was written to in place before backward, which"
                " makes the messages again; write to a copy"
            )


def captured(message: Message, rows: Sequence[Tensor], params: Sequence[Tensor]) -> list[Tensor]:
    """Return the parameters that the message uses without being given them, such as those of a module.

    Made again in backward, the messages would lose their gradients in silence; as inputs of the function they
    get them. What is found is found by running the message on some rows and walking back from its result.
    """
    with ForwardState([*rows, *params])(), torch.enable_grad(), rehearsed(message):
        start = torch.zeros(1, requires_grad=True).clone().grad_fn._sequence_nr()  # type: ignore[union-attr]
        made = message(*(t.detach() for t in rows), *params)
    outputs = made if isinstance(made, (tuple, list)) else [made]
    given = {t.grad_fn for t in params if t.grad_fn is not None}
    made_by = [out.grad_fn for out in outputs if isinstance(out, Tensor) and out.grad_fn is not None]
    leaves = _leaves(made_by, given, start)
    return [leaf for leaf in leaves if not any(leaf is param for param in params)]


def _leaves(roots: list[Any], given: set[Any], start: int) -> list[Tensor]:
    found: list[Tensor] = []
    seen, stack = set(given), list(roots)
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        elif node._sequence_nr() < start:
            raise GraphError(
                "propagate: the message uses a tensor with a gradient that it was not given;"
                " pass it in src, dst, edge or params"
            )
        else:
            stack += [function for function, _ in node.next_functions]
    return found
