"""Programs on a GPU: a Triton kernel written for each, compiled when it first runs and then remembered.

Rows go to programs in groups of like length, hubs in segments that are merged in order; sums over all edges
come from a fixed number of programs, added up in order. No atomics: the same inputs give the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from math import prod
from typing import Any

import torch
from torch import Tensor

from weft.compiler.programs.program import TIED, Edges, Program, Result, Shape
from weft.compiler.triton import ahead
from weft.compiler.triton.form import KernelForm, power
from weft.compiler.triton.generated import module_of
from weft.compiler.triton.results import PARAMETERS
from weft.compiler.triton.source import source
from weft.kernels import gpu

NARROW = 1 << 31
"""Elements of a tensor whose places fit into 32 bits."""
SORTED = 1 << 18
"""Rows from which on it pays to put those of one length together."""
HALVED = 64
"""Rows and columns of a weight that is multiplied in halves."""
KEEPS_FLAGS = True
"""Whether conditions go from one gradient pass to the other: here reading rows again costs more."""
WINNERS = True
"""Whether the gradient of an extreme of products is taken by winners."""
JOINS_PASSES = False
"""Whether one gradient pass gives all that two would, where none is needed for rows."""
PLACES_WARPS, PLACES_PROGRAMS = 4, 3
"""Warps of a program that holds all edges of a row, and how many such programs a multiprocessor has."""
AHEAD = 3
"""Groups of rows that are on their way while one is worked on, where rows have as many edges each."""
WARPS = 32
"""Warps for each multiprocessor, where a program works on many groups of rows."""


def obstacle(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> str:
    """Return why a program does not run on the GPU; nothing where it does."""
    if not gpu.available():
        return gpu.describe()
    form = _form(program, tuple(each.dtype for each in tensors))
    if form.obstacle or not form.products:
        return form.obstacle
    tile = tile_for(form, edges)
    needed = form.fast_bytes(tile.edges * tile.rows, halves=2 if precision(form) == "tf32x3" else 1)
    there = _fast_memory(edges.other.device)
    return f"{needed} bytes of fast memory, {there} are there" if needed > there else ""


def run(program: Program, edges: Edges, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the tensors of a program's results, in their order."""
    if torch.cuda.device_count() < 2:
        return _run(program, edges, tensors)
    with torch.cuda.device(edges.other.device):
        return _run(program, edges, tensors)


@dataclass(frozen=True)
class EdgeTile:
    """What one program works on at a time."""

    edges: int
    """edges of a row"""
    rows: int
    warps: int
    programs: int
    """how many programs there are at most, where each works on many groups of rows"""


@lru_cache(maxsize=1024)
def _form(program: Program, dtypes: tuple[torch.dtype, ...]) -> KernelForm:
    return KernelForm(program, dtypes)


@lru_cache(maxsize=1024)
def _kernel(form: KernelForm) -> Any:
    return module_of(source(form)).kernel


