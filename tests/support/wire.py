"""Two machines and a wire between them, as network namespaces: what travels can be late, lost or cut off.

Packets go from the device of one namespace to that of the other through a thread of the test. Needs root,
iproute2 and /dev/net/tun.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

ADDRESSES = ("198.18.77.1", "198.18.77.2")
DEVICE = "wire0"
_SETTINGS = Path("/etc/netns")  # files here stand for those of /etc in a namespace
_TUN = Path("/dev/net/tun")
_SET_DEVICE, _IP_PACKETS, _NO_HEADER = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
_LARGEST = 65536
_TURN = 0.05


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)


def missing() -> str:
    """Return why there can be no such wire here; nothing where there can."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return "network namespaces need iproute2 and root"
    if not _TUN.exists():
        return f"a wire needs {_TUN}"
    try:
        Wire().close()
    except (OSError, subprocess.CalledProcessError) as error:
        return f"network namespaces cannot be made here: {getattr(error, 'stderr', error)}"
    return ""


class Wire:
    """A wire whose ends are in two namespaces, `machines`; whoever made it closes it."""

    def __init__(self) -> None:
        self.machines = (f"weft{os.getpid()}a", f"weft{os.getpid()}b")
        self.cut = False
        """Whether everything is lost."""
        self.delay, self.loss = 0.0, 0.0
        """Seconds that a packet travels, and the share of packets that are lost."""
        self.carried, self.lost = 0, 0
        self._ends: list[int] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            for machine, address in zip(self.machines, ADDRESSES):
                self._add(machine, address)
        except BaseException:
            self.close()
            raise
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Remove the namespaces, and the devices with them."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        for end in self._ends:
            os.close(end)
        for machine in self.machines:
            with suppress(subprocess.CalledProcessError):  # it was not made
                ip("netns", "delete", machine)
            shutil.rmtree(_SETTINGS / machine, ignore_errors=True)
        with suppress(OSError):  # somebody else's are there too
            _SETTINGS.rmdir()

    def _add(self, machine: str, address: str) -> None:
        ip("netns", "add", machine)
        # No name server can be reached from there; these say so at once.
        (_SETTINGS / machine).mkdir(parents=True)
        (_SETTINGS / machine / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (_SETTINGS / machine / "hosts").write_text("".join(f"{each} m{each[-1]}\n" for each in ADDRESSES))
        end = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._ends.append(end)
        made = f"{machine[4:]}"
        fcntl.ioctl(end, _SET_DEVICE, struct.pack("16sH", made.encode(), _IP_PACKETS | _NO_HEADER))
        ip("link", "set", made, "netns", machine)
        ip("-n", machine, "link", "set", made, "name", DEVICE)
        ip("-n", machine, "address", "add", f"{address}/24", "dev", DEVICE)
        ip("-n", machine, "link", "set", DEVICE, "up")
        ip("-n", machine, "link", "set", "lo", "up")

    def _carry(self) -> None:
        """Carry packets until the wire is closed; those of one delay arrive in order."""
        waiting: list[tuple[float, int, int, bytes]] = []
        draw = random.Random(0)
        while not self._over.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                _, _, end, packet = heapq.heappop(waiting)
                with suppress(OSError):  # a full queue: it is lost
                    os.write(end, packet)
            pause = min(waiting[0][0] - now, _TURN) if waiting else _TURN
            for end in select.select(self._ends, [], [], pause)[0]:
                with suppress(OSError):
                    packet = os.read(end, _LARGEST)
                    if self.cut or draw.random() < self.loss:
                        self.lost += 1
                        continue
                    self.carried += 1
                    other = self._ends[1 - self._ends.index(end)]
                    heapq.heappush(waiting, (time.monotonic() + self.delay, self.carried, other, packet))
