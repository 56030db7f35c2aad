"""Labels and splits: any value becomes a class, and what would make an evaluation a lie is told."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.pipeline.engines.base import name
from weft.pipeline.ingest.columns import (
    Array,
    ListEncoder,
    WrongRows,
    categories,
    imbalance,
    label_expression,
)
from weft.pipeline.ingest.files import BIG, INTEGER, LIST, REAL, TEXT
from weft.pipeline.ingest.problems import Problems, show
from weft.pipeline.ingest.sources import TableFiles
from weft.pipeline.schema import SPLIT_WORDS, SPLITS

if TYPE_CHECKING:
    import pyarrow as pa

# Numbers are believed to be classes where there are few, or enough nodes of each to learn from.
FEW, ROWS_A_CLASS = 50, 20
_WORDS = {**SPLIT_WORDS, "": ("", "none", "unlabelled", "unlabeled", "unused")}


class TargetArrays:
    """The arrays y, train_mask, val_mask and test_mask of a table of nodes, or of edges."""

    def __init__(
        self,
        source: TableFiles,
        label: str | None,
        split: str | Mapping[str, str] | None,
        *,
        what: str = "node",
    ) -> None:
        self.source, self.label, self.split, self.what = source, label, split, what
        self.expressions: dict[str, str] = {}
        self.outputs: dict[str, tuple[Any, tuple[int, ...]]] = {}
        self.classes: list[str] = []
        self.lists: ListEncoder | None = None
        self.chosen = dict.fromkeys(SPLITS, 0)
        self.bad_split, self.bad_list = WrongRows(), WrongRows()
        self.unlabelled, self.both = WrongRows(), WrongRows()
        self._prepare_label()
        self._prepare_split()

    def _prepare_label(self) -> None:
        import pyarrow as pa

        if self.label is None:
            return
        if self.source.kinds[self.label] == LIST:
            self.lists = ListEncoder(self.source, self.label)
            self.expressions["y"] = self.lists.expression
            self.outputs["y"] = np.float32, (self.lists.width,)
            self.classes = [str(index) for index in range(self.lists.width)]
            return
        self.expressions["y"] = label_expression(self.source, self.label)
        counts = dict(categories(self.source, self.expressions["y"]))
        self.none = counts.pop("-1", 0)  # everybody's way to say "no label"
        self.sizes = counts
        self.classes = list(counts)
        self._words = pa.array(self.classes, pa.string())
        self._counts = np.zeros((len(self.classes) + 1, len(SPLITS)), dtype=np.int64)
        self.outputs["y"] = np.int64, ()

    def _prepare_split(self) -> None:
        if isinstance(self.split, str):
            self.expressions["split"] = f"lower(trim(CAST({name(self.split)} AS STRING)))"
        elif self.split is not None:
            for part, column in self.split.items():
                self.expressions[f"{part}_mask"] = f"TRY_CAST({name(column)} AS BOOLEAN)"
        parts = SPLITS if isinstance(self.split, str) else tuple(self.split or ())
        self.outputs |= {f"{part}_mask": (np.bool_, ()) for part in parts}

    def read(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        """Return the labels and masks of a batch."""
        arrays = self._masks(batch, start)
        if self.label is not None:
            arrays["y"] = self._labels(batch.column("y"), start)
        self._examine(arrays, start)
        return arrays

    def _labels(self, values: "pa.Array", start: int) -> Array:
        import pyarrow.compute as pc

        if self.lists is not None:
            rows = self.lists.encode(values, start)
            wrong: Array = ~np.isin(rows, (0, 1)) & np.isfinite(rows)
            self.bad_list.add(np.asarray(wrong.any(axis=1)), start)
            return rows
        index = pc.fill_null(pc.index_in(values, self._words), -1)
        labels: Array = index.to_numpy(zero_copy_only=False).astype(np.int64)
        return labels

    def _masks(self, batch: "pa.RecordBatch", start: int) -> dict[str, Array]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not isinstance(self.split, str):
            return {
                f"{part}_mask": batch.column(f"{part}_mask").fill_null(False).to_numpy(zero_copy_only=False)
                for part in (self.split or ())
            }
        words = batch.column("split").fill_null("")
        known = np.zeros(len(words), dtype=np.bool_)
        masks = {}
        for part, spellings in _WORDS.items():
            chosen = pc.is_in(words, pa.array(spellings)).to_numpy(zero_copy_only=False)
            known |= chosen
            if part:
                masks[f"{part}_mask"] = chosen
        self.bad_split.add(~known, start)
        return masks

    def _examine(self, arrays: Mapping[str, Array], start: int) -> None:
        masks = [(part, arrays[f"{part}_mask"]) for part in SPLITS if f"{part}_mask" in arrays]
        for part, mask in masks:
            self.chosen[part] += int(mask.sum())
        if len(masks) > 1:
            self.both.add(np.sum([mask for _, mask in masks], axis=0) > 1, start)
        labels = arrays.get("y")
        if labels is None or labels.ndim == 2:
            return
        # An edge without a label is a message all the same.
        if "train_mask" in arrays and self.what == "node":
            self.unlabelled.add(arrays["train_mask"] & (labels < 0), start)
        for part, mask in masks:
            self._counts[:, SPLITS.index(part)] += np.bincount(labels[mask] + 1, minlength=len(self._counts))

    def finish(self, problems: Problems) -> None:
        """Tell of what is wrong or unusual."""
        self._finish_split(problems)
        if self.lists is not None:
            self.lists.finish(problems)
            self.source.report(
                problems, "error", "label-value", self.bad_list.first, count=self.bad_list.count,
                column=self.label, told=lambda _: "a list of labels holds 0 and 1 only",
            )  # fmt: skip
        elif self.label is not None:
            self._finish_label(problems)

    def _finish_split(self, problems: Problems) -> None:
        report = self.source.report
        if isinstance(self.split, str):
            raw = self.source.look_up({"v": f"CAST({name(self.split)} AS STRING)"}, self.bad_split.first)
            report(
                problems, "error", "split-value", self.bad_split.first, count=self.bad_split.count,
                values=[raw[place][0] for place in self.bad_split.first], column=self.split,
                told=lambda value: f"split {show(value)}: expected train, val, test or nothing",
            )  # fmt: skip
        report(
            problems, "error", "split-leak", self.both.first, count=self.both.count,
            told=lambda _: f"the {self.what} is in two splits at once",
        )  # fmt: skip
        if self.split is not None and not self.chosen["train"]:
            problems.add("error", "empty-split", self.source.table, f"no {self.what} is in the train split")

    def _finish_label(self, problems: Problems) -> None:
        table, column = self.source.table, self.label
        if not self.classes:
            problems.add("error", "no-label", table, "the column holds no label at all", column=column)
            return
        if self.none:
            message = f"label -1 is taken as no label ({self.none:,} rows)"
            problems.add("note", "no-label", table, message, column=column)
        fraction = next((word for word in self.classes if "." in word), None)
        if fraction is not None and self.source.kinds[str(column)] in (REAL, TEXT) and _is_number(fraction):
            message = f"{fraction} is no class: labels are whole numbers or words"
            problems.add("error", "label-value", table, message, column=column, value=fraction)
        self._tell_many(problems)
        told_sizes = imbalance(self.sizes)
        if told_sizes:
            problems.add("warning", "class-imbalance", table, told_sizes, column=column)
        self.source.report(
            problems, "error", "train-without-label", self.unlabelled.first, count=self.unlabelled.count,
            column=column, told=lambda _: "a node of the train split has no label",
        )  # fmt: skip
        self._missing_in_train(problems)

    def _tell_many(self, problems: Problems) -> None:
        """Warn where labels are hardly classes: a number for every few nodes, or about as many as nodes."""
        rows, count = sum(self.sizes.values()), len(self.classes)
        number = self.source.kinds[str(self.label)] in (INTEGER, BIG, REAL)
        if count > (max(FEW, rows // ROWS_A_CLASS) if number else max(1000, rows // 2)):
            what = f"{count:,} different {'numbers' if number else 'values'} in {rows:,} rows"
            message = f"{what} were taken as {count:,} classes: is it an id or a quantity?"
            problems.add("warning", "many-classes", self.source.table, message, column=self.label)

    def _missing_in_train(self, problems: Problems) -> None:
        if not self.chosen["train"]:
            return
        unseen = [
            word
            for word, (train, *others) in zip(self.classes, self._counts[1:].tolist())
            if not train and sum(others)
        ]
        if unseen:
            message = f"class {unseen[0]!r} is in val or test but never in train"
            shown = {"column": self.label, "count": len(unseen)}
            problems.add("warning", "class-not-in-train", self.source.table, message, **shown)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
