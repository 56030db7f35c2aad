"""What crosses the network between the ranks of a run and when, one policy a file, entered by name.

exchange = make_exchange({"name": "sampled", "p": 0.1}, plan, group, clock)
rows = exchange.gather(h)                  # the halo rows; gradients return to their owners in backward
"""

from weft.exchanges.base import Exchange, check_exchange, exchanges, make_exchange

__all__ = ["Exchange", "check_exchange", "exchanges", "make_exchange"]
