"""The fleet: real `kron worker` processes and an API, killed, frozen, stopped and started again."""

import signal
import socket
import time
from pathlib import Path
from random import Random

from tests.chaos.story import Story, now_ms
from tests.service.server import Process
from tests.waiting import wait_for

# The lease TTL, and how long a worker is frozen: for a part of it, or well beyond it.
LEASE_MS = 5_000
LEAST_FREEZE_S, MOST_FREEZE_S = 0.3, 9.0
LEAST_REST_S, MOST_REST_S = 0.0, 1.5
API = "api"


class Slot:
    """A slot for one process, with the time of its next action."""

    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        self.words = words
        self.process: Process | None = None
        self.is_frozen = False
        self.due = 0.0


class Fleet:
    """The processes on one store."""

    def __init__(self, folder: Path, store: str, *, workers: int, sharing: str, story: Story) -> None:
        self._folder = folder
        self._story = story
        self._variables = {
            "KRON_STORE": store,
            "KRON_WORKERS": sharing,
            "KRON_LEASE_MS": str(LEASE_MS),
            "KRON_TICK_MS": "500",
            "KRON_DRAIN_MS": "20000",
            "KRON_LOG_LEVEL": "info",
            # A signature says when a request was made.
            "KRON_SIGNING_SECRET": "of the chaos, with thirty-two characters",
        }
        self.port = free_port()
        self.slots = [Slot(f"worker {number}", ["worker"]) for number in range(1, workers + 1)]
        self.slots.append(Slot(API, ["serve", "--port", str(self.port)]))
        self.logs: list[tuple[str, list[str]]] = []

    @property
    def url(self) -> str:
        """Return the URL of the API."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, slot: Slot) -> None:
        """Start a process in a slot."""
        slot.process = Process(*slot.words, folder=self._folder, **self._variables)
        self.logs.append((f"{slot.name}, {slot.process.pid}", slot.process.log))
        slot.due = time.monotonic()

    def start_all(self) -> None:
        """Start a process in every empty slot, and thaw those that are frozen."""
        for slot in self.slots:
            if slot.is_frozen:
                self.thaw(slot)
            if slot.process is None:
                self.start(slot)

    def strike(self, slot: Slot, how: str, chance: Random) -> None:
        """Kill, freeze or stop a process; it is restarted or thawed when due."""
        if how == "freeze":
            self.freeze(slot)
            slot.due = time.monotonic() + chance.uniform(LEAST_FREEZE_S, MOST_FREEZE_S)
            return
        self.end(slot, how)
        slot.due = time.monotonic() + chance.uniform(LEAST_REST_S, MOST_REST_S)

    def freeze(self, slot: Slot) -> None:
        """Freeze a process until it is thawed."""
        self._tell("freeze", slot).signal(signal.SIGSTOP)
        slot.is_frozen = True

    def end(self, slot: Slot, how: str) -> None:
        """Kill or stop a process, and wait for its end."""
        process = self._tell(how, slot)
        process.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        process.ended()
        if "handing over" in "".join(process.log):
            self._story.broken_off.append(now_ms())
        self._clear(slot)

    def _tell(self, how: str, slot: Slot) -> Process:
        """Note a strike, and return its process."""
        process = slot.process
        assert process is not None
        self._story.tell(how, f"{slot.name} ({process.pid})")
        if how != "stop":
            # The API's worker is a child of it, which holds leases under a process id of its own.
            self._story.struck += [(pid, now_ms()) for pid in (process.pid, *process.children())]
        return process

    def go_on(self) -> None:
        """Thaw the processes that were frozen long enough, and restart those that were down long enough."""
        for slot in self.slots:
            if time.monotonic() < slot.due:
                continue
            if slot.is_frozen:
                self.thaw(slot)
            if slot.process is None:
                self.start(slot)

    def thaw(self, slot: Slot) -> None:
        """Let a frozen process go on."""
        assert slot.process is not None
        slot.process.signal(signal.SIGCONT)
        self._story.tell("thaw", f"{slot.name} ({slot.process.pid})")
        slot.is_frozen = False

    def idle(self) -> list[Slot]:
        """Return the slots whose process runs."""
        return [slot for slot in self.slots if slot.process is not None and not slot.is_frozen]

    def dead(self) -> list[str]:
        """Return the processes that exited on their own."""
        return [
            f"{slot.name} exited on its own: {''.join(slot.process.log[-20:])}"
            for slot in self.slots
            if slot.process is not None and slot.process.is_over
        ]

    def stop_all(self) -> list[str]:
        """Stop all processes gracefully; return those that failed."""
        faults = []
        for slot in self.slots:
            if slot.process is not None:
                _wait_for(slot.process)
                slot.process.signal(signal.SIGTERM)
        for slot in self.slots:
            if slot.process is not None:
                code = slot.process.ended()
                if code != 0:
                    faults.append(f"{slot.name} ended with {code}: {''.join(slot.process.log[-20:])}")
                self._clear(slot)
        return faults

    def _clear(self, slot: Slot) -> None:
        assert slot.process is not None
        slot.process.close()
        slot.process = None

    def close(self) -> None:
        """Kill all processes."""
        for slot in self.slots:
            if slot.process is not None:
                self._clear(slot)


def _listens(process: Process) -> bool:
    """Return whether a process handles SIGTERM already, or has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return True
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return process.is_over or bool(caught >> (signal.SIGTERM - 1) & 1)


def _wait_for(process: Process) -> None:
    """Wait until a process that was just started on a busy machine handles SIGTERM."""
    wait_for(lambda: _listens(process))


def free_port() -> int:
    """Return a free port; the API keeps it over restarts."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
