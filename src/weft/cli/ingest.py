"""Make a graph folder of tables: Parquet, CSV or TSV, gz or not, with ids of your own.

A table is nodes=FILE, nodes.TYPE=FILE, edges=FILE or edges.SOURCE.RELATION.TARGET=FILE; FILE may be a folder
or a pattern, and a table may be given again for more files. triples=FILE has a head, a relation and a tail a
row, by name, and perhaps a split; or triples.train=FILE, triples.val=FILE and triples.test=FILE. What the
columns mean is in the schema, or guessed, shown and kept with --save-schema. The folder is data.path of `weft
train`.

examples:
  weft ingest nodes=people.parquet 'edges=knows/*.parquet' --out graph
  weft ingest edges=follows.csv.gz --save-schema schema.toml --out graph
  weft ingest triples.train=train.tsv triples.val=valid.tsv triples.test=test.tsv --out facts
  weft ingest --schema schema.toml --fix drop-dangling,drop-duplicates --memory 4GB --out graph
  weft ingest --schema schema.toml --engine spark --master spark://host:7077 --out /shared/graph
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from weft.cli.engine import add_engine_arguments, engine_options
from weft.cli.progress import clear_step, telling_share
from weft.errors import RecipeError

if TYPE_CHECKING:
    from weft.pipeline.ingest.problems import Problem
    from weft.pipeline.schema import Schema


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_table_arguments(parser)
    add_engine_arguments(parser)
    parser.add_argument("--out", metavar="DIR", required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a graph that is there")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what commands that read tables have in common."""
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE=FILE", help="nodes=…, edges=…, edges.a.r.b=…, triples=…"
    )
    parser.add_argument("--schema", metavar="FILE", help="TOML file that says what the columns mean")
    parser.add_argument("--save-schema", metavar="FILE", help="write the schema, with what was guessed")
    parser.add_argument("--fix", action="append", default=[], metavar="A,B", help="what to mend: " + FIX_HELP)
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")


# weft.pipeline.ingest.problems has the words; --help does not load it.
FIX_HELP = "drop-dangling, drop-duplicates, drop-null-ids, drop-duplicate-edges, fill-missing"


def run(options: argparse.Namespace) -> int:
    """Read the tables and write the folder."""
    from weft.pipeline.ingest.ingestion import ingest
    from weft.pipeline.ingest.problems import Problem, parse_fixes

    schema = read_tables(options)
    fixes = parse_fixes(options.fix)
    result = ingest(
        schema,
        options.out,
        fixes=fixes,
        **engine_options(options),
        overwrite=options.overwrite,
        say=say,
        watch=telling_share() if sys.stderr.isatty() else None,
    )
    save_schema(schema, options)
    if options.json:
        print(json.dumps(result))
        return 0
    if options.save_schema is None and any(table.startswith(("nodes", "edges")) for table in options.tables):
        say("the columns were read so (--save-schema keeps it):\n" + result["schema"].strip())
    for problem in result["problems"]:
        say(f"{problem['level']}: {Problem(**problem).line()}")
    rate = result["num_edges"] / max(result["seconds"], 1e-9)
    say(
        f"{result['num_nodes']:,} nodes and {result['num_edges']:,} edges in {result['seconds']:.1f} s "
        f"({rate:,.0f} edges/s) are in {result['out']}"
    )
    return 0


def read_tables(options: argparse.Namespace) -> "Schema":
    """Return the schema of the options, with the files of the command line."""
    from weft.pipeline.schema import Schema, add_files, read_schema

    schema = read_schema(options.schema) if options.schema is not None else Schema()
    schema = add_files(schema, options.tables)
    for part, tables in (("nodes", schema.nodes), ("edges", schema.edges)):
        for kind, table in tables.items():
            if not table.files:
                name = kind if isinstance(kind, str) else ".".join(kind)
                raise RecipeError(
                    f"{part}.{name} has no files; give {part}.{name}=FILE or files in the schema"
                )
    return schema


def save_schema(schema: "Schema", options: argparse.Namespace) -> None:
    """Write the schema where it is asked for, its paths counted from where it lies."""
    if options.save_schema is None:
        return
    import os
    from dataclasses import replace

    from weft.format import atomic_write
    from weft.pipeline.schema import Schema

    folder = Path(options.save_schema).parent

    def near(files: list[str]) -> list[str]:
        return [os.path.relpath(path, folder) for path in files]

    nodes = {kind: replace(table, files=near(table.files)) for kind, table in schema.nodes.items()}
    edges = {kind: replace(table, files=near(table.files)) for kind, table in schema.edges.items()}
    named = {kind: table for kind, table in nodes.items() if table.files}
    atomic_write(options.save_schema, Schema(named, edges).to_toml().encode())


def say(line: str) -> None:
    """Tell the person at the terminal."""
    clear_step()
    print(line, file=sys.stderr, flush=True)


def show_problems(problems: "list[Problem]") -> None:
    """Print problems as a table on standard output."""
    from rich.console import Console
    from rich.table import Table

    from weft.pipeline.ingest.problems import show

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("level", "problem", "file", "row", "column", "value", "count", "what"):
        table.add_column(column, overflow="fold", justify="right" if column in ("row", "count") else "left")
    for problem in problems:
        hint = f" (--fix {problem.fix})" if problem.fix else ""
        table.add_row(
            problem.level,
            problem.kind,
            problem.file or problem.table,
            "" if problem.row is None else f"{problem.row:,}",
            problem.column or "",
            "" if problem.value is None else show(problem.value),
            f"{problem.count:,}",
            problem.message + hint,
        )
    # Without a terminal rich assumes 80 columns and would cut paths.
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200).print(table)
