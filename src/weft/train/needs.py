"""What to say where a GPU has too little memory for a run, before it or at its end: which ways have room."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from weft.errors import RecipeError
from weft.graph.graph import Graph
from weft.layers.learned import LearnedRows
from weft.layers.stack import Stack
from weft.sizes import shown
from weft.stores.cached import SHARE, free_bytes
from weft.strategies.base import strategies
from weft.strategies.device_bytes import STATE, learned_bytes, whole_bytes
from weft.strategies.offload.offload import obstacle_of
from weft.tasks.base import Task
from weft.train.model import build_model


def place_rows(model: nn.Module, device: torch.device) -> None:
    """Have learned rows stay in the host's memory where a GPU has no room for them and their moments."""
    if device.type != "cuda" or STATE * learned_bytes(model) <= SHARE * free_bytes(device):
        return
    for table in model.modules():
        if isinstance(table, LearnedRows):
            table.on_host = True


def needs(graph: Graph, model: Stack) -> dict[str, int]:
    """Return the bytes of a GPU that training takes, about, otherwise than by a step over the whole graph.

    The graph lies in the host's memory, and a model that does not is brought there meanwhile.
    """
    if obstacle_of(model):
        return {}
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    model.to(torch.device("cpu"))
    try:
        ways = [strategies[name].device_needs(graph, model) for name in strategies.names()]
    finally:
        model.to(device)
    return {way: size for strategy in ways for way, size in strategy.items()}


def check_memory(
    graph: Graph, model: nn.Module | str, options: Mapping[str, Any], device: torch.device, task: Task
) -> None:
    """Refuse a step over the whole graph that cannot fit on a GPU, and name what would."""
    if device.type != "cuda":
        return
    built = build_model(graph, model, options, task=task) if isinstance(model, str) else model
    if not isinstance(built, Stack):
        return
    free, whole = free_bytes(device), whole_bytes(graph, built)
    if whole > free:
        raise RecipeError(too_little(whole, needs(graph, built), free))


def too_little(whole: int, ways: Mapping[str, int], free: int) -> str:
    """Return the line that says what a step over the whole graph takes, and what other ways do."""
    others = ", ".join(f"{way} about {shown(size)}" for way, size in ways.items())
    return (
        f"train.device: a step over the whole graph takes at least {shown(whole)} of GPU memory, "
        f"{shown(free)} are free; {others}{', ' if others else ''}or use 'cpu'"
    )


def out_of_memory(graph: Any, model: nn.Module, device: torch.device) -> str:
    """Return what to say of a run that found no memory on the GPU."""
    if not isinstance(graph, Graph) or not isinstance(model, Stack):
        return "the GPU has no memory left; use more parts, strategy.activation = 'offload', or 'cpu'"
    here, free = graph.to(device="cpu"), free_bytes(device)
    return f"the GPU has no memory left. {too_little(whole_bytes(here, model), needs(here, model), free)}"
