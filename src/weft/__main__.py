"""`python -m weft`: the same program as the `weft` command, as torchrun starts it."""

from weft.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
