"""Messages in a model under torch.compile: compiled by weft, between graphs of torch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import weft
from weft.graph.message import compiled


class Gated(nn.Module):
    """A layer of torch's, a message, and a layer again."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(width, 8), nn.Linear(16, 6), nn.Linear(6, 3)

    def forward(self, block: Any, x: Tensor) -> Tensor:
        def message(there: Tensor, here: Tensor) -> Tensor:
            return self.gate(torch.cat([there, here], 1)).sigmoid()  # type: ignore[no-any-return]

        h = self.first(x).relu()
        return self.last(block.propagate(message, src=(h,), dst=(h,)).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "backend",
    ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)],
)
def test_torch_compile_has_the_compiled_message_inside(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=300)
    block, model, calls = graph.block(), Gated(graph.x.shape[1]), []
    plain = compiled.reduce_edges
    monkeypatch.setattr(compiled, "reduce_edges", lambda *given: (calls.append(1), plain(*given))[1])
    found = []
    for called in (model, torch.compile(model, backend=backend)):
        model.zero_grad()
        out = called(block, graph.x)
        out.square().sum().backward()
        found.append([out, *(each.grad for each in model.parameters())])
    assert calls == [1, 1], "once as it is, once between the graphs of torch.compile"
    for want, have in zip(*found):
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)
