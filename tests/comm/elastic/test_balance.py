"""Which parts move away from a slow worker: by what was measured, and never to and fro."""

from weft.comm.elastic.balance import Decision, Window, decide


def measured(holders: dict[int, int], speed: dict[int, float], first: int = 1) -> Window:
    """What workers take whose parts cost a second each: one at half the speed takes twice as long."""
    busy = {worker: list(holders.values()).count(worker) / speed[worker] for worker in speed}
    return Window(first, first + 2, busy, dict.fromkeys(holders, 1.0))


def after(holders: dict[int, int], decision: Decision) -> dict[int, int]:
    return {**holders, **{move.part: move.target for move in decision.moves}}


EVEN = {part: part // 6 for part in range(12)}
HALF = {0: 1.0, 1: 0.5}


def test_parts_go_from_a_slow_worker_until_all_take_as_long() -> None:
    decision = decide([measured(EVEN, HALF)] * 2, EVEN)
    assert decision is not None
    assert (decision.slow, decision.seconds, decision.expected) == (1, 12.0, 8.0)
    assert [(move.source, move.target) for move in decision.moves] == [(1, 0), (1, 0)]
    assert "worker 1 is slow: part 6 to worker 0, part 7 to worker 0; 8 s" in decision.told
    held = after(EVEN, decision)
    assert decide([measured(held, HALF)] * 2, held, [decision]) is None, "it is balanced now"


def test_what_a_part_costs_counts_not_how_many_there_are() -> None:
    holders = {0: 0, 1: 0, 2: 1, 3: 1}
    window = Window(1, 3, {0: 10.0, 1: 2.0}, {0: 8.0, 1: 2.0, 2: 1.0, 3: 1.0})
    decision = decide([window, window], holders)
    assert decision is not None
    assert [(move.part, move.target) for move in decision.moves] == [(1, 1)]
    assert decision.expected == 8.0


def test_a_worker_that_is_slow_for_a_while_only_keeps_its_parts() -> None:
    slow, well = measured(EVEN, HALF), measured(EVEN, {0: 1.0, 1: 1.0})
    other = measured(EVEN, {0: 0.5, 1: 1.0})
    for windows in ([slow], [slow, well], [well, slow], [other, slow]):
        assert decide(windows, EVEN) is None


def test_what_would_gain_little_is_left_alone() -> None:
    slightly = {0: 1.0, 1: 0.9}
    assert decide([measured(EVEN, slightly)] * 2, EVEN) is None
    alone = {0: 0, 1: 1}  # every worker keeps a part
    assert decide([measured(alone, HALF)] * 2, alone) is None
    assert decide([measured({0: 0}, {0: 1.0})] * 2, {0: 0}) is None


def test_a_part_does_not_go_to_and_fro_while_speeds_change() -> None:
    """Workers take turns at being slow: each way back has to gain twice as much as the one before."""
    holders, past = dict(EVEN), list[Decision]()
    for turn in range(20):
        speed = {turn % 2: 0.5, 1 - turn % 2: 1.0}
        decision = decide([measured(holders, speed)] * 2, holders, past)
        if decision is not None:
            past.append(decision)
            holders = after(holders, decision)
    assert 2 <= len(past) <= 6, "it stops, though never an epoch was balanced"
    once = decide([measured(EVEN, HALF)] * 2, EVEN)
    assert once is not None
    held = after(EVEN, once)
    fair = {0: 1.0, 1: 1.0}
    assert decide([measured(held, fair)] * 2, held, [once]) is not None, "a lasting change is answered"
    assert decide([measured(held, fair)] * 2, held, [once, once]) is None


def test_several_workers_share_what_one_gives_away() -> None:
    holders = {part: part // 4 for part in range(16)}
    speed = {0: 1.0, 1: 1.0, 2: 0.25, 3: 1.0}
    decision = decide([measured(holders, speed)] * 2, holders)
    assert decision is not None
    assert sorted({move.target for move in decision.moves}) == [0, 1, 3]
    assert decision.expected == 5.0
