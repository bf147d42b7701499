"""The fleet: real `kron worker` processes and an API, killed, frozen, stopped and started again."""

import signal
import socket
import time
from pathlib import Path
from random import Random

from tests.chaos.story import Story, now_ms
from tests.service.server import Process

# How long a lease lasts here, and for how long a worker is frozen: for a part of it, or well beyond it.
LEASE_MS = 5_000
LEAST_FREEZE_S, MOST_FREEZE_S = 0.3, 9.0
LEAST_REST_S, MOST_REST_S = 0.0, 1.5
# How long a process may take until it can be told to stop, and how often it is looked at.
UP_S, LOOK_S = 60.0, 0.05
API = "api"


class Seat:
    """A place for one process: who sits there now, and what is to be done with it next, and when."""

    def __init__(self, name: str, words: list[str]) -> None:
        self.name = name
        self.words = words
        self.process: Process | None = None
        self.is_frozen = False
        self.due = 0.0


class Fleet:
    """Some seats for processes on one store."""

    def __init__(self, folder: Path, store: str, *, workers: int, sharing: str, story: Story) -> None:
        self._folder = folder
        self._story = story
        self._variables = {
            "KRON_STORE": store,
            "KRON_WORKERS": sharing,
            "KRON_LEASE_MS": str(LEASE_MS),
            "KRON_TICK_MS": "500",
            "KRON_DRAIN_MS": "20000",
            "KRON_LOG_LEVEL": "warning",
        }
        self.port = free_port()
        self.seats = [Seat(f"worker {number}", ["worker"]) for number in range(1, workers + 1)]
        self.seats.append(Seat(API, ["serve", "--port", str(self.port)]))
        self.logs: list[tuple[str, list[str]]] = []

    @property
    def url(self) -> str:
        """Return where the API is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, seat: Seat) -> None:
        """Seat a new process."""
        seat.process = Process(*seat.words, folder=self._folder, **self._variables)
        self.logs.append((f"{seat.name}, {seat.process.pid}", seat.process.log))
        seat.due = time.monotonic()

    def start_all(self) -> None:
        """Seat a process everywhere where none is, and wake those that are frozen."""
        for seat in self.seats:
            if seat.is_frozen:
                self._thaw(seat)
            if seat.process is None:
                self.start(seat)

    def strike(self, seat: Seat, how: str, chance: Random) -> None:
        """Do something to a process; what follows from it is done when it is due."""
        assert seat.process is not None
        self._story.tell(how, f"{seat.name} ({seat.process.pid})")
        if how == "freeze":
            seat.process.signal(signal.SIGSTOP)
            seat.is_frozen = True
            seat.due = time.monotonic() + chance.uniform(LEAST_FREEZE_S, MOST_FREEZE_S)
            return
        seat.process.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        seat.process.ended()
        if "handing over" in "".join(seat.process.log):
            self._story.broken_off.append(now_ms())
        self._clear(seat)
        seat.due = time.monotonic() + chance.uniform(LEAST_REST_S, MOST_REST_S)

    def go_on(self) -> None:
        """Wake who was frozen long enough, and seat somebody where a seat was empty long enough."""
        for seat in self.seats:
            if time.monotonic() < seat.due:
                continue
            if seat.is_frozen:
                self._thaw(seat)
            if seat.process is None:
                self.start(seat)

    def _thaw(self, seat: Seat) -> None:
        assert seat.process is not None
        self._story.thawed.append(now_ms())
        seat.process.signal(signal.SIGCONT)
        self._story.tell("thaw", f"{seat.name} ({seat.process.pid})")
        seat.is_frozen = False

    def idle(self) -> list[Seat]:
        """Return the seats whose process is well."""
        return [seat for seat in self.seats if seat.process is not None and not seat.is_frozen]

    def dead(self) -> list[str]:
        """Return the processes that ended although nobody ended them."""
        return [
            f"{seat.name} ended by itself: {''.join(seat.process.log[-20:])}"
            for seat in self.seats
            if seat.process is not None and seat.process.is_over
        ]

    def stop_all(self) -> list[str]:
        """Stop all in order; return what did not end well."""
        faults = []
        for seat in self.seats:
            if seat.process is not None:
                _wait_for(seat.process)
                seat.process.signal(signal.SIGTERM)
        for seat in self.seats:
            if seat.process is not None:
                code = seat.process.ended()
                if code != 0:
                    faults.append(f"{seat.name} ended with {code}: {''.join(seat.process.log[-20:])}")
                self._clear(seat)
        return faults

    def _clear(self, seat: Seat) -> None:
        assert seat.process is not None
        seat.process.close()
        seat.process = None

    def close(self) -> None:
        """End all, whatever they do."""
        for seat in self.seats:
            if seat.process is not None:
                self._clear(seat)


def _listens(process: Process) -> bool:
    """Say whether a process has come so far that it is told of SIGTERM, or has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return True
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return process.is_over or bool(caught >> (signal.SIGTERM - 1) & 1)


def _wait_for(process: Process) -> None:
    """Wait until a process that was started a moment ago on a busy machine can be told to stop."""
    until = time.monotonic() + UP_S
    while not _listens(process) and time.monotonic() < until:
        time.sleep(LOOK_S)


def free_port() -> int:
    """Return a port that nobody uses now; the API has the same in every life."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
