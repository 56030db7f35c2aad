"""Reductions that others wait for: a graph is cut where edges read reduced rows again.

What is read is computed by a graph of its own, run first; in its place stands an input of destinations.
"""

from typing import Any

from torch import fx
from torch.utils._pytree import tree_map

from weft.compiler.graphs import spread, tidy, value


def inner_graphs(graph: fx.Graph) -> list[fx.Graph]:
    """Take out of a graph what it reduces first: graphs that give rows, in the order of the inputs."""
    found = []
    while ready := [node for node in graph.nodes if node.target is spread and not _waits(node)]:
        found.append(taken(graph, [node.args[0] for node in ready]))
        for node in ready:
            _replaced_by_input(graph, node)
        tidy(graph)
    return found


def _waits(node: fx.Node) -> bool:
    """Return whether a node reads rows that were spread before."""
    stack, seen = list(node.all_input_nodes), set()
    while stack:
        each = stack.pop()
        if each.target is spread:
            return True
        if each not in seen:
            seen.add(each)
            stack += each.all_input_nodes
    return False


def taken(graph: fx.Graph, rows: list[Any]) -> fx.Graph:
    """Return a copy of the part of a graph that makes some rows, with all its inputs."""
    part = fx.Graph()
    made: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder":
            made[node] = part.placeholder(node.name)
        elif all(each in made for each in node.all_input_nodes) and node.target is not spread:
            args, kwargs = tree_map(
                lambda each: made[each] if isinstance(each, fx.Node) else each, (node.args, dict(node.kwargs))
            )
            made[node] = part.call_function(node.target, args, kwargs)
        else:
            continue
        made[node].meta = dict(node.meta)
    part.output([made[each] for each in rows])
    part.eliminate_dead_code()
    return part


def _replaced_by_input(graph: fx.Graph, node: fx.Node) -> None:
    inputs = [each for each in graph.nodes if each.op == "placeholder"]
    with graph.inserting_after(inputs[-1]):
        new = graph.placeholder(f"rows_{len(inputs)}")
    new.meta.update(role="destination", val=value(node))
    node.replace_all_uses_with(new)
    graph.erase_node(node)
