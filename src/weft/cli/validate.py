"""Tell everything that is wrong with the tables of a graph, with file, row and value; write nothing.

The arguments are those of `weft ingest`. The exit code is 2 where there are errors.

examples:
  weft validate nodes=people.parquet 'edges=knows/*.parquet'
  weft validate --schema schema.toml --fix drop-dangling --json
"""

import argparse
import json

from weft.cli.ingest import add_table_arguments, read_tables, save_schema, say, show_problems
from weft.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    add_table_arguments(parser)
    parser.add_argument("--memory", metavar="SIZE", help="most that it takes (half of what is free)")


def run(options: argparse.Namespace) -> int:
    """Look at the tables and show the problems."""
    from weft.pipeline.ingest.problems import parse_fixes
    from weft.pipeline.validate import validate

    schema = read_tables(options)
    problems, schema = validate(schema, fixes=parse_fixes(options.fix), memory=options.memory)
    save_schema(schema, options)
    errors, warnings = len(problems.errors), len(problems.of("warning"))
    if options.json:
        found = [problem.as_json() for problem in problems.found]
        print(json.dumps({"errors": errors, "warnings": warnings, "problems": found}))
    elif problems.found:
        order = ("error", "warning", "note")
        show_problems(sorted(problems.found, key=lambda problem: order.index(problem.level)))
    say(f"{errors} errors, {warnings} warnings" if problems.found else "nothing is wrong with the tables")
    return InputError.exit_code if errors else 0
