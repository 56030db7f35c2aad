"""Counter draws: the same bits in numpy, torch and C++, and as good as random."""

import ctypes

import numpy as np
import pytest
import torch

from weft import draw
from weft.draw import Stream, fold
from weft.kernels import native, reference

# (seed, stream, epoch, step, layer), id, lane → 32 bits. A change of any would change every saved run.
VECTORS = [
    ((0, 1, 0, 0, 0), 0, 0, 0x78B02A24),
    ((0, 1, 0, 0, 0), 1, 0, 0xBA854E00),
    ((0, 1, 0, 0, 0), 0, 1, 0xC260333F),
    ((0, 1, 0, 0, 0), 1099511627776, 7, 0x43528BD3),
    ((7, 2, 3, 2, 4), 0, 0, 0x294A65F4),
    ((7, 2, 3, 2, 4), 12345, 3, 0x98B3F124),
    ((7, 2, 3, 2, 4), 4611686018427387904, 100, 0x8F7CB60A),
    ((7, 2, 3, 2, 4), 5, 2147483647, 0x05949690),
    ((9223372036854775807, 9, 1000000, 123456, 31), 0, 0, 0xB7181324),
    ((9223372036854775807, 9, 1000000, 123456, 31), 99, 4096, 0xC63DD792),
    ((-1, 3, 0, 1, 0), -1, 5, 0x70B2793C),
    ((-1, 3, 0, 1, 0), 4294967296, 4294967295, 0xA91E5F19),
]
KEYS = {
    (0, 1, 0, 0, 0): 0x7D3ED32EDBFF2631,
    (7, 2, 3, 2, 4): 0x971671F0AA542BA8,
    (9223372036854775807, 9, 1000000, 123456, 31): 0xB12757C077BF8256,
    (-1, 3, 0, 1, 0): 0x3115862D6CA74F38,
}


@pytest.mark.parametrize(("counters", "key"), KEYS.items())
def test_keys_are_what_they_have_always_been(counters: tuple[int, ...], key: int) -> None:
    assert fold(*counters) == key


@pytest.mark.parametrize(("counters", "id_", "lane", "bits"), VECTORS)
def test_numpy_gives_the_written_bits(counters: tuple[int, ...], id_: int, lane: int, bits: int) -> None:
    assert int(draw.draw(fold(*counters), np.array([id_]), lane)[0]) == bits


@pytest.mark.parametrize(("counters", "id_", "lane", "bits"), VECTORS)
def test_torch_gives_the_written_bits(counters: tuple[int, ...], id_: int, lane: int, bits: int) -> None:
    seed, stream, epoch, step, layer = counters
    clock = torch.tensor([seed, epoch, step])
    assert reference.draw(clock, stream, layer, torch.tensor([id_]), torch.tensor([lane])).tolist() == [bits]


def _native(counters: tuple[int, ...], ids: list[int], width: int) -> np.ndarray:
    core = native.library()
    if core is None:
        pytest.skip(f"the native core is {native.describe()}")
    seed, stream, epoch, step, layer = counters
    out = np.zeros((len(ids), width), dtype=np.uint32)
    held = (ctypes.c_int64 * len(ids))(*ids)
    clock = (ctypes.c_int64 * 3)(seed, epoch, step)
    native.check(core.weft_draw(held, len(ids), width, clock, stream, layer, out.ctypes.data, 2), "draw")
    return out


@pytest.mark.parametrize(("counters", "id_", "lane", "bits"), [v for v in VECTORS if v[2] < 100_000])
def test_the_core_gives_the_written_bits(counters: tuple[int, ...], id_: int, lane: int, bits: int) -> None:
    assert int(_native(counters, [id_], lane + 1)[0, lane]) == bits


@pytest.mark.parametrize("level", [0, 1, 2])
def test_all_forms_agree_on_many_draws(level: int) -> None:
    core = native.library()
    if core is None or level > core.weft_detected_level():
        pytest.skip("this machine has no such form")
    counters, ids = (11, Stream.SAMPLE, 4, 9, 1), list(range(-3, 500))
    core.weft_set_level(level)
    got = _native(counters, ids, 37)
    core.weft_set_level(core.weft_detected_level())
    expected = draw.draw(fold(*counters), np.array(ids)[:, None], np.arange(37))
    clock = torch.tensor([11, 4, 9])
    torch_form = reference.draw(clock, Stream.SAMPLE, 1, torch.tensor(ids)[:, None], torch.arange(37))
    assert np.array_equal(got, expected)
    assert np.array_equal(torch_form.numpy(), expected.astype(np.int64))


