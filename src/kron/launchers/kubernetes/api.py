"""A client of the Kubernetes API: the few verbs Kron uses, over the client of all outgoing requests."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlencode

from kron.launchers.http.client import HttpClient, HttpTarget, request_of, target_of
from kron.launchers.http.response import Response
from kron.launchers.kubernetes.access import ClusterAccess

Document: TypeAlias = dict[str, Any]
# How long a request may take, and how long its connection, in seconds.
REQUEST_S, CONNECT_S = 10.0, 5.0
# The parameter that tells the server how long it may take, and how much longer its answer is awaited.
TIMEOUT, ANSWER_S = "timeout", 2.0
# How long one watch lasts before it is opened again; a watch without bookmarks for longer is given up.
WATCH_S, SILENCE_S = 240, 300.0
# Objects of one page of a list, and the largest response.
PAGE, MAX_RESPONSE = 500, 64 * 1024 * 1024
# Idle connections that are kept: as many as a burst has requests in flight, for each costs a handshake.
MAX_CONNECTIONS = 256
# How often a request that the server has refused for its load is sent again, and the longest wait between.
MAX_TRIES, MAX_WAIT_S = 5, 5.0
MERGE_PATCH = "application/merge-patch+json"
JSON_TYPE = "application/json"


class Resource(NamedTuple):
    """A kind of object: its API group, version, plural name, and what its documents call it."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """Return the `apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, part: str | None = None) -> str:
        """Return the path of all objects, of those of a namespace, of one, or of a subresource of one."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = "" if namespace is None else f"/namespaces/{namespace}"
        return "/".join(filter(None, (f"{root}{inside}/{self.plural}", name, part)))


KRONJOBS = Resource("kron.io", "v1alpha1", "kronjobs", "KronJob")
KRONCALENDARS = Resource("kron.io", "v1alpha1", "kroncalendars", "KronCalendar")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")


class ApiError(Exception):
    """The API server refused a request; `reason` is the one word of its status document.

    `name` is the object that it is about, if the document has one.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, name: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(f"{status} {reason}: {message}".rstrip(": "))
        self.status = status
        self.reason = reason
        self.name = name
        self.retry_after_s = retry_after_s

    @property
    def is_conflict(self) -> bool:
        """Say whether an object is not in the state its writer had read."""
        return self.status == HTTPStatus.CONFLICT and self.reason != "AlreadyExists"

    @property
    def is_missing(self) -> bool:
        """Say whether an object does not exist.

        A server that starts answers 404 for a kind that it does not serve yet, and names no object.
        """
        return self.status == HTTPStatus.NOT_FOUND and bool(self.name)

    @property
    def is_temporary(self) -> bool:
        """Say whether the same request may succeed later."""
        is_unserved = self.status == HTTPStatus.NOT_FOUND and not self.name
        is_busy = self.status == HTTPStatus.TOO_MANY_REQUESTS
        return is_unserved or is_busy or self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class ApiUnavailableError(Exception):
    """The API server cannot be reached, or its response was lost: a write may have been made or not.

    It `may_follow` if the server did not answer in time; the loss of a connection ends its request there too.
    """

    def __init__(self, message: str, *, may_follow: bool = False) -> None:
        super().__init__(message)
        self.may_follow = may_follow


class ResourceList(NamedTuple):
    """The objects of one list and the version of the list, from which a watch continues."""

    items: list[Document]
    version: str


class WatchEvent(NamedTuple):
    """One event of a watch: ADDED, MODIFIED, DELETED or BOOKMARK, and the object."""

    type: str
    object: Document


class WatchExpiredError(Exception):
    """A watch cannot continue from its version: the objects have to be listed again."""


class ApiClient:
    """Sends requests to one API server; `requests` counts them by verb and resource."""

    def __init__(self, access: ClusterAccess, *, request_s: float = REQUEST_S) -> None:
        self.access = access
        self.requests: Counter[tuple[str, str]] = Counter()
        self._request_s = request_s
        self._http = HttpClient(
            tls=access.tls,
            max_kept=MAX_CONNECTIONS,
            server_name=access.server_name,
            proxy=access.proxy,
        )
        self._server = target_of(access.server)

    # --- verbs -------------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Document:
        """Return an object."""
        return await self._call("get", resource, resource.path(namespace, name))

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str | None = None
    ) -> ResourceList:
        """Return all objects, of one namespace if one is given, read page by page."""
        items: list[Document] = []
        token, version = "", ""
        while True:
            query = {"limit": str(PAGE), "continue": token, "labelSelector": labels}
            try:
                page = await self._call("list", resource, resource.path(namespace), query)
            except ApiError as error:
                if error.status != HTTPStatus.GONE or not token:
                    raise
                items, token = [], ""  # the pages have expired: start over
                continue
            items += page.get("items") or []
            metadata = page["metadata"]
            token, version = metadata.get("continue") or "", str(metadata["resourceVersion"])
            if not token:
                return ResourceList(items, version)

    async def create(
        self,
        resource: Resource,
        namespace: str | None,
        document: Document,
        *,
        check: Callable[[], None] = lambda: None,
        within_s: float | None = None,
    ) -> Document:
        """Create an object; `check` is called directly before each time that is sent, and may raise.

        After `within_s` seconds the server gives up, whatever its admission webhooks wait for: the object is
        not created later than that.
        """
        query = {} if within_s is None else {TIMEOUT: f"{within_s:g}s"}
        return await self._call("create", resource, resource.path(namespace), query, document, check=check)

    async def replace(self, resource: Resource, namespace: str, document: Document) -> Document:
        """Replace an object whose `resourceVersion` is still that of the document."""
        path = resource.path(namespace, document["metadata"]["name"])
        return await self._call("update", resource, path, body=document)

    async def patch(self, resource: Resource, namespace: str, name: str, document: Document) -> Document:
        """Merge a document into an object."""
        return await self._call("patch", resource, resource.path(namespace, name), body=document)

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, document: Document
    ) -> Document:
        """Merge a document into an object's status; with a `resourceVersion` only if it is unchanged."""
        path = resource.path(namespace, name, "status")
        return await self._call("patch", resource, path, body=document, part="status")

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        foreground: bool = False,
    ) -> Document:
        """Delete an object; `foreground` keeps it until its dependents are gone."""
        options: Document = {"propagationPolicy": "Foreground" if foreground else "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        return await self._call("delete", resource, resource.path(namespace, name), body=options)

    async def watch(
        self, resource: Resource, namespace: str | None, version: str, *, labels: str | None = None
    ) -> AsyncIterator[WatchEvent]:
        """Yield the changes after a version until the server ends the watch, or raise WatchExpiredError."""
        query = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
            "labelSelector": labels,
        }
        self.requests["watch", resource.plural] += 1
        data, target = self._request("GET", resource.path(namespace), query, None)
        try:
            async with asyncio.timeout(self._request_s):
                connection, response = await self._http.send(
                    data, target, connect_s=CONNECT_S, max_body=MAX_RESPONSE
                )
                if response.status != HTTPStatus.OK:
                    await connection.read_rest(response)
        except (OSError, TimeoutError) as cause:
            raise _unavailable(cause) from cause
        try:
            self._check_watch(response)
            rest = b""
            while True:
                async with asyncio.timeout(SILENCE_S):
                    part = await connection.read_part(response)
                if not part:
                    return
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _event_of(line)
        except (OSError, TimeoutError) as cause:
            raise _unavailable(cause) from cause
        finally:
            self._http.release(connection, response)

    def _check_watch(self, response: Response) -> None:
        """Raise an error unless a watch was opened."""
        if response.status == HTTPStatus.GONE:
            raise WatchExpiredError
        if response.status == HTTPStatus.UNAUTHORIZED:
            self.access.refused()
        if response.status != HTTPStatus.OK:
            raise _error_of(response)

    # --- requests ----------------------------------------------------------------------------------

    async def _call(
        self,
        verb: str,
        resource: Resource,
        path: str,
        query: Mapping[str, str | None] | None = None,
        body: Document | None = None,
        part: str | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Document:
        """Send a request, again while the server refuses it for its load; other errors are raised."""
        name = resource.plural if part is None else f"{resource.plural}/{part}"
        for number in range(MAX_TRIES):
            self.requests[verb, name] += 1
            request = self._request(METHODS[verb], path, query or {}, body)
            response = await self._send(*request, check, self._wait_s(query or {}))
            if response.status < HTTPStatus.BAD_REQUEST:
                return _document_of(response)
            error = _error_of(response)
            if error.status == HTTPStatus.UNAUTHORIZED and number == 0 and self.access.refused():
                continue
            if error.status != HTTPStatus.TOO_MANY_REQUESTS or number == MAX_TRIES - 1:
                try:
                    raise error
                finally:
                    # Its traceback has this frame: a cycle would keep the request until a collection.
                    del error
            await asyncio.sleep(min(error.retry_after_s or 0.1 * 2**number, MAX_WAIT_S))
        raise AssertionError("the last try returns or raises")

    def _wait_s(self, query: Mapping[str, str | None]) -> float:
        """Return how long a response is awaited: longer than the server is told to take."""
        told = query.get(TIMEOUT)
        return self._request_s if told is None else float(told.removesuffix("s")) + ANSWER_S

    async def _send(
        self, data: bytes, target: HttpTarget, check: Callable[[], None], wait_s: float
    ) -> Response:
        try:
            async with asyncio.timeout(wait_s):
                connection, response = await self._http.send(
                    data, target, connect_s=CONNECT_S, max_body=MAX_RESPONSE, check=check
                )
                await connection.read_rest(response)
        except (OSError, TimeoutError) as cause:
            raise _unavailable(cause) from cause
        self._http.release(connection, response)
        return response

    def _request(
        self, method: str, path: str, query: Mapping[str, str | None], body: Document | None
    ) -> tuple[bytes, HttpTarget]:
        given = {name: value for name, value in query.items() if value}
        # Paths have the names of objects only, which need no escapes.
        place = f"{self._server.path.rstrip('/')}{path}" + (f"?{urlencode(given)}" if given else "")
        target = self._server._replace(path=place)
        try:
            token = self.access.token()
        except OSError as cause:
            raise _unavailable(cause) from cause
        headers = {"Accept": JSON_TYPE}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if body is None:
            return request_of(method, target, headers), target
        headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else JSON_TYPE
        content = json.dumps(body, separators=(",", ":")).encode()
        return request_of(method, target, headers, content), target

    def close(self) -> None:
        """Close the idle connections."""
        self._http.close()


METHODS = {
    "get": "GET", "list": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE",
}  # fmt: skip


def _unavailable(cause: Exception) -> ApiUnavailableError:
    return ApiUnavailableError(
        f"the API server does not answer: {str(cause) or type(cause).__name__}",
        may_follow=isinstance(cause, TimeoutError),
    )


def _document_of(response: Response) -> Document:
    try:
        document = json.loads(bytes(response.body))
    except ValueError as cause:
        raise ApiUnavailableError("the response of the API server is not JSON") from cause
    if not isinstance(document, dict):
        raise ApiUnavailableError("the API server's answer is not a JSON object")
    return document


def _error_of(response: Response) -> ApiError:
    """Return the error of a response that refuses a request; its body is usually a Status document."""
    document: Document = {}
    with suppress(ValueError):
        value = json.loads(bytes(response.body))
        document = value if isinstance(value, dict) else {}
    after = response.headers.get("retry-after", "")
    details = document.get("details")
    return ApiError(
        response.status,
        str(document.get("reason") or ""),
        str(document.get("message") or ""),
        name=str(details.get("name") or "") if isinstance(details, dict) else "",
        retry_after_s=float(after) if after.isdigit() else 0.0,
    )


def _event_of(line: bytes) -> WatchEvent:
    try:
        document = json.loads(line)
        kind, content = document["type"], document["object"]
    except (ValueError, KeyError, TypeError) as cause:
        raise ApiUnavailableError("the API server sends a watch event that cannot be read") from cause
    if kind == "ERROR":
        if content.get("code") == HTTPStatus.GONE:
            raise WatchExpiredError
        raise ApiError(
            int(content.get("code") or 500), str(content.get("reason")), str(content.get("message"))
        )
    return WatchEvent(kind, content)
