"""Messages inside a graph of torch.compile: one operator that torch does not look into, with its gradient.

An operator takes tensors and numbers. A message that is a method of a module, or a module, is known by a
number: the module is found by it when the operator runs, and its parameters are among the tensors, so that
gradients reach them. Backward makes forward again, with all that the message read then: it is found by a
number that the operator returns beside its result, and gone with the tensor of it, which autograd keeps.
What no number leads back to (a function inside a function, edges that stand for others) is left to the
caller, between two graphs of torch.
"""

import weakref
from itertools import accumulate, count, pairwise
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from weft.compiler.tracing.captures import NotCompiled, captures
from weft.errors import InputError
from weft.graph.message.reduction import Message, Propagation, checked
from weft.graph.message.rehearsal import rehearsed
from weft.graph.message.replay import ForwardState
from weft.graph.reductions import reduction, reductions
from weft.kernels.registration import define

if TYPE_CHECKING:
    from weft.graph.message.block import Block

reductions.names()  # their folder is read now: torch.compile cannot record that
_methods: list[tuple[weakref.ref[nn.Module], str]] = []
"""By number, a module and the name of its method; "" is the module itself."""
_numbers: "weakref.WeakKeyDictionary[nn.Module, dict[str, int]]" = weakref.WeakKeyDictionary()
_NARROW = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_states: dict[int, ForwardState] = {}
"""By the number of a forward, what its message reached; gone with the tensor that holds the number."""
_calls = count()
_KEPT = 8
_blocks: "dict[int, Block]" = {}
"""By the identity of their pointers, which a block holds: a few, since nothing says when edges are gone."""


def propagated_opaquely(block: "Block", how: Propagation) -> Tensor | None:
    """Return the reduced messages as one operator, a mean still a sum; None where it cannot be one.

    Called while torch.compile records.
    """
    message: Any = how.message
    if isinstance(message, MethodType) and isinstance(message.__self__, nn.Module):
        owner, name = message.__self__, message.__name__
        if getattr(type(owner), name, None) is not message.__func__:
            return None  # the name leads to another: `super().message`
    elif isinstance(message, nn.Module):
        owner, name = message, ""
    else:
        return None
    whole = [*how.src, *how.dst, *how.edge]
    forms = tuple((tuple(t.shape[1:]), t.dtype, t.device) for t in whole)
    shared = tuple((tuple(t.shape), t.dtype, t.device) for t in how.params)
    kind = block.indptr.device.type
    narrow = _NARROW[torch.get_autocast_dtype(kind)] if torch.is_autocast_enabled(kind) else ""
    number = _number(owner, name, forms, shared, narrow, owner.training)
    if number < 0:
        return None
    own = [*owner.parameters()]
    tensors = [*how.src, *how.dst, *how.edge, *how.params, *own]
    counts = [len(how.src), len(how.dst), len(how.edge), len(how.params)]
    at = block.indptr, block.indices, block.num_src
    out, _ = torch.ops.weft.propagate(tensors, *at, number, how.kernel_reduce, counts, narrow)
    return out  # type: ignore[no-any-return]


def _number(owner: nn.Module, name: str, forms: Any, shared: Any, narrow: str, training: bool) -> int:
    """Return the number of a method; -1: it learns what are no parameters of its module, draws numbers,
    or counts what it sees.

    Backward makes forward again: it would draw anew, and count twice.
    """
    own, method = {id(each) for each in owner.parameters()}, _method(owner, name)
    try:
        found = captures(method).tensors
    except NotCompiled:
        return -1
    if any(each.requires_grad and id(each) not in own for each in found):
        return -1
    if _tried(method, forms, shared, narrow)[1]:
        return -1
    known = _numbers.setdefault(owner, {})
    if name not in known:
        known[name] = len(_methods)
        _methods.append((weakref.ref(owner), name))
    return known[name]


def _autocast(like: Tensor | torch.device, narrow: str) -> torch.autocast:
    """Return the types that a message had when it was recorded: backward runs where there is no autocast."""
    kind = (like.device if isinstance(like, Tensor) else like).type
    dtype = getattr(torch, narrow) if narrow else None
    # What forward narrowed has no gradient: backward narrows its parameters itself.
    return torch.autocast(kind, dtype=dtype, enabled=bool(narrow), cache_enabled=False)


def _tried(method: Message, forms: Any, shared: Any, narrow: str) -> tuple[Any, bool]:
    """Return what a message gives for two edges of zeros, and whether it draws random numbers or
    changes what it reaches."""
    device = [*forms, *shared][0][2]
    with (
        _disable_current_modes(),
        torch.no_grad(),
        torch.random.fork_rng(),
        _autocast(device, narrow),
        rehearsed(method) as rehearsal,
    ):
        rows = [torch.zeros(2, *shape, dtype=dtype, device=device) for shape, dtype, device in forms]
        rest = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype, device in shared]
        before = _draws()
        made = method(*rows, *rest)
        drawn = before != _draws()
    return made, drawn or rehearsal.writes


def _draws() -> bytes:
    """Return the state of torch's generators."""
    states = [torch.get_rng_state()]
    states += [torch.cuda.get_rng_state()] if torch.cuda.is_available() else []
    return b"".join(each.numpy().tobytes() for each in states)


# As `torch.compiler.assume_constant_result`, which would load all of torch's compiler at once.
_number._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _method(owner: nn.Module, name: str) -> Message:
    return getattr(owner, name) if name else owner


