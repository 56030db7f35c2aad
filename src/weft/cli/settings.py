"""The option of commands that take settings."""

import argparse


def add_settings(parser: argparse.ArgumentParser, told: str = "set one option") -> None:
    """Declare `--set KEY=VALUE`, which may be given again."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=told)
