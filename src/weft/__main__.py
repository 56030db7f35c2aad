"""`python -m weft`: the same program as the `weft` command, as torchrun starts it."""

try:
    from weft.comm.signals import ended_by_signals

    with ended_by_signals():  # importing the command takes a while, too
        from weft.cli.main import main

        code = main() if __name__ == "__main__" else 0
except KeyboardInterrupt:  # before there is a command that could answer
    raise SystemExit(130) from None

if __name__ == "__main__":
    raise SystemExit(code)
