"""`python -m weft`: the same program as the `weft` command, as torchrun starts it."""

try:
    from weft.cli.main import main
except KeyboardInterrupt:  # before there is a command that could answer
    raise SystemExit(130) from None

if __name__ == "__main__":
    raise SystemExit(main())