def _chi_square(counts: np.ndarray) -> float:
    """Return how many standard deviations the chi-square of the counts is from its mean."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
@pytest.mark.parametrize("axis", ["ids", "lanes"])
def test_every_byte_is_uniform(shift: int, axis: str) -> None:
    count = np.arange(1 << 18)
    bits = draw.draw(fold(1, 2), count, 0) if axis == "ids" else draw.draw(fold(1, 2), np.array([7]), count)
    assert abs(_chi_square(np.bincount((bits >> np.uint32(shift)) & 255, minlength=256))) < 5


@pytest.mark.parametrize("neighbour", ["id", "lane", "epoch", "step", "layer", "seed", "stream"])
def test_neighbouring_counters_give_independent_draws(neighbour: str) -> None:
    ids, base = np.arange(1 << 18), {"seed": 3, "stream": 2, "epoch": 5, "step": 1, "layer": 0}
    first = draw.draw(fold(**base), ids, 4)
    if neighbour in base:
        second = draw.draw(fold(**{**base, neighbour: base[neighbour] + 1}), ids, 4)
    else:
        second = draw.draw(fold(**base), ids + (neighbour == "id"), 4 + (neighbour == "lane"))
    pairs = (first >> np.uint32(28)) * 16 + (second >> np.uint32(28))
    assert abs(_chi_square(np.bincount(pairs, minlength=256))) < 5
    correlation = np.corrcoef(first.astype(float), second.astype(float))[0, 1]
    assert abs(correlation) < 5 / np.sqrt(ids.size)


@pytest.mark.parametrize("counter", ["key", "id", "lane"])
def test_one_changed_bit_changes_every_bit_half_of_the_time(counter: str) -> None:
    rng = np.random.default_rng(0)
    ids, lanes = rng.integers(1 << 40, size=4000), rng.integers(1 << 31, size=4000)
    key = fold(5, 1)
    before = draw.draw(key, ids, lanes)
    for bit in range(31):
        after = {
            "key": lambda bit=bit: draw.draw(key ^ (1 << bit), ids, lanes),
            "id": lambda bit=bit: draw.draw(key, ids ^ (1 << bit), lanes),
            "lane": lambda bit=bit: draw.draw(key, ids, lanes ^ (1 << bit)),
        }[counter]()
        flipped = np.unpackbits((before ^ after).view(np.uint8).reshape(-1, 4), axis=1).mean(0)
        assert np.abs(flipped - 0.5).max() < 0.05, f"bit {bit}"


def test_permutations_are_uniform() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(6000):
        order = tuple(draw.permutation(fold(1, Stream.SHUFFLE, epoch), 4).tolist())
        counts[order] = counts.get(order, 0) + 1
    assert len(counts) == 24
    assert abs(_chi_square(np.array(list(counts.values())))) < 5


def test_a_permutation_holds_every_number_once() -> None:
    assert np.array_equal(np.sort(draw.permutation(fold(1, 6), 1000)), np.arange(1000))
    assert draw.permutation(fold(1, 6), 0).shape == (0,)


def test_uniform_and_normal_have_their_moments() -> None:
    ids = np.arange(1 << 18)
    even, bell = draw.uniform(fold(2, 8), ids), draw.normal(fold(2, 8), ids, 3)
    assert 0 <= even.min() < 1e-4
    assert 1 - 1e-4 < even.max() < 1
    assert abs(even.mean() - 0.5) < 0.003
    assert abs(bell.mean()) < 0.01
    assert abs(bell.std() - 1) < 0.01
    assert abs((bell**4).mean() - 3) < 0.1


@pytest.mark.parametrize(
    ("p", "expected"), [(0.0, 0), (0.5, 1 << 31), (1.0, 1 << 32), (-1.0, 0), (2.0, 1 << 32)]
)
def test_threshold_covers_all_draws(p: float, expected: int) -> None:
    assert draw.threshold(p) == expected


def test_streams_keep_their_numbers() -> None:
    assert {stream.name: stream.value for stream in Stream}.items() >= {
        "SAMPLE": 1,
        "DROPOUT": 2,
        "ATTENTION": 3,
        "BOUNDARY": 4,
        "ROUND": 5,
        "SHUFFLE": 6,
        "NEGATIVE": 7,
        "SYNTHETIC": 8,
        "SPLIT": 9,
        "WALK": 10,
    }.items()


# Positions: what uniform sampling draws

# Five positions each of nodes 0, 1 and 2⁴⁰ with 10, 100 and a million edges. Every sample hangs on them.
POSITIONS = [[2, 5, 7, 0, 1], [69, 1, 10, 38, 92], [223903, 842792, 471270, 880153, 385878]]


def test_every_position_and_pair_is_drawn_equally_often() -> None:
    rows = 1500
    worst, scores = 0.0, []
    for degree in range(1, 51):
        for fanout in range(1, 21):
            keys = draw.row_keys(fold(3, Stream.SAMPLE, degree, fanout), np.arange(rows))
            counts, positions = draw.draw_positions(keys, np.full(rows, degree), fanout)
            wanted = min(degree, fanout)
            assert (counts == wanted).all()
            held = np.zeros((rows, degree))
            held[np.repeat(np.arange(rows), wanted), positions] = 1
            assert held.sum() == rows * wanted  # distinct in a row
            if wanted == degree:
                continue
            chance = wanted / degree
            off = held.sum(0) - rows * chance
            squares = (off**2).sum() / (rows * chance * (1 - chance)) * (degree - 1) / degree
            scores.append(normal_score(squares, degree - 1))
            together = (held.T @ held)[~np.eye(degree, dtype=bool)]
            pair = chance * (wanted - 1) / (degree - 1)
            if pair > 0:
                spread = np.sqrt(rows * pair * (1 - pair))
                worst = max(worst, np.abs(together - rows * pair).max() / spread)
    assert np.abs(scores).max() < 4.5
    assert abs(np.mean(scores)) < 0.15
    assert worst < 5.7  # of 0.6 million pairs


def normal_score(squares: float, freedom: int) -> float:
    """Return the standard normal number as likely as a chi-square number (Wilson and Hilferty)."""
    part = 2 / (9 * freedom)
    return float(((squares / freedom) ** (1 / 3) - (1 - part)) / part**0.5)


def test_degree_two_and_fanout_one_draw_both_positions() -> None:
    keys = draw.row_keys(fold(0, Stream.SAMPLE), np.arange(4000))
    _, positions = draw.draw_positions(keys, np.full(4000, 2), 1)
    assert 1850 < positions.sum() < 2150


def test_rows_of_any_degree_and_fanout_share_a_call() -> None:
    keys = draw.row_keys(9, np.arange(6))
    degrees, fanouts = np.array([0, 3, 8, 8, 100, 2]), np.array([4, 4, 4, -1, 0, 1])
    counts, positions = draw.draw_positions(keys, degrees, fanouts)
    assert counts.tolist() == [0, 3, 4, 8, 0, 1]
    assert positions[:3].tolist() == [0, 1, 2]
    assert positions[7:15].tolist() == list(range(8))
    alone = draw.draw_positions(keys[2:3], degrees[2:3], 4)[1]
    assert positions[3:7].tolist() == alone.tolist()


def test_with_replacement_a_row_gets_as_many_as_asked() -> None:
    keys = draw.row_keys(9, np.arange(3))
    counts, positions = draw.draw_positions(keys, np.array([1, 0, 5]), 4, replace=True)
    assert counts.tolist() == [4, 0, 4]
    assert positions[:4].tolist() == [0, 0, 0, 0]
    assert (positions < 5).all()


def test_positions_are_what_they_have_always_been() -> None:
    keys = draw.row_keys(fold(0, Stream.SAMPLE), np.array([0, 1, 2**40]))
    _, positions = draw.draw_positions(keys, np.array([10, 100, 1_000_000]), 5)
    assert positions.reshape(3, 5).tolist() == POSITIONS
