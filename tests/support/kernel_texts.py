"""The kernels that a few messages become, in all passes: `python -m tests.support.kernel_texts`."""

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from weft.compiler.compile import compile_message
from weft.compiler.programs.gradient import gradients
from weft.compiler.programs.program import Program
from weft.compiler.tracing.trace import Form
from weft.compiler.triton.form import KernelForm
from weft.compiler.triton.source import source

MAP, BOTH = nn.Linear(8, 8), nn.Linear(16, 8)
ENDS = [Form(role, torch.Size([8]), torch.float32, torch.device("cpu")) for role in ("source", "destination")]  # type: ignore[arg-type]


def mapped(there: Tensor, here: Tensor) -> Tensor:
    return MAP((there + here).relu())  # type: ignore[no-any-return]


def gated(there: Tensor, here: Tensor) -> Tensor:
    both = torch.cat([there, here], 1)
    return BOTH(both).sigmoid() * BOTH(both).tanh()  # type: ignore[no-any-return]


def attended(there: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
    a, b = there.view(-1, 2, 4), here.view(-1, 2, 4)
    return (a * b).tanh().sum(-1), a * 2


def programs() -> Iterator[Program]:
    """Give the programs of some messages, forward and backward."""
    for message, reduce in ((mapped, "max"), (gated, "sum"), (attended, "softmax")):
        for reduction in compile_message(message, ENDS, reduce).reductions:
            assert reduction.program is not None
            passes = gradients(reduction.program, (True,) * len(reduction.program.loads))
            yield from (
                each for each in (reduction.program, passes.of_rows, passes.of_others) if each is not None
            )


def fingerprint() -> str:
    """Return a hash of all texts."""
    texts = [source(KernelForm(each, (torch.float32,) * len(each.loads))) for each in programs()]
    assert len(texts) == 9
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


if __name__ == "__main__":
    print(fingerprint())
