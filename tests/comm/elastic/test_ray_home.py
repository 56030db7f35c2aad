"""What stands above a Ray of this machine ends all that is below it, orphans too."""

import os
import subprocess
import sys
from pathlib import Path

from weft.comm.elastic.ray_home import children_of, end_below

PROGRAM = """
import ctypes, os, subprocess, sys, time
from weft.comm.elastic.ray_home import children_of, end_below
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
inner = "import subprocess as s, sys; s.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])"
subprocess.run([sys.executable, "-S", "-c", inner])  # who has started it is gone
print(len(children_of(os.getpid())))
end_below(os.getpid())
print(len(children_of(os.getpid())))
"""


def test_orphans_are_found_and_ended() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert told.stdout.split() == ["1", "0"], told.stderr


def test_only_those_below_are_found() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children_of(os.getpid())
        assert children_of(child.pid) == []
        end_below(child.pid)
        assert child.poll() is None
    assert not (Path("/proc") / str(child.pid)).exists()
