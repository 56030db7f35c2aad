"""First weights by a seed, also where threads make models at the same time."""

import threading

import torch

from weft.layers.seeded import seeded


def test_threads_draw_what_one_draws() -> None:
    drawn: list[torch.Tensor] = []

    def draw() -> None:
        for _ in range(50):
            with seeded(5):
                drawn.append(torch.cat([torch.randn(3) for _ in range(4)]))

    before = torch.get_rng_state()
    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(each, drawn[0]) for each in drawn)
    assert torch.equal(torch.get_rng_state(), before)
