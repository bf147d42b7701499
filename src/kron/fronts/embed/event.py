"""Events of a scheduler and its tasks, written to the log and passed to the caller's listener."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from inspect import iscoroutinefunction

from kron.core.errors import InvalidOptionError
from kron.core.time.instant import EPOCH

LOGGER = logging.getLogger("kron.scheduler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: its name in the specification, its instant, and its task if it concerns one."""

    name: str
    at: datetime
    task: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


Listener = Callable[[Event], object]


class EventLog:
    """Writes events to the log and calls the listener; an error of the listener is logged and ignored."""

    def __init__(self, listener: Listener | None) -> None:
        if listener is not None and iscoroutinefunction(listener):
            reason = "must be a plain function that takes an event"
            raise InvalidOptionError(option="on_event", value=listener, reason=reason)
        self._listener = listener

    @property
    def enabled(self) -> bool:
        """Say whether events are logged or have a listener."""
        return self._listener is not None or LOGGER.isEnabledFor(logging.INFO)

    def emit(self, name: str, at_ms: int, task: str | None = None, **details: object) -> None:
        """Log one event and pass it to the listener."""
        if not self.enabled:
            return
        LOGGER.info("%s%s %s", name, "" if task is None else f" {task}", details or "")
        if self._listener is None:
            return
        event = Event(name=name, at=EPOCH + timedelta(milliseconds=at_ms), task=task, details=details)
        try:
            self._listener(event)
        except Exception:
            LOGGER.exception("on_event raised at %s", name)