def tile_for(form: KernelForm, edges: Edges) -> EdgeTile:
    """Return the tile of a program: a rule of sizes alone, so bits stay the same.

    One warp reads rows side by side, 16 bytes a thread, and few edges of each at a time: more of them in
    flight gain nothing once there are several tensors (H200, 1 M rows, 20 M edges). Sums along a value stay
    in one warp up to 256 numbers. A matrix product takes 16 edges, and its warps share the columns of the
    weight; one alone, whose bits nothing is compared with, the 64 that the largest matrix instructions take.
    """
    if form.by_place:
        return EdgeTile(power(edges.places), 1, PLACES_WARPS, PLACES_PROGRAMS * _multiprocessors(edges.other))
    degree = edges.num_edges // max(edges.num_rows, 1)
    at_once = 1 if degree < 2 else 2 if degree < 4 else 4
    warps_in_all = WARPS * _multiprocessors(edges.other)
    if form.products:
        # Products of 64 rows and more are another instruction, with other bits: all passes stay on one side.
        heads = max(form.heads(heads) for heads, _ in form.shapes)
        at_once = max(min(at_once, 32 // heads), 1)
        widest = max(form.width(width) for _, width in form.shapes)
        alone = not form.exact and not form.several and heads == 1 and widest <= HALVED and not form.double
        if alone and form.fast_bytes(64, halves=2) <= _fast_memory(edges.other.device):
            at_once = 1 if edges.num_rows >= SORTED else at_once  # rows of one length lie together
            return EdgeTile(at_once, 64 // at_once, 4, warps_in_all // 4)
        warps = 8 if widest > 64 else 4 if form.several else 2
        return EdgeTile(at_once, max(16 // (at_once * heads), 1), warps, warps_in_all // warps)
    lanes = 16 // max(each.itemsize for each in form.dtypes)
    summed = form.sums and form.values >= 64 * lanes
    warps = min(max(form.values // (64 * lanes if summed else 32 * lanes), 1), 4)
    at_once = min(at_once, 4 if summed or form.alive <= 2 else 2)
    return EdgeTile(at_once, max(32 * lanes // form.values, 1), warps, warps_in_all // warps)


def _multiprocessors(tensor: Tensor) -> int:
    return torch.cuda.get_device_properties(tensor.device).multi_processor_count if tensor.is_cuda else 1


@lru_cache
def _fast_memory(device: torch.device) -> int:
    """Return how many bytes of fast memory a program may take."""
    if device.type != "cuda":
        return 227 << 10
    driver = import_module("triton").runtime.driver.active
    return int(driver.utils.get_device_properties(device.index or 0)["max_shared_mem"])


def precision(form: KernelForm) -> str:
    """Return how products are made: as precisely as float64 or float32, or as torch was told.

    Matrix units make float32 of three products of fewer bits, where weights are small enough to lie beside
    their rest. Every pass that makes a value again answers alike: it has the same weights.
    """
    if form.double:
        return "ieee"
    if gpu.allows_tf32():
        return "tf32"
    return "tf32x3" if form.largest <= HALVED else "ieee"


def _run(
    program: Program, edges: Edges, tensors: Sequence[Tensor], tile: EdgeTile | None = None
) -> list[Tensor]:
    form = _form(program, tuple(each.dtype for each in tensors))
    plans = import_module("weft.kernels.triton.plan")
    if form.by_place:
        plans.without_hubs(edges.indptr, edges.num_edges)
    plan = plans.plan_of(edges.indptr, edges.num_edges)
    tile = tile or tile_for(form, edges)
    items = edges.num_rows + plan.num_segments
    groups = -(-items // tile.rows)
    programs = min(groups, tile.programs) if form.persistent else groups
    made = [_buffers(form, each, edges, plan, programs) for each in program.results]
    if items:
        dense = [each.contiguous() for each in tensors]
        dense += [tensors[number].t().contiguous() for number in form.turned]
        ordered = edges.num_rows >= SORTED and not form.by_place
        order = plans.order_of(edges.indptr) if ordered else None
        largest = max(each.numel() for each in [*dense, edges.other, *(t for b in made for t in b.values())])
        indptr, other = edges.indptr.contiguous(), edges.other.contiguous()
        fixed = _constants(form, edges, tile, plan, ordered=ordered, wide=largest >= NARROW)
        ahead.wait(form, fixed)
        _kernel(form)[(programs, form.blocks)](
            indptr,
            other,
            other if edges.numbers is None else edges.numbers.contiguous(),
            indptr if order is None else order,
            plan.rows,
            plan.starts,
            plan.num_segments,
            items,
            *dense,
            *(each[name] for each in made for name in each),
            **fixed,
        )
    pairs = zip(program.results, made)
    return [each for result, one in pairs for each in _finished(form, result, one, plan, edges)]


def _constants(
    form: KernelForm, edges: Edges, tile: EdgeTile, plan: Any, *, ordered: bool, wide: bool
) -> dict[str, object]:
    """Return what is fixed in a kernel."""
    return {
        "NUMBERED": edges.numbers is not None,
        "ORDERED": ordered,
        "HUBS": plan.num_hubs > 0,
        "WIDE": wide,
        "SEGMENT": plan.segment,
        "PRECISION": precision(form),
        "PLACES": edges.places,
        "AHEAD": AHEAD,
        "EDGES": tile.edges,
        "ROWS": tile.rows,
        "num_warps": tile.warps,
        # a product that is added at once has other bits
        "enable_fp_fusion": not form.exact,
    }


def prepare(program: Program, edges: Edges, dtypes: Sequence[torch.dtype], *, some: bool = False) -> None:
    """Begin to make the kernel of a program that will run on such edges, of `some` rows without hubs."""
    form, plans = _form(program, tuple(dtypes)), import_module("weft.kernels.triton.plan")
    if form.obstacle or not edges.num_edges:
        return
    tiny = edges.indptr.new_zeros(2)
    plans.without_hubs(tiny, 1)
    plan = plans.plan_of(tiny, 1) if some or form.by_place else plans.plan_of(edges.indptr, edges.num_edges)
    ordered = edges.num_rows >= SORTED and not form.by_place
    rows = {"row": edges.num_rows, "other": edges.num_other, "edge": edges.num_edges}
    sizes = [rows.get(load.source, 1) * load.shape[0] * load.shape[1] for load in program.loads]
    for each in program.results:
        count = edges.num_edges if each.kind in ("edge", "flags") else edges.num_rows
        sizes.append(0 if each.kind in ("place", "shared", "weight") else count * prod(form.shape_of(each)))
    wide = max(*sizes, edges.num_edges) >= NARROW
    fixed = _constants(form, edges, tile_for(form, edges), plan, ordered=ordered, wide=wide)
    one = [edges.indptr.new_empty(1, dtype=each) for each in dtypes]
    made = [
        _buffers(form, each, replace(edges, indptr=tiny, other=edges.other[:1]), plan, 1)
        for each in program.results
    ]
    numbers = edges.other if edges.numbers is None else edges.numbers
    order = edges.indptr.new_empty(1, dtype=torch.int32) if ordered else edges.indptr
    given = [edges.indptr, edges.other, numbers, order, plan.rows, plan.starts, plan.num_segments, 1, *one]
    given += [one[number] for number in form.turned]
    ahead.make(_kernel(form), form, fixed, [*given, *(each[name] for each in made for name in each)])


def _buffers(form: KernelForm, result: Result, edges: Edges, plan: Any, programs: int) -> dict[str, Tensor]:
    """Return the tensors that a kernel writes a result to, by the names of its parameters."""
    shape, kind = form.shape_of(result), form.kind_of(result)
    exact = torch.float64 if form.double else torch.float32
    per_head: Shape = (shape[0], 1)
    one = per_head if result.kind == "softmax" else shape
    counted = torch.int32 if result.kind in ("max", "min") else kind
    kind = torch.int32 if result.kind == "winner" else kind
    rows = edges.num_edges if result.kind in ("edge", "flags") else edges.num_rows
    parts = programs if result.kind in ("shared", "weight") else plan.num_segments
    parts = programs * edges.places if result.kind == "place" else parts
    sizes = {
        "out": (rows, shape, kind),
        "beside": (rows, one, counted),
        "part": (parts, shape, exact),
        "part_beside": (parts, one, torch.int32 if counted == torch.int32 else exact),
        "part_mass": (parts, per_head, exact),
    }
    # zeros: edges that belong to no row, as padding has them, are never written
    make = torch.zeros if edges.padded and result.kind == "edge" else torch.empty
    return {
        name: make((sizes[name][0], *sizes[name][1]), dtype=sizes[name][2], device=edges.other.device)
        for name in PARAMETERS[result.kind]
    }


def _finished(
    form: KernelForm, result: Result, made: dict[str, Tensor], plan: Any, edges: Edges
) -> list[Tensor]:
    """Return the tensors of a result once segments of hubs, or the sums of programs, are merged."""
    if result.kind in ("shared", "weight"):
        return [made["part"].sum(0).to(form.kind_of(result))]
    if result.kind == "place":
        return [made["part"].view(-1, edges.places, *form.shape_of(result)).sum(0).to(form.kind_of(result))]
    if result.kind == "winner" and plan.num_hubs:  # their segments are not compared
        return [made["out"].index_fill_(0, plan.hubs, TIED)]
    if result.kind not in ("edge", "flags", "winner") and plan.num_hubs:
        flat = [each.flatten(1) for each in made.values()]
        if result.kind == "sum":
            import_module("weft.kernels.triton.plan").merge_sums(plan, flat[1], flat[0], edges.indptr)
        elif result.kind == "softmax":
            out, beside, *parts = made.values()
            import_module("weft.kernels.triton.steps").merge_softmax(plan, *parts, out, beside)
        else:
            merge = import_module("weft.kernels.triton.extreme").merge_extremes
            merge(plan, flat[2], flat[3], flat[0], flat[1], maximum=result.kind == "max")
    return [made[name] for name in ("out", "beside") if name in made]
