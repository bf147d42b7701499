"""Publishes and tracks tasks with Celery. Only this module needs the package; it is imported on first use."""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from urllib.parse import urlsplit

from celery import Celery
from kombu import Connection, Producer
from kombu.exceptions import ContentDisallowed, DecodeError, OperationalError

from kron.launchers.celery.broker import (
    UNREADABLE,
    Broker,
    BrokerError,
    CeleryState,
    CeleryTask,
    WorkerReplies,
    scheme_of,
)
from kron.launchers.launch import StartWithheldError

# Timeouts of connecting to a broker and of each read or write, in seconds.
CONNECT_S, SOCKET_S = 4, 8
# How long the answers of workers are awaited, in seconds.
REPLIES_S = 2.0
_AMQP: dict[str, object] = {"confirm_publish": True, "read_timeout": SOCKET_S, "write_timeout": SOCKET_S}
_REDIS: dict[str, object] = {"socket_timeout": SOCKET_S, "socket_connect_timeout": CONNECT_S}
# A task is published when the broker confirms it, and an unresponsive broker is noticed.
DEFAULT_OPTIONS = {"amqp": _AMQP, "amqps": _AMQP, "pyamqp": _AMQP, "redis": _REDIS, "rediss": _REDIS}
# Packages that a transport needs, and the extra of Celery that installs each.
_WITH_REDIS = ("redis", "redis")
PACKAGES = {"redis": _WITH_REDIS, "rediss": _WITH_REDIS, "sentinel": _WITH_REDIS, "sqs": ("boto3", "sqs")}

# What decoding a result raises; a backend that is away raises others.
DECODING_ERRORS = (ContentDisallowed, DecodeError, ValueError, TypeError, KeyError, AttributeError)


class Publisher:
    """Publishes tasks; each thread keeps one connection."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Celery's configuration files and environment variables have no effect here.
        self._app = Celery("kron", backend="disabled://", loader="app", set_as_current=False)
        # Celery creates these on first use; create them now, in one thread.
        assert self._app.amqp.router is not None
        assert self._app.amqp.send_task_message is not None
        self._mine = threading.local()

    def publish(self, task: CeleryTask) -> None:
        """Publish a task, or raise BrokerError."""
        kept = getattr(self._mine, "producer", None)
        if kept is not None:
            try:
                self._send(kept, task)
            except StartWithheldError:
                raise
            except Exception:  # noqa: BLE001 - a new connection shows whether the task is at fault
                # The connection may have ended before; if not, the task's id makes a second message safe.
                self._mine.producer = None
                _close(kept.connection)
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
            # The launcher retries, with a backoff.
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_S)
            producer = Producer(connection.channel())
            self._send(producer, task)
        except StartWithheldError:
            _close(connection)
            raise
        except Exception as cause:
            is_temporary = isinstance(cause, (OperationalError, OSError, *_errors_of(connection)))
            _close(connection)
            how = "cannot be reached" if is_temporary else "cannot be used"
            raise BrokerError(f"{how}: {_described(cause)}", retry=is_temporary) from cause
        return producer

    def leave(self) -> None:
        """Close the connection of the calling thread."""
        kept = getattr(self._mine, "producer", None)
        self._mine.producer = None
        _close(None if kept is None else kept.connection, orderly=True)

    def _send(self, producer: Producer, task: CeleryTask) -> None:
        task.check()
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


class CeleryTracker:
    """Reads a result backend, and asks workers over the broker."""

    def __init__(self, broker: Broker, backend: str) -> None:
        _check_package(backend)
        # Celery's configuration files and environment variables have no effect here.
        self._app = Celery("kron", broker=broker.url, backend=backend, loader="app", set_as_current=False)
        self._app.conf.update(
            broker_connection_timeout=CONNECT_S,
            broker_transport_options=_options_of(broker.urls[0], broker.options),
            # Control messages are rare: each has its own connection.
            broker_pool_limit=0,
            # Results are data of other systems: only JSON is read.
            accept_content=["json"],
            result_accept_content=["json"],
        )

    def states(self, task_ids: Sequence[str]) -> dict[str, CeleryState]:
        """Return the state of each task, or raise BrokerError."""
        try:
            return {each: self._state(each) for each in task_ids}
        except Exception as cause:
            raise BrokerError(
                f"the result backend cannot be read: {_described(cause)}", retry=True
            ) from cause

    def _state(self, task_id: str) -> CeleryState:
        """Return the state of a task; a result that cannot be decoded concerns no other task."""
        try:
            meta = self._app.backend.get_task_meta(task_id, cache=False)
            return CeleryState(str(meta["status"]), meta.get("result"), meta.get("traceback"))
        except DECODING_ERRORS as cause:
            return CeleryState(UNREADABLE, _described(cause))

    def ask_workers(self, task_ids: Sequence[str]) -> WorkerReplies:
        """Return which Celery workers have which of the tasks, or raise BrokerError."""
        try:
            replies = self._app.control.broadcast(
                "query_task", arguments={"ids": list(task_ids)}, reply=True, timeout=REPLIES_S
            )
        except Exception as cause:
            raise BrokerError(f"the broker cannot be reached: {_described(cause)}", retry=True) from cause
        answers = {worker: found for reply in replies or () for worker, found in reply.items()}
        tasks = {
            task_id: (worker, str(state[0]))
            for worker, found in answers.items()
            for task_id, state in found.items()
            if task_id in task_ids
        }
        return WorkerReplies(frozenset(answers), tasks)

    def revoke(self, task_id: str) -> None:
        """Make every worker discard a task, and end it where it executes, or raise BrokerError."""
        try:
            self._app.control.revoke(task_id, terminate=True)
        except Exception as cause:
            raise BrokerError(f"the broker cannot be reached: {_described(cause)}", retry=True) from cause


def _check_package(url: str) -> None:
    """Raise BrokerError where the package that an address needs is not installed."""
    package, extra = PACKAGES.get(scheme_of(url), ("celery", ""))
    if find_spec(package) is None:
        raise BrokerError(f"cannot be used without {package}: pip install 'celery[{extra}]'")


def _options_of(url: str, options: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a connection: the defaults of its transport, and the operator's."""
    scheme = scheme_of(url)
    merged = {**DEFAULT_OPTIONS.get(scheme, {}), **options}
    if scheme == "amqps":
        # Without a host name the certificate of any host would be accepted.
        ssl = options.get("ssl")
        merged["ssl"] = {
            "server_hostname": urlsplit(url).hostname,
            **(ssl if isinstance(ssl, Mapping) else {}),
        }
    return merged


def _close(connection: Connection | None, *, orderly: bool = False) -> None:
    """Close a connection in any state; only a working one is closed in an orderly way."""
    if connection is None:
        return
    # The socket of AMQP can be closed without the broker, and might stay open otherwise.
    close = getattr(getattr(connection, "_connection", None), "collect", None)
    if orderly or close is None:
        with suppress(Exception):
            connection.release()
    if close is not None:
        with suppress(Exception):
            close()


def _errors_of(connection: Connection | None) -> tuple[type[Exception], ...]:
    """Return the exceptions that a connection raises when the broker is at fault."""
    return () if connection is None else (*connection.connection_errors, *connection.channel_errors)


def _described(cause: BaseException) -> str:
    """Return the type and the text of an exception."""
    return f"{type(cause).__name__}: {cause}".removesuffix(": ")
