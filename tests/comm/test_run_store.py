"""The store of a run: what carries its token is believed, and nothing else that anybody writes there."""

from datetime import timedelta

import pytest

from weft.comm import launch
from weft.comm.failure import Failure
from weft.comm.heartbeat import post_failure, read_failure
from weft.comm.rendezvous import RankPlace, Store, TCPStore, bound_socket, host_store, join
from weft.comm.run_store import RunStore, given_token, new_token
from weft.errors import InputError, WorkerLost

TOKEN = "a token of thirty characters .."


@pytest.fixture
def store() -> TCPStore:
    return host_store(bound_socket("127.0.0.1"), "127.0.0.1", timeout=5.0)


@pytest.fixture
def intruder(store: TCPStore) -> Store:
    """A connection of somebody who reaches the port."""
    return TCPStore("127.0.0.1", store.port, timeout=timedelta(seconds=5), wait_for_workers=False)


def test_values_of_the_run_are_read_and_others_are_not(
    store: TCPStore, intruder: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    ours, theirs = (RunStore(each, TOKEN).within("attempt0") for each in (store, store))
    ours.set("k", "né\nw")
    assert theirs.read("k") == "né\nw"
    assert theirs.read("absent") is None
    proved = bytes(intruder.get("attempt0/k"))
    foreign = RunStore(intruder, "another token of the kind")
    for forged in (b"", b"1", b"?", b"x" * 64 + b" 1", b"\xff\xfe", proved[:-1]):
        intruder.set("attempt0/k", forged)
        assert theirs.read("k") is None
        assert not theirs.has("k")
    foreign.within("attempt0").set("k", "stop")
    intruder.set("attempt0/j", proved)  # what was said of another key
    intruder.set("attempt1/k", proved)  # or in another attempt
    assert theirs.read_all(["k", "j"]) is None
    assert RunStore(store, TOKEN).within("attempt1").read("k") is None
    assert theirs.doubted("k")
    assert not theirs.doubted("absent")
    told = capfd.readouterr().err
    assert told.count("under attempt0/k: it does not carry the run's token (WEFT_TOKEN)") == 1


def test_lines_about_intruders_are_few(
    store: TCPStore, intruder: Store, capfd: pytest.CaptureFixture[str]
) -> None:
    ours = RunStore(store, TOKEN)
    for number in range(50):
        intruder.set(f"k{number}", "x")
        assert ours.read(f"k{number}") is None
    assert len(capfd.readouterr().err.splitlines()) < 10


def test_nobody_else_ends_a_run_or_the_launcher(store: TCPStore, intruder: Store) -> None:
    ours = RunStore(store, TOKEN)
    beats = launch._Beats(ours, 0, 2, 15.0)
    for junk in (b"garbage", b"\xff", b"1 x y", b"done 0 end"):
        intruder.set("attempt0/beat/1", junk)
        beats.due = 0.0
        assert beats.look() is None
    assert beats.watch is not None
    assert beats.watch.gone() == []
    failure = Failure(0, "raised", "ValueError: of nobody").to_json()
    intruder.set("attempt0/failure", failure)
    assert read_failure(ours.within("attempt0")) is None
    post_failure(ours.within("attempt0"), Failure(1, "stalled", "stalled"))
    found = read_failure(ours.within("attempt0"))
    assert found is not None, "what somebody wrote there before does not keep it from being told"
    assert found.rank == 1


def test_a_key_that_is_gone_is_not_waited_for(store: TCPStore, intruder: Store) -> None:
    ours = RunStore(store, TOKEN)
    ours.set("beat/1", "1 0 start")
    assert ours.read("beat/1") == "1 0 start"  # the store has it: writing alone does not wait for that
    intruder.delete_key("beat/1")
    assert ours.read("beat/1") is None  # `get` would wait for the 5 s of the store


def test_ranks_with_different_tokens_are_told_so(store: TCPStore) -> None:
    place = RankPlace(0, 2, 0, 2, "127.0.0.1", store.port, 0, True)
    RunStore(store, "the token of another machine").set("here/1", "1")
    with pytest.raises(WorkerLost, match="rank 1 came with another token; set WEFT_TOKEN") as caught:
        join(RunStore(store, TOKEN), place, timeout=0.2, check=lambda: None)
    assert caught.value.rank == 1


def test_a_token_is_the_users_or_one_that_nobody_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_TOKEN", raising=False)
    assert given_token() == ""
    assert len({new_token() for _ in range(10)}) == 10
    monkeypatch.setenv("WEFT_TOKEN", TOKEN)
    assert new_token() == given_token() == TOKEN
    monkeypatch.setenv("WEFT_TOKEN", "short")
    with pytest.raises(InputError, match="WEFT_TOKEN must have at least 16 characters"):
        new_token()


def test_a_value_is_swapped_where_nobody_was_faster(store: TCPStore, intruder: Store) -> None:
    ours = RunStore(store, TOKEN)
    assert ours.swap("k", None, "a")
    assert not ours.swap("k", None, "b")
    assert ours.swap("k", "a", "c")
    assert not ours.swap("k", "a", "d")
    assert ours.read("k") == "c"
    assert not RunStore(intruder, "another token of the kind").swap("k", "c", "e")
    assert ours.read("k") == "c"
