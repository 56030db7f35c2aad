"""What is to be predicted of edges, and their split: the edge data `label` and `split` of an edge table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.pipeline.engines.base import name
from weft.pipeline.ingest.columns import Array, WrongRows
from weft.pipeline.ingest.problems import Problems, show
from weft.pipeline.ingest.sources import TableFiles
from weft.pipeline.ingest.targets import TargetArrays
from weft.pipeline.schema import SPLITS, Feature

if TYPE_CHECKING:
    import pyarrow as pa


class EdgeTargetArrays:
    """The arrays `label`, classes (-1: none) or numbers (NaN: none), and `split`, 0 … 2 (-1: none)."""

    def __init__(
        self, source: TableFiles, label: Feature | None, split: str | Mapping[str, str] | None
    ) -> None:
        self.source = source
        self.number = label.column if label is not None and label.encode == "number" else None
        named = label.column if label is not None and self.number is None else None
        self.targets = TargetArrays(source, named, split, what="edge")
        self.expressions = dict(self.targets.expressions)
        self.outputs: dict[str, tuple[Any, tuple[int, ...]]] = {}
        if self.number is not None:
            self.expressions["label"] = source.number(self.number, "DOUBLE")
            self.expressions["given"] = f"{name(self.number)} IS NOT NULL"
            self.outputs["label"] = np.float32, ()
        elif named is not None:
            self.outputs["label"] = self.targets.outputs["y"]
        if split is not None:
            self.outputs["split"] = np.int8, ()
        self.wrong = WrongRows()

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in order; none where numbers are predicted."""
        return self.targets.classes

    def read(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        """Return the labels and splits of a batch."""
        held = self.targets.read(batch, start)
        found: dict[str, Array] = {}
        if "label" in self.outputs:
            found["label"] = held["y"] if self.number is None else self._numbers(batch, start)
        if "split" in self.outputs:
            found["split"] = np.full(batch.num_rows, -1, np.int8)
            for index, part in enumerate(SPLITS):
                if f"{part}_mask" in held:
                    found["split"][held[f"{part}_mask"]] = index
        return found

    def _numbers(self, batch: "pa.RecordBatch", start: int) -> Array:
        values = batch.column("label")
        found: Array = values.to_numpy(zero_copy_only=False).astype(np.float32)
        given = batch.column("given").to_numpy(zero_copy_only=False)
        self.wrong.add(given & (values.is_null().to_numpy(zero_copy_only=False) | np.isinf(found)), start)
        return found

    def finish(self, problems: Problems) -> None:
        """Tell of what is wrong or unusual."""
        self.targets.finish(problems)
        if self.number is not None:
            raw = self.source.look_up({"v": f"CAST({name(self.number)} AS STRING)"}, self.wrong.first)
            self.source.report(
                problems, "error", "label-value", self.wrong.first, count=self.wrong.count,
                values=[raw[place][0] for place in self.wrong.first], column=self.number,
                told=lambda value: f"{show(value)} where a finite number is needed, or nothing",
            )  # fmt: skip


class FileSplits:
    """The array `split` of edges whose files tell it."""

    def __init__(self, source: TableFiles, splits: Mapping[Path, str]) -> None:
        self.expressions = {"file_row": "1"}
        self.outputs: dict[str, tuple[Any, tuple[int, ...]]] = {"split": (np.int8, ())}
        self._ends = np.asarray(source.offsets[1:], np.int64)
        self._codes = np.asarray([SPLITS.index(splits[file.path]) for file in source.files], np.int8)

    def read(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        """Return the splits of a batch."""
        places = np.arange(start, start + batch.num_rows)
        return {"split": self._codes[np.searchsorted(self._ends, places, side="right")]}

    def finish(self, problems: Problems) -> None:
        """Tell nothing: files were there."""
