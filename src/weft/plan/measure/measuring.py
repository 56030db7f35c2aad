"""All of it together: the model of this machine."""

import torch

from weft import machine
from weft.plan.machine import Machine
from weft.plan.measure import kernels, processes, trials
from weft.plan.measure.fit import fitted


def measure_machine() -> Machine:
    """Return what this machine does in a second; takes some 20 seconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        known, told = kernels.rates()
        sampled = kernels.sampled_edge()
        rates = fitted(known, list(trials.observations()))
    finally:
        torch.set_num_threads(threads)
    alone, joined = processes.tiny_run(1), processes.tiny_run(2)
    latency, bandwidth = processes.link()
    return Machine(
        rates,
        sampled_edge=sampled,
        latency=latency,
        bandwidth=bandwidth,
        resident=int(alone["peak_memory_bytes"]),
        joined=int(joined["peak_memory_bytes"]),
        start_seconds=alone["took"],
        cores=machine.usable_cores(),
        memory=machine.free_memory(),
        measured={
            **told,
            "edges of batches": f"{1 / sampled / 1e6:.1f} M edges/s",
            "messages": f"{latency * 1e6:.0f} µs, {bandwidth / 1e6:.0f} MB/s",
            "start": f"{alone['took']:.1f} s",
        },
    )
