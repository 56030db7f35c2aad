"""The first layer's weights where features are cut by columns (P3): each rank trains those of its columns.

A rank's columns of a weight are a parameter of their own, a view of the model's: in a step the layer is given
that one, so its gradient and what an optimiser keeps of it are 1/P of the whole, and stay on the rank. The
model's own tensor is whole on every rank, as evaluation and checkpoints need it; the columns of others in it
are brought by `gather`, when somebody is to read them, and never in a step.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import InputError
from weft.stores.sliced import slice_bounds

_LABEL = Label("weights")


@dataclass(frozen=True)
class CutWeight:
    """A weight that is cut, along the dimension of the features."""

    whole: nn.Parameter
    dim: int
    own: nn.Parameter
    module: nn.Module
    name: str
    """Who holds it, and its name there."""


class OwnedWeights:
    """The weights of a model that multiply features, of which this rank trains some columns."""

    def __init__(self, model: nn.Module, dims: Mapping[nn.Parameter, int], group: Group) -> None:
        """`dims`: the parameters, and the dimension along which each has the columns of the features.

        One that several modules hold is not cut: another layer reads it whole.
        """
        self.group = group
        cuts = [self._cut(model, whole, dim) for whole, dim in dims.items()]
        self.cuts = [cut for cut in cuts if cut is not None]

    def parameters(self, model: nn.Module) -> list[nn.Parameter]:
        """Return what this rank trains: own columns in the place of weights that are cut."""
        own = {id(cut.whole): cut.own for cut in self.cuts}
        return [own.get(id(each), each) for each in model.parameters() if each.requires_grad]

    def shared(self, model: nn.Module) -> list[nn.Parameter]:
        """Return the parameters that all ranks train together."""
        cut = {id(each.whole) for each in self.cuts}
        return [each for each in model.parameters() if id(each) not in cut]

    def check(self, optimizer: torch.optim.Optimizer) -> None:
        """Refuse an optimiser that has whole weights, which get no gradient here."""
        trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
        if not trained.issuperset(id(cut.own) for cut in self.cuts):
            raise InputError(
                "strategy 'sliced' trains columns of the first layer's weights: make the optimiser of "
                "strategy.parameters(model), not of model.parameters()"
            )

    @contextmanager
    def divided(self) -> Iterator[None]:
        """Have the model's layers hold own columns for a while."""
        self._put(lambda cut: cut.own)
        try:
            yield
        finally:
            self._put(lambda cut: cut.whole)

    @torch.no_grad()
    def gather(self) -> None:
        """Bring the columns of all ranks into the model's weights."""
        for cut in self.cuts:
            cut.whole.copy_(self.joined(cut.own, cut))

    def joined(self, own: Tensor, cut: CutWeight) -> Tensor:
        """Return a tensor of which every rank has its columns of a cut weight, whole."""
        width = cut.whole.shape[cut.dim]
        counts = [stop - start for start, stop in _ranges(width, self.group.size)]
        columns = own.detach().movedim(cut.dim, 0).contiguous()
        moved = self.group.all_gather(columns, counts, label=_LABEL).wait()
        return moved.movedim(0, cut.dim).contiguous()

    def own_columns(self, whole: Tensor, cut: CutWeight) -> Tensor:
        """Return this rank's columns of a tensor like a cut weight."""
        start, stop = _ranges(cut.whole.shape[cut.dim], self.group.size)[self.group.rank]
        return whole.narrow(cut.dim, start, stop - start)

    def joined_state(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return an optimiser's state, by `parameter.name`, as of one that has whole weights."""
        joined = dict(state)
        for name, cut in self._of_cuts(optimizer, state):
            if state[name].shape == cut.own.shape:
                joined[name] = self.joined(state[name], cut)
        return joined

    def own_state(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what `joined_state` made, with own columns again."""
        own = dict(state)
        for name, cut in self._of_cuts(optimizer, state):
            if state[name].shape == cut.whole.shape:
                own[name] = self.own_columns(state[name], cut).contiguous()
        return own

    def _of_cuts(
        self, optimizer: torch.optim.Optimizer, state: Mapping[str, Tensor]
    ) -> Iterator[tuple[str, CutWeight]]:
        """Give the names of state that belongs to cut weights, in one order on all ranks."""
        trained = [id(each) for group in optimizer.param_groups for each in group["params"]]
        cuts = {trained.index(id(cut.own)): cut for cut in self.cuts}
        for name in sorted(state):
            index = int(name.partition(".")[0])
            if index in cuts:
                yield name, cuts[index]

    def _cut(self, model: nn.Module, whole: nn.Parameter, dim: int) -> CutWeight | None:
        start, stop = _ranges(whole.shape[dim], self.group.size)[self.group.rank]
        own = nn.Parameter(whole.data.narrow(dim, start, stop - start))
        places = [
            (module, name)
            for module in model.modules()
            for name, each in module.named_parameters(recurse=False)
            if each is whole
        ]
        return CutWeight(whole, dim, own, *places[0]) if len(places) == 1 else None

    def _put(self, chosen: Callable[[CutWeight], nn.Parameter]) -> None:
        for cut in self.cuts:
            cut.module._parameters[cut.name] = chosen(cut)


def feature_dim(weight: Tensor, parameters: Mapping[int, nn.Parameter]) -> tuple[nn.Parameter, int] | None:
    """Return the parameter that a factor of features is, and the dimension of the features in it.

    None where it is something else: computed of parameters, or of another shape.
    """
    base = weight if isinstance(weight, nn.Parameter) else weight._base
    parameter = None if base is None else parameters.get(id(base))
    if parameter is None or parameter.dim() != 2 or weight.data_ptr() != parameter.data_ptr():
        return None
    if (weight.shape, weight.stride()) == (parameter.shape, parameter.stride()):
        return parameter, 0
    turned = parameter.t()
    return (parameter, 1) if (weight.shape, weight.stride()) == (turned.shape, turned.stride()) else None


def _ranges(width: int, size: int) -> list[tuple[int, int]]:
    bounds = slice_bounds(width, size)
    return list(pairwise(bounds))
