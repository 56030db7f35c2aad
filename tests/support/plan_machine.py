"""A machine with round rates, for plans that need none that was measured."""

from weft.plan.machine import Machine

RATES = {
    "steps": 0.0,
    "calls": 1e-5,
    "sent": 0.0,
    "divided": 0.0,
    "fresh": 0.0,
    "products": 1e-10,
    "half_products": 1e-10,
    "edge_values": 1e-10,
    "half_values": 1e-10,
    "edges": 1e-9,
    "attended": 1e-9,
    "attending": 1e-9,
    "masked": 1e-9,
    "gathered": 1e-10,
    "touched": 1e-10,
    "far": 0.0,
    "coded": 1e-9,
    "drawn": 1e-7,
}


def machine() -> Machine:
    """Return it: 4 cores that are together twice as fast as one, 8 GiB, links of 1 GB/s and 0.1 ms."""
    return Machine(
        RATES,
        {name: rate / 2 for name, rate in RATES.items()},
        threads=4,
        call=0.0,
        latency=1e-4,
        bandwidth=1e9,
        resident=300 << 20,
        joined=320 << 20,
        start_seconds=2.0,
        cores=4,
        memory=8 << 30,
        measured={"copies": "10 GB/s"},
    )
