"""The gradients of a model that was run chunk by chunk, layer by layer from the last."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from weft.layers.stack import Stack
from weft.strategies.offload.blocks import Message
from weft.strategies.offload.rows import Total

if TYPE_CHECKING:
    from weft.strategies.offload.offload import Offload


class Backward:
    """One backward pass; every chunk is run again."""

    def __init__(self, offload: "Offload", model: Stack, rows: Sequence[Tensor]) -> None:
        self.offload, self.model, self.rows = offload, model, rows
        self.params = [each for each in model.parameters() if each.requires_grad]
        self.totals: list[Tensor | None] = [None] * len(self.params)

    def run(self, grad: Tensor) -> list[Tensor | None]:
        """Return the gradient of each parameter that has one."""
        grads: list[Tensor | None] = [None] * len(self.model.layers)
        if ends_plain(self.model):
            grads[-1] = grad
        else:
            self._ending(grad, grads)
        for number in reversed(range(len(self.model.layers))):
            of_rows = grads[number]
            if of_rows is not None:
                before = grads[number - 1] if number else None
                found = self._layer(number, of_rows, before)
                if number:
                    grads[number - 1] = found
                grads[number] = None
        return self.totals

    def _layer(self, number: int, grad: Tensor, before: Tensor | None) -> Tensor | None:
        """Return the gradient of the rows that the layer read, added to what they have already."""
        offload, made = self.offload, self.rows[number - 1] if number else None
        halves = offload.halves(self.model, number)
        if halves is not None:
            return halves.backward(made, grad, before, self._through)
        total = None if made is None else Total(offload, Message(tuple(made.shape[1:]), made.dtype, True))
        for chunk, block, rows in offload.visit(self.model, offload.source(made)):
            leaves = [rows.requires_grad_()] if total is not None else []
            with torch.enable_grad(), offload.cast():
                out = self.model.run_layer(number, [block], rows)
            found = self._through([out], leaves, [offload.bring(grad[chunk.rows])])
            if total is not None:
                total.add(chunk, block, found[0])
        return None if total is None else self._home(total, before)

    def _home(self, total: Total, before: Tensor | None) -> Tensor:
        """Return a sum in the host's memory, added to what there was before."""
        held = total.finish()
        if held.device.type != "cpu":
            self.offload.moved += held.nbytes
            held = self.offload.host(held.shape, held.dtype).copy_(held)
        return held if before is None else held.add_(before)

    def _ending(self, grad: Tensor, grads: list[Tensor | None]) -> None:
        offload, model = self.offload, self.model
        used = list(range(len(grads))) if model.jumping else [len(grads) - 1]
        for number in used:
            grads[number] = offload.host(self.rows[number].shape, self.rows[number].dtype).zero_()
        for chunk in offload.chunks(model):
            rows = [offload.bring(self.rows[number][chunk.rows]) for number in used]
            leaves = [each.detach().requires_grad_() for each in rows]
            with torch.enable_grad(), offload.cast():
                out = model.finish(leaves)
            found = self._through([out], leaves, [offload.bring(grad[chunk.rows])])
            for number, gradient in zip(used, found):
                total = grads[number]
                assert total is not None
                total[chunk.rows] = gradient.to("cpu", total.dtype)

    def _through(self, outs: Sequence[Tensor], leaves: list[Tensor], grads: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of the leaves, and add those of the parameters to the totals."""
        above = [grad.to(out.dtype) for grad, out in zip(grads, outs)]
        found = torch.autograd.grad(outs, [*leaves, *self.params], above, allow_unused=True)
        for index, gradient in enumerate(found[len(leaves) :]):
            held = self.totals[index]
            if gradient is not None:
                self.totals[index] = gradient if held is None else held.add_(gradient)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found)]


def ends_plain(model: Stack) -> bool:
    """Return whether the rows after the last layer are the outputs."""
    return model.jumping is None and model.final is None
