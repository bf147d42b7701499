"""Publishing tasks as Celery's own clients do. This module alone needs Celery; it is loaded on first use."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from urllib.parse import urlsplit

from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import OperationalError

from kron.launchers.celery.broker import Broker, BrokerError, CeleryTask, scheme_of

# How long connecting, and each word from or to a broker, may take, in seconds.
CONNECT_S, WORD_S = 4, 8
_AMQP: dict[str, object] = {"confirm_publish": True, "read_timeout": WORD_S, "write_timeout": WORD_S}
_REDIS: dict[str, object] = {"socket_timeout": WORD_S, "socket_connect_timeout": CONNECT_S}
# A task counts as published when the broker says so, and a broker that falls silent is noticed.
USUAL_OPTIONS = {"amqp": _AMQP, "amqps": _AMQP, "pyamqp": _AMQP, "redis": _REDIS, "rediss": _REDIS}
# Packages that would be missed without being named, and the extra of Celery's that brings each.
_WITH_REDIS = ("redis", "redis")
PACKAGES = {"redis": _WITH_REDIS, "rediss": _WITH_REDIS, "sentinel": _WITH_REDIS, "sqs": ("boto3", "sqs")}


class Publisher:
    """Publishes tasks; each thread has a connection of its own, and keeps it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Neither Celery's configuration files nor its variables in the environment count here.
        self._app = Celery("kron", backend="disabled://", loader="app", set_as_current=False)
        # What Celery makes when it is first asked for is made now, by one thread.
        assert self._app.amqp.router is not None
        assert self._app.amqp.send_task_message is not None
        self._mine = threading.local()

    def publish(self, task: CeleryTask) -> None:
        """Publish a task, or raise BrokerError."""
        kept = getattr(self._mine, "producer", None)
        if kept is not None:
            try:
                self._send(kept, task)
            except Exception:  # noqa: BLE001 - whatever it is, a new connection has it too, or has not
                # It may have ended long ago; if not, the task's id makes a second message safe.
                self._mine.producer = None
                _let_go(kept.connection)
            else:
                return
        self._mine.producer = self._publish_anew(task)

    def _publish_anew(self, task: CeleryTask) -> Producer:
        """Publish a task over a new connection, to the first address that takes it."""
        failed = BrokerError("has no address")
        for url in self._broker.urls:
            try:
                return self._publish_to(url, task)
            except BrokerError as error:
                failed = error
        raise failed

    def _publish_to(self, url: str, task: CeleryTask) -> Producer:
        _check_package(url)
        connection = None
        try:
            connection = Connection(
                url, connect_timeout=CONNECT_S, transport_options=_options_of(url, self._broker.options)
            )
            # Further tries are the launcher's, which waits between them.
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_S)
            producer = Producer(connection.channel())
            self._send(producer, task)
        except Exception as cause:
            passing = isinstance(cause, (OperationalError, OSError, *_errors_of(connection)))
            _let_go(connection)
            how = "cannot be reached" if passing else "cannot be used"
            raise BrokerError(f"{how}: {_said(cause)}", again=passing) from cause
        return producer

    def leave(self) -> None:
        """Let go of the connection of the thread that calls, which publishes no more."""
        kept = getattr(self._mine, "producer", None)
        self._mine.producer = None
        _let_go(None if kept is None else kept.connection, farewell=True)

    def _send(self, producer: Producer, task: CeleryTask) -> None:
        self._app.send_task(
            task.name,
            task.args,
            task.kwargs,
            task_id=task.task_id,
            queue=task.queue,
            headers=task.headers,
            producer=producer,
            retry=False,
        )


def _check_package(url: str) -> None:
    package, extra = PACKAGES.get(scheme_of(url), ("celery", ""))
    if find_spec(package) is None:
        raise BrokerError(f"cannot be used without {package}: pip install 'celery[{extra}]'")


def _options_of(url: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a connection: what is usual for its kind, and what the operator says."""
    scheme = scheme_of(url)
    merged = {**USUAL_OPTIONS.get(scheme, {}), **options}
    if scheme == "amqps":
        # Without a name to look for, the certificate of any host would do.
        said = options.get("ssl")
        merged["ssl"] = {
            "server_hostname": urlsplit(url).hostname,
            **(said if isinstance(said, Mapping) else {}),
        }
    return merged


def _let_go(connection: Connection | None, *, farewell: bool = False) -> None:
    """Let go of a connection, whatever state it is in; only one that works is worth a farewell."""
    if connection is None:
        return
    # What AMQP is spoken over can be closed without the broker, and else might stay open.
    close = getattr(getattr(connection, "_connection", None), "collect", None)
    if farewell or close is None:
        with suppress(Exception):
            connection.release()
    if close is not None:
        with suppress(Exception):
            close()


def _errors_of(connection: Connection | None) -> tuple[type[Exception], ...]:
    """Return what a connection raises when the broker is at fault."""
    return () if connection is None else (*connection.connection_errors, *connection.channel_errors)


def _said(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}".removesuffix(": ")
