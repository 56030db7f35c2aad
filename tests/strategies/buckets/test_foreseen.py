"""What a plan says of `buckets`: what the tables take, and that it is no way to train a model of layers."""

from weft.strategies.buckets.foreseen import Foreseen, foresee
from weft.strategies.buckets.orders import oracle
from weft.strategies.strategy_cost import cost_of

FREEBASE = {"names": ["entity"], "offsets": [0, 86_054_151], "edges": 338_586_276, "width": 100}


def test_it_is_not_compared_with_models_of_layers() -> None:
    assert "no layers" in (cost_of("buckets").obstacle(2) or "")


def foreseen(**options: object) -> Foreseen:
    return foresee(**FREEBASE, options={"partitions": 16, "buffer": 4, **options})  # type: ignore[arg-type]


def test_tables_that_nobody_has_yet_are_counted() -> None:
    found = foreseen()
    assert (found.order, found.swaps) == ("buffered", oracle(16, 4))
    read = (oracle(16, 4) + 4) * 86_054_151 // 16 * 404
    assert abs(found.bytes_written - read) < 404 * 100, "partitions differ by a row"
    assert found.bytes_read == found.bytes_written + 338_586_276 * 12
    assert foreseen(order="random").swaps > found.swaps
    (_, disk, epoch) = found.told()
    assert disk.startswith("disk: 133 GiB (versions of rows 97.1 GiB")
    assert "swaps, reads" in epoch
    assert found.to_dict()["room"]["disk"]["edges"] == 338_586_276 * 12


def test_partitions_that_are_all_in_memory_stay_there() -> None:
    found = foreseen(partitions=2, buffer=2)
    assert (found.swaps, found.bytes_written) == (0, 0)
