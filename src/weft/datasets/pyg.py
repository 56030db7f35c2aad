"""PyG objects: `Data` and `HeteroData`, as they are in memory.

PyG saves its objects as pickles, which weft never opens, so this entry takes an object and no path.
"""

from typing import Any

from weft.datasets import datasets
from weft.errors import RecipeError
from weft.graph.graph import Graph


@datasets.add("pyg")
def pyg(*, data: Any = None) -> Graph:
    """Return the graph of a PyG `Data` or `HeteroData` object, which only Python can give."""
    if not hasattr(data, "edge_index") and not hasattr(data, "edge_types"):
        raise RecipeError(
            "data set 'pyg' needs a PyG Data or HeteroData object, which only Python can give: "
            f"open_dataset(name='pyg', data=data); got {type(data).__name__}"
        )
    return Graph.from_pyg(data)
