"""Logging of the service: for people or as JSON lines, without secrets, at a level that can be changed."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime

from kron.core.redaction import Redactor, secrets_in_url
from kron.fronts.service.auth.principal import present_request
from kron.fronts.service.settings import LOG_LEVELS, SECRETS, Settings
from kron.fronts.service.telemetry.decision_log import Lines, Noted
from kron.launchers.spec import HttpSettings, ProcessSettings, read_launcher

# Shorter values of headers, variables and parameters are too plain to be looked for everywhere.
LEAST_VALUE = 8
CONSOLE = "%(asctime)s %(levelname)s %(name)s %(message)s"


class ConsoleFormatter(logging.Formatter):
    """Writes lines for people."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(CONSOLE)
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text; entries have a line each."""
        if not isinstance(record.msg, Lines):
            return self._redactor.hide(super().format(record))
        head = f"{self.formatTime(record)} {record.levelname} {record.name} "
        return "\n".join(head + text for text in record.msg.texts(self._redactor, present_request()))


class JsonFormatter(logging.Formatter):
    """Writes a JSON object for each line; one with a `decision` can be verified."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON lines."""
        level = record.levelname.lower()
        if isinstance(record.msg, Lines):
            head = f'{{"at":"{record.msg.at}","level":"{level}","logger":"{record.name}",'
            lines = record.msg.jsons(self._redactor, present_request())
            return "\n".join(f"{head}{fields}}}" for fields in lines)
        request = self._request()
        line: dict[str, object] = {"at": _instant_of(record), "level": level, "logger": record.name}
        if request is not None:
            line["request_id"] = request
        if isinstance(record.msg, Noted):
            line["event"] = record.msg.event
            line |= {name: self._plain(value) for name, value in record.msg.fields.items()}
        else:
            line["message"] = self._redactor.hide(record.getMessage())
        if record.exc_info:
            line["exception"] = self._redactor.hide(self.formatException(record.exc_info))
        return json.dumps(line)

    def _request(self) -> str | None:
        """Return the id of the request under way; a caller may have sent anything as one."""
        request = present_request()
        return None if request is None else self._redactor.hide(request)

    def _plain(self, value: object) -> object:
        return value if isinstance(value, int | float | None) else self._redactor.hide(str(value))


def _instant_of(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03}Z"


def begin_logging(settings: Settings) -> None:
    """Log to standard error, as much and as the settings say."""
    redactor = Redactor(secrets_of(settings))
    formatter = JsonFormatter if settings.log_format == "json" else ConsoleFormatter
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(redactor))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    # Their lines for each request say nothing that the run's own record does not, except its headers.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)


def present_level() -> str:
    """Return what is logged at present."""
    return logging.getLevelName(logging.getLogger().level).lower()


def set_level(level: str) -> None:
    """Log more or less from now on."""
    assert level in LOG_LEVELS
    logging.getLogger().setLevel(level.upper())
    logging.getLogger("kron.service").info("logging from now on: %s", level)


def secrets_of(settings: Settings) -> list[str]:
    """Return what the settings hold that nobody may read in a log."""
    found = [*secrets_in_url(settings.store_url), *secrets_in_url(settings.jwt_keys or "")]
    found += [settings.secret_of(name) or "" for name in SECRETS]
    broker = settings.broker
    found += [] if broker is None else broker.secrets
    for launcher in (settings.default_launcher, settings.executor):
        found += [] if launcher is None else _secrets_in(launcher)
    return found


def _secrets_in(document: Mapping[str, object]) -> list[str]:
    """Return what a launcher object of the settings holds: passwords, header values, variables."""
    launcher = read_launcher(document)
    if isinstance(launcher, HttpSettings):
        values = [value for _, value in launcher.headers]
        values += secrets_in_url(launcher.url, every_parameter=True)
        return [*secrets_in_url(launcher.url), *(value for value in values if len(value) >= LEAST_VALUE)]
    if isinstance(launcher, ProcessSettings):
        return [value for _, value in launcher.env if len(value) >= LEAST_VALUE]
    return []
