"""Log formats: lines for people, for systemd's journal, or JSON lines; without secrets.

The level can change at run time.
"""

import json
import logging
from collections.abc import Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import TypeAlias

from kron.core.errors import one_line
from kron.core.redaction import Redactor
from kron.runtime.journal import EngineEvent
from kron.telemetry.decision_log import DecisionLines
from kron.telemetry.request_trail import CurrentRequest, no_request

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("console", "json", "journal")
ExceptionInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
)
CONSOLE = "%(asctime)s %(levelname)s %(name)s %(message)s"
# The journal of systemd has a time for each line, and reads its priority from the start.
JOURNAL = "%(name)s %(message)s"
PRIORITIES = {"CRITICAL": 2, "ERROR": 3, "WARNING": 4, "INFO": 6, "DEBUG": 7}


class ConsoleFormatter(logging.Formatter):
    """Writes lines for people."""

    layout = CONSOLE

    def __init__(self, redactor: Redactor, current_request: CurrentRequest = no_request) -> None:
        super().__init__(self.layout)
        self._redactor = redactor
        self._current_request = current_request

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text; decisions have a line each."""
        if not isinstance(record.msg, DecisionLines):
            return self._redactor.hide(super().format(record))
        record.asctime, record.message = self.formatTime(record), ""
        head = self.layout % record.__dict__
        texts = record.msg.texts(self._redactor, self._current_request())
        return "\n".join(head + one_line(text) for text in texts)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return a message as one line without control characters: names and errors may contain any."""
        return one_line(super().formatMessage(record))

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - the name that logging calls
        """Return a traceback without control characters but line breaks."""
        return "\n".join(map(one_line, super().formatException(ei).split("\n")))


class JournalFormatter(ConsoleFormatter):
    """Writes lines for the journal of systemd, each with its priority."""

    layout = JOURNAL

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as lines with their priority."""
        head = f"<{PRIORITIES.get(record.levelname, PRIORITIES['INFO'])}>"
        return "\n".join(head + line for line in super().format(record).split("\n"))


class JsonFormatter(logging.Formatter):
    """Writes a JSON object for each line; one with a `decision` can be verified."""

    def __init__(self, redactor: Redactor, current_request: CurrentRequest = no_request) -> None:
        super().__init__()
        self._redactor = redactor
        self._current_request = current_request

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON lines."""
        level = record.levelname.lower()
        if isinstance(record.msg, DecisionLines):
            head = f'{{"at":"{record.msg.at}","level":"{level}","logger":"{record.name}",'
            lines = record.msg.jsons(self._redactor, self._current_request())
            return "\n".join(f"{head}{fields}}}" for fields in lines)
        line: dict[str, object] = {"at": _instant_of(record), "level": level, "logger": record.name}
        request = self._current_request()
        if request is not None:
            # A caller may have sent anything as the id of its request.
            line["request_id"] = self._redactor.hide(request)
        if isinstance(record.msg, EngineEvent):
            line["event"] = record.msg.event
            line |= {name: self._plain(value) for name, value in record.msg.fields.items()}
        else:
            line["message"] = self._redactor.hide(record.getMessage())
        if record.exc_info:
            line["exception"] = self._redactor.hide(self.formatException(record.exc_info))
        return json.dumps(line)

    def _plain(self, value: object) -> object:
        return value if isinstance(value, int | float | None) else self._redactor.hide(str(value))


def _instant_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


FORMATTERS = {"console": ConsoleFormatter, "json": JsonFormatter, "journal": JournalFormatter}


def start_logging(
    *,
    level: str,
    log_format: str,
    secrets: Iterable[str] = (),
    current_request: CurrentRequest = no_request,
) -> None:
    """Log to standard error; every line is redacted."""
    formatter = FORMATTERS[log_format]
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(Redactor(secrets), current_request))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_level() -> str:
    """Return the present level."""
    return logging.getLevelName(logging.getLogger().level).lower()


def set_log_level(level: str) -> None:
    """Change the level of this process."""
    apply_log_level(level)
    logging.getLogger("kron.service").info("log level: %s", level)


def apply_log_level(level: str) -> None:
    """Change the level of this process without a log line."""
    assert level in LOG_LEVELS
    logging.getLogger().setLevel(level.upper())