def _owner(number: int) -> tuple[nn.Module, str]:
    reference, name = _methods[number]
    owner = reference()
    if owner is None:
        raise InputError("the module of a message is gone: keep a compiled model until backward is done")
    return owner, name


def _asked(tensors: list[Tensor], number: int, reduce: str, counts: list[int]) -> Propagation:
    src, dst, edge, params = (tensors[a:b] for a, b in pairwise([0, *accumulate(counts)]))
    return Propagation(_method(*_owner(number)), src, dst, edge, reduce, params)


def _block(indptr: Tensor, indices: Tensor, num_src: int) -> "Block":
    """Return the edges as a block; those used last are kept, with what blocks find out about their edges."""
    from weft.graph.message.block import Block

    found = _blocks.pop(id(indptr), None)
    if (
        found is None
        or found.indptr is not indptr
        or found.indices is not indices
        or found.num_src != num_src
    ):
        found = Block(indptr, indices, num_src=num_src)
    _blocks[id(indptr)] = found
    for oldest in [*_blocks][:-_KEPT]:
        _blocks.pop(oldest, None)
    return found


def _reduced(
    tensors: list[Tensor],
    indptr: Tensor,
    indices: Tensor,
    num_src: int,
    number: int,
    reduce: str,
    counts: list[int],
    narrow: str,
) -> Tensor:
    from weft.graph.message.propagate import contribute

    how = _asked(tensors, number, reduce, counts)
    with _autocast(indptr, narrow):
        return contribute(_block(indptr, indices, num_src), how, beside=False).value


def _forward(*given: Any) -> tuple[Tensor, Tensor]:
    """Return the result, and the number by which backward finds what the message reached."""
    tensors, _, _, _, number, *_ = given
    state = ForwardState(tensors, [_method(*_owner(number))])
    with torch.no_grad(), state.noted():
        out = _reduced(*given)
    call = next(_calls)
    ticket = torch.tensor(call)  # on the CPU, where reading it waits for nothing
    _states[call] = state
    weakref.finalize(ticket, _states.pop, call, None).atexit = False
    return out, ticket


def _fake(tensors: list[Tensor], indptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    _, _, number, reduce, counts, narrow = rest
    whole = sum(counts[:3])
    forms = [(tuple(map(int, each.shape[1:])), each.dtype, each.device) for each in tensors[:whole]]
    shared = [(tuple(map(int, each.shape)), each.dtype, each.device) for each in tensors[whole : sum(counts)]]
    made, _ = _tried(_method(*_owner(number)), forms, shared, narrow)
    result = reduction(reduce).result(checked(made, reduce, 2))
    item, dtype = tuple(result.shape[1:]), result.dtype
    ticket = torch.empty((), dtype=torch.int64, device="cpu")
    return tensors[0].new_empty((indptr.shape[0] - 1, *item), dtype=dtype), ticket


def _setup(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    tensors, indptr, indices, *rest = inputs
    ctx.save_for_backward(output[1], indptr, indices, *tensors)
    ctx.rest = rest


def _backward(ctx: Any, grad: Tensor, _: Any) -> tuple[Any, ...]:
    ticket, indptr, indices, *tensors = ctx.saved_tensors
    needs = [isinstance(each, Tensor) and each.requires_grad for each in tensors]
    made = torch.ops.weft.propagate_backward(grad, tensors, indptr, indices, *ctx.rest, ticket, needs)
    found = iter(made)
    return [next(found) if need else None for need in needs], *[None] * 7


def _autograd() -> Any:
    """Return what lets autograd see operators inside of one, where torch keeps it out."""
    keys, exclude = torch._C.DispatchKey, torch._C._dispatch_tls_local_exclude_set()
    for each in (keys.AutogradFunctionality, keys.AutogradOther, keys.ADInplaceOrView):
        exclude = exclude.remove(each)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), exclude)


def _state(ticket: Tensor) -> ForwardState:
    """Return what the message of a forward reached."""
    found = _states.get(int(ticket))
    if found is None:
        raise InputError(
            "what a message of torch.compile read in forward is gone: something copied what autograd keeps;"
            " leave the message out of it (torch.compiler.disable)"
        )
    return found


def _gradients(grad: Tensor, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
    *at, ticket, needs = rest
    number, counts = at[3], at[5]
    given = sum(counts)
    with _autograd(), torch.enable_grad(), _state(ticket)():
        leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors[:given], needs)]
        before = _draws()
        out = _reduced(leaves, *at)
        if before != _draws():
            raise InputError("a message draws random numbers since torch.compile recorded it: compile anew")
        own = [*_owner(number)[0].parameters()]
        wanted = [t for t, need in zip([*leaves, *own], needs) if need]
        found = torch.autograd.grad(out, wanted, grad, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, found)]


def _fake_gradients(grad: Tensor, tensors: list[Tensor], *rest: Any) -> list[Tensor]:
    return [torch.empty_like(each) for each, need in zip(tensors, rest[-1]) if need]


_AT = "Tensor indptr, Tensor indices, SymInt num_src, int number, str reduce, int[] counts, str narrow"
define(
    f"propagate(Tensor[] tensors, {_AT}) -> (Tensor, Tensor)",
    reference=_forward,
    fake=_fake,
    setup=_setup,
    backward=_backward,
)
define(
    f"propagate_backward(Tensor grad, Tensor[] tensors, {_AT}, Tensor ticket, bool[] needs) -> Tensor[]",
    reference=_gradients,
    fake=_fake_gradients,
)
