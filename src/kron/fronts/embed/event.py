"""Events: what a scheduler and its tasks go through, for the log and for whoever listens."""

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
    """Something that happened: its name in the specification's words, when, and to which task if to one."""

    name: str
    at: datetime
    task: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


Listener = Callable[[Event], object]


class Events:
    """Writes events to the log and tells the listener; one that raises is noted and breaks nothing."""

    def __init__(self, listener: Listener | None) -> None:
        if listener is not None and iscoroutinefunction(listener):
            reason = "must be a plain function that takes an event"
            raise InvalidOptionError(option="on_event", value=listener, reason=reason)
        self._listener = listener

    @property
    def wanted(self) -> bool:
        """Say whether anybody reads events."""
        return self._listener is not None or LOGGER.isEnabledFor(logging.INFO)

    def tell(self, name: str, at_ms: int, task: str | None = None, **details: object) -> None:
        """Write one event and pass it on."""
        if not self.wanted:
            return
        LOGGER.info("%s%s %s", name, "" if task is None else f" {task}", details or "")
        if self._listener is None:
            return
        event = Event(name=name, at=EPOCH + timedelta(milliseconds=at_ms), task=task, details=details)
        try:
            self._listener(event)
        except Exception:
            LOGGER.exception("on_event raised at %s", name)
