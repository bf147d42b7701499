"""What a history demands, by the letter of SPEC 1: which lists are valid, and which starts are due."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from inspect import iscoroutinefunction
from zoneinfo import ZoneInfo

from kron.testing.simulator.strict_cron import StrictCron, next_after, parsed
from kron.testing.simulator.trace_repair import Line

PARTS = 4


class CallOracle:
    """Judges the calls of `initialize` without the scheduler's own answer."""

    def __init__(self, was_injected: Callable[[BaseException], bool]) -> None:
        self._was_injected = was_injected

    def is_valid(self, registrations: object) -> bool:
        """Return whether a list must be accepted."""
        return is_valid(registrations)

    def is_store_error(self, error: BaseException) -> bool:
        """Return whether an error was injected into the store."""
        return self._was_injected(error)


def is_valid(registrations: object) -> bool:
    """Return whether a list must be accepted: 4-tuples with unique names, each valid in every part."""
    if not isinstance(registrations, list | tuple) or not all(map(_is_valid_registration, registrations)):
        return False
    names = [name for name, *_ in registrations]
    return len(set(names)) == len(names)


def _is_valid_registration(item: object) -> bool:
    if not isinstance(item, list | tuple) or len(item) != PARTS:
        return False
    name, cron, callback, delay = item
    return (
        isinstance(name, str)
        and name != ""
        and isinstance(cron, str)
        and parsed(cron) is not None
        and iscoroutinefunction(callback)
        and isinstance(delay, timedelta)
        and delay >= timedelta(0)
    )


def unmet(lines: Sequence[Line], zone: str, *, until: int, late_ms: int) -> Iterator[str]:
    """Find minutes at which a registered task was due, did not run, and was not started in time.

    Only the time in which a scheduler was active counts. A clock set back ends the search.
    """
    idle = IdleTasks(ZoneInfo(zone), late_ms)
    lists: dict[object, dict[str, str]] = {}
    open_stops = 0
    for line in lines:
        match line.get("event"):
            case "InitStart":
                lists[line["call"]] = {task["id"]: task["schedule"] for task in line["tasks"]}
            case "InitSuccess":
                # A stop called during the initialization ends it at once.
                idle.register({} if open_stops else lists[line["call"]], line["t"])
            case "RunStart":
                yield from idle.start(line["task"], line["t"])
            case "RunSuccess" | "RunFailure":
                idle.end(line["task"], line["t"])
            case "StopStart" | "UnexpectedShutdown" as end:
                open_stops = open_stops + 1 if end == "StopStart" else 0
                yield from idle.leave(line["t"], crashed=end == "UnexpectedShutdown")
            case "StopEnd":
                open_stops -= 1
            case "Supernatural":
                return
            case _:
                pass
    yield from idle.leave(until, crashed=True)


class IdleTasks:
    """Since when each registered task has waited for its next start."""

    def __init__(self, zone: ZoneInfo, late_ms: int) -> None:
        self._zone = zone
        self._late_ms = late_ms
        self._crons: dict[str, StrictCron] = {}
        self._since: dict[str, int] = {}
        self._running: set[str] = set()

    def register(self, crons: dict[str, str], at: int) -> None:
        """Take the tasks of an accepted list; an invalid expression demands nothing."""
        self._crons = {name: cron for name, text in crons.items() if (cron := parsed(text)) is not None}
        self._since = {name: at for name in self._crons if name not in self._running}

    def start(self, name: str, at: int) -> Iterator[str]:
        """Follow a start."""
        yield from self._check(name, at)
        self._since.pop(name, None)
        self._running.add(name)

    def end(self, name: str, at: int) -> None:
        """Follow the end of a run."""
        self._running.discard(name)
        if name in self._crons:
            self._since[name] = at

    def leave(self, at: int, *, crashed: bool) -> Iterator[str]:
        """Follow the end of an active time."""
        for name in list(self._since):
            yield from self._check(name, at)
        self._crons, self._since = {}, {}
        if crashed:
            self._running.clear()

    def _check(self, name: str, at: int) -> Iterator[str]:
        since = self._since.get(name)
        if since is None:
            return
        due = next_after(self._crons[name], self._zone, since // 1000, until=at // 1000)
        if due is not None and 1000 * due + self._late_ms < at:
            yield f"{name} was due at {due} and not started until {at}"
