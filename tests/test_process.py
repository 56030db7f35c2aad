"""How a process takes memory, waits and computes: set before torch is there, never over the user's word."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from weft import machine, process
from weft.errors import InputError, WeftWarning

# Tensors of 8 MiB between small ones that stay: where large blocks come from the heap, it is full of holes.
HOLES = """
from weft import process
process.prepare()
import os, torch
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
torch.ones(1 << 23).sum()
before, kept = resident(), []
for turn in range(20):
    large = [torch.ones(1 << 21) for _ in range(16)]
    kept.append([torch.ones(1 << 10) for _ in range(16)])
    del large
print(os.environ["THP_MEM_ALLOC_ENABLE"], (resident() - before) >> 20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size from /proc")
def test_what_is_freed_goes_back_to_the_system_and_a_choice_of_the_user_stays() -> None:
    for given, shown in (({}, "1"), ({"THP_MEM_ALLOC_ENABLE": "0"}, "0")):
        plain = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
        told = subprocess.run(
            [sys.executable, "-c", HOLES], env={**plain, **given}, capture_output=True, text=True, timeout=120
        )
        assert told.returncode == 0, told.stderr
        chosen, grown = told.stdout.split()
        assert chosen == shown
        assert int(grown) < 16, "128 MiB were taken and freed in each turn"


def environment_without(*names: str, **given: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in names} | given


def settings_after(code: str, **given: str) -> dict[str, str]:
    """Return the environment of a fresh Python after some code."""
    names = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS")
    code += f"; import os; print(*(os.environ.get(name) for name in {names}))"
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=environment_without(*names, **given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(zip(names, told.stdout.split()))


def test_steps_that_take_the_same_memory_again_have_no_page_faults() -> None:
    code = """
import resource, torch
from weft.process import kept_memory, prepare
prepare()
def faults(size=1 << 19):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        torch.zeros(size)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
given_back = faults()
with kept_memory():
    faults()
    kept = faults()
print(given_back, kept, faults(1 << 20))  # no place that was kept is as large
"""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    plain |= {"THP_MEM_ALLOC_ENABLE": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=plain, capture_output=True, text=True, check=True)
    given_back, kept, after = map(int, done.stdout.split())
    assert kept < 0.1 * given_back
    assert after > given_back


def test_threads_sleep_wherever_weft_is_used_before_torch() -> None:
    cores = str(machine.usable_cores())
    sleeping = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": cores}
    untouched = {"OMP_WAIT_POLICY": "None", "OMP_NUM_THREADS": "None"}
    assert settings_after("import weft; weft.errors") == sleeping
    assert settings_after("from weft.cli.main import main; main(['doctor', '--json'])")["OMP_WAIT_POLICY"]
    assert settings_after("import weft") == untouched, "an import changes nothing"
    assert settings_after("import torch, weft; weft.errors") == untouched, "too late: torch has read them"
    own = settings_after("import weft; weft.errors", OMP_WAIT_POLICY="active", OMP_NUM_THREADS="3")
    assert own == {"OMP_WAIT_POLICY": "active", "OMP_NUM_THREADS": "3"}


def test_a_busy_machine_with_spinning_threads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    monkeypatch.setattr(process, "usable_cores", lambda: 4)
    monkeypatch.setattr(os, "getloadavg", lambda: (4.9, 0.0, 0.0))
    process.adapt()  # what this process does itself is no news
    monkeypatch.setattr(os, "getloadavg", lambda: (5.1, 0.0, 0.0))
    with pytest.warns(WeftWarning, match=r"or use weft \(weft\.Graph\) before torch"):
        process.adapt()
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    process.adapt()


def test_a_quota_limits_threads_also_where_torch_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setattr(process, "usable_cores", lambda: 1)
    try:
        torch.set_num_threads(2)
        monkeypatch.setattr(process, "set_by_user", lambda name: True)
        process.adapt()
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(process, "set_by_user", lambda name: False)
        process.adapt()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_only_what_weft_did_not_choose_itself_is_the_users_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(process.CHOSEN, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    process.prepare()
    assert process.set_by_user("OMP_NUM_THREADS")
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert not process.set_by_user("OMP_WAIT_POLICY")


def test_what_weft_chose_for_a_process_is_no_wish_of_the_user_in_those_it_starts() -> None:
    inner = (
        "import weft; weft.errors; from weft import process; print(process.set_by_user('OMP_NUM_THREADS'))"
    )
    outer = """
import os, subprocess, sys, weft
weft.errors
os.environ.update(given.split("=") for given in sys.argv[2:])
subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
"""
    for given, users in (([], "False"), (["OMP_NUM_THREADS=77"], "True")):
        told = subprocess.run(
            [sys.executable, "-c", outer, inner, *given],
            env=environment_without("OMP_NUM_THREADS", process.CHOSEN),
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert told.stdout.split() == [users], told.stderr


# Tiles


def processor(monkeypatch: pytest.MonkeyPatch, folder: Path, flags: str) -> None:
    monkeypatch.setattr(process, "_CPU", folder / "cpuinfo")
    (folder / "cpuinfo").write_text(f"processor\t: 0\nflags\t\t: fpu sse2 {flags}\n")
    process.tiles_work.cache_clear()


def test_forbidden_tiles_are_noticed_and_done_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(process.ONEDNN, raising=False)
    try:
        processor(monkeypatch, tmp_path, "avx512_bf16")
        assert process.ONEDNN not in process.environment()
        processor(monkeypatch, tmp_path, "avx512_bf16 amx_bf16")
        # as a virtual machine that shows tiles and forbids them answers
        monkeypatch.setattr(process, "_TRIAL", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
        monkeypatch.setattr(process, "core_path", lambda: Path("core.so"))
        assert process.environment()[process.ONEDNN] == "AVX512_CORE_BF16"
        with pytest.raises(InputError, match=r"train\.precision: .* ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
            process.check_bfloat16("train.precision")
        monkeypatch.setenv(process.ONEDNN, "AVX2")
        process.check_bfloat16("train.precision")
        processor(monkeypatch, tmp_path, "avx512_bf16 amx_bf16")
        monkeypatch.setattr(process, "_TRIAL", "raise SystemExit(0)")
        assert process.ONEDNN not in process.environment()
    finally:
        process.tiles_work.cache_clear()


def test_the_trial_agrees_with_the_processor() -> None:
    core = process.core_path()
    assert not process.try_tiles(None), "nobody can try"
    if core is None:
        pytest.skip("weft was installed without its native core")
    if not process.has_tiles():
        assert not process.try_tiles(core), "a processor without tiles cannot multiply them"
    else:
        assert process.try_tiles(core) is process.tiles_work()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells a child that its parent has gone")
def test_a_child_ends_whose_parent_went_before_it_could_ask() -> None:
    code = "import sys, time; from weft.process import end_with; end_with(int(sys.argv[1])); time.sleep(60)"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait(timeout=30)
    assert (
        subprocess.run([sys.executable, "-c", code, str(gone.pid)], timeout=30).returncode == -signal.SIGKILL
    )
