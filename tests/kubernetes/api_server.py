"""A double of the Kubernetes API server, over real HTTP on the loopback interface.

It keeps the promises that an operator depends on: resource versions and conflicts, lists in pages, watches
with bookmarks that expire, the status subresource, validation, defaults and pruning by the schema of a CRD,
owner references with garbage collection, and permissions by RBAC rules. Faults are injected by `Fault`s.
"""

import asyncio
import json
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from tests.kubernetes.structural_schema import (
    Doc,
    broken_rules,
    faults_of,
    prune,
    set_defaults,
    structural_faults,
)

Key = tuple[str, str]
# Events of a resource that are kept for watches, unless a test compacts them.
KEPT_EVENTS = 10_000
COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")


def copy_of(document: Doc) -> Doc:
    """Return a copy of a JSON document, in a fraction of the time of `deepcopy`."""
    return {name: _copied(part) for name, part in document.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return copy_of(value)
    return [_copied(part) for part in value] if isinstance(value, list | tuple) else value


class Refused(Exception):  # noqa: N818 - an answer, not an error of the double
    """A request is answered with a Status document."""

    def __init__(self, code: int, reason: str, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.name = code, reason, message, name


class Logged(NamedTuple):
    """One request: its verb, API group, resource with subresource, namespace and name."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


@dataclass
class Fault:
    """What happens to the next `times` requests that match.

    `status` answers instead of the server; `cut` ends the connection `before` the request is executed or
    `after` it, without an answer, or `never`, without executing it. `delay` waits first, in seconds, and
    `gate` until it is open, as an admission webhook, at most as long as the `timeout` of the request.
    """

    match: Callable[[Logged], bool]
    times: int = 1
    status: int | None = None
    cut: str | None = None
    delay: float = 0.0
    gate: asyncio.Event | None = None
    retry_after: int | None = None


@dataclass
class Kind:
    """A resource: its objects, the events of its watches, and its schema if it is custom."""

    group: str
    version: str
    plural: str
    kind: str
    has_status: bool = False
    schema: Doc | None = None
    objects: dict[Key, Doc] = field(default_factory=dict)
    events: list[tuple[int, str, Doc]] = field(default_factory=list)
    # Watches from a version below this one have expired.
    compacted: int = 0

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


class ApiServer:
    """The objects of one cluster, and the HTTP server that reads and writes them."""

    def __init__(self) -> None:
        builtin = [
            Kind("batch", "v1", "jobs", "Job", has_status=True),
            Kind("coordination.k8s.io", "v1", "leases", "Lease"),
            Kind("events.k8s.io", "v1", "events", "Event"),
            Kind("", "v1", "namespaces", "Namespace"),
            Kind("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition"),
        ]
        self.kinds = {(kind.group, kind.plural): kind for kind in builtin}
        self.version = 100
        self.requests: list[Logged] = []
        self.faults: list[Fault] = []
        # How many requests were refused, by status.
        self.refusals: Counter[int] = Counter()
        # Rules of roles, each with a `namespace` unless it holds in all; None allows everything.
        # A request with another token than this is refused.
        self.rules: list[Doc] | None = None
        self.token: str | None = None
        self.bookmark_s = 0.05
        # Schemas are not applied, which takes most of the time of a write.
        self.is_trusting = False
        # Jobs that are deleted in the foreground stay until `finish_deletion`, as with slow pods.
        self.lingering = False
        # Requests are not answered while it is down.
        self.is_down = False
        # Called with the number of each request before and after it is executed; if it returns true, the
        # connection ends without an answer.
        self.on_request: Callable[[int, str], bool] = lambda number, when: False
        self.url = ""
        self._changed = asyncio.Event()
        self._stale: dict[Key, dict[Key, Doc]] = {}
        self._pages: dict[str, tuple[list[Doc], int]] = {}
        self._open: set[asyncio.StreamWriter] = set()

    # --- objects, for tests ------------------------------------------------------------------------

    def kind(self, plural: str) -> Kind:
        return next(kind for kind in self.kinds.values() if kind.plural == plural)

    def objects(self, plural: str) -> list[Doc]:
        """Return copies of all objects of a resource."""
        return [copy_of(each) for each in self.kind(plural).objects.values()]

    def object(self, plural: str, name: str, namespace: str = "default") -> Doc:
        return copy_of(self.kind(plural).objects[namespace, name])

    def add(self, plural: str, document: Doc, namespace: str = "default") -> Doc:
        """Create an object as a user would."""
        return self._create(self.kind(plural), namespace, copy_of(document))

    def edit(self, plural: str, name: str, change: Doc, namespace: str = "default") -> Doc:
        """Merge a change into an object as `kubectl patch` would."""
        kind = self.kind(plural)
        return self._patch(kind, (namespace, name), copy_of(change), part="")

    def remove(self, plural: str, name: str, namespace: str = "default", *, orphan: bool = False) -> None:
        """Delete an object as `kubectl delete` would."""
        policy = "Orphan" if orphan else "Background"
        self._delete(self.kind(plural), (namespace, name), {"propagationPolicy": policy})

    def complete(self, name: str, namespace: str = "default", *, failed: bool = False) -> None:
        """End a Job as the controller manager would."""
        now = _now()
        last = ["FailureTarget", "Failed"] if failed else ["SuccessCriteriaMet", "Complete"]
        conditions = [{"type": each, "status": "True", "lastTransitionTime": now} for each in last]
        status: Doc = {"startTime": now, "conditions": conditions}
        status |= {"failed": 1} if failed else {"completionTime": now, "succeeded": 1}
        self._patch(self.kind("jobs"), (namespace, name), {"status": status}, part="status")

    def finish_deletion(self, name: str, namespace: str = "default") -> None:
        """Let an object go that waits for its dependents."""
        self._remove(self.kind("jobs"), (namespace, name))

    def freeze_reads(self) -> None:
        """Answer reads with the present objects until `thaw_reads`, as a cache that lags behind does."""
        self._stale = {
            name: {key: copy_of(each) for key, each in kind.objects.items()}
            for name, kind in self.kinds.items()
        }

    def thaw_reads(self) -> None:
        """Answer reads with the truth again."""
        self._stale = {}

    def compact(self) -> None:
        """Forget the events of all watches, as etcd does from time to time."""
        for kind in self.kinds.values():
            kind.events.clear()
            kind.compacted = self.version

    def cut_watches(self) -> None:
        """End every open connection."""
        for writer in list(self._open):
            writer.transport.abort()

    # --- objects, for requests ---------------------------------------------------------------------

    def _tick(self, kind: Kind, event: str, document: Doc) -> Doc:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        kind.events.append((self.version, event, copy_of(document)))
        del kind.events[:-KEPT_EVENTS]
        self._changed.set()
        self._changed = asyncio.Event()
        return copy_of(document)

    def _create(self, kind: Kind, namespace: str, document: Doc) -> Doc:
        metadata = document.setdefault("metadata", {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise Refused(422, "Invalid", "metadata.name: Required value")
            metadata["name"] = metadata["generateName"] + uuid4().hex[:5]
        name = metadata["name"]
        if document.get("apiVersion") != kind.api_version or document.get("kind") != kind.kind:
            raise Refused(400, "BadRequest", f"the object is no {kind.kind} of {kind.api_version}")
        if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", name):
            raise Refused(422, "Invalid", f"metadata.name: Invalid value: {name!r}")
        if (namespace, name) in kind.objects:
            raise Refused(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
        if metadata.get("resourceVersion"):
            raise Refused(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        metadata |= {"uid": str(uuid4()), "creationTimestamp": _now(), "generation": 1}
        if namespace:
            metadata["namespace"] = namespace
        if kind.has_status:
            document.pop("status", None)
        self._admit(kind, document, None)
        kind.objects[namespace, name] = document
        if kind.plural == "customresourcedefinitions":
            self._define(document)
        return self._tick(kind, "ADDED", document)

    def _admit(self, kind: Kind, document: Doc, before: Doc | None) -> None:
        """Set defaults, prune and validate."""
        if kind.plural in ADMISSION:
            ADMISSION[kind.plural](document, before)
        if kind.schema is not None and not self.is_trusting:
            kept: Doc = {name: document.pop(name) for name in ("apiVersion", "kind", "metadata")}
            set_defaults(kind.schema, document)
            prune(kind.schema, document)
            document |= kept
            faults = [*faults_of(kind.schema, document), *broken_rules(kind.schema, document, before)]
            if faults:
                raise Refused(422, "Invalid", f"{kind.kind} is invalid: {'; '.join(faults)}")

    def _define(self, crd: Doc) -> None:
        spec = crd["spec"]
        names = spec["names"]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            faults = list(structural_faults(schema))
            if faults:
                raise Refused(422, "Invalid", f"the schema is not structural: {faults}")
            for column in version.get("additionalPrinterColumns", []):
                if column["type"] not in COLUMN_TYPES or not column["jsonPath"].startswith("."):
                    raise Refused(422, "Invalid", f"additionalPrinterColumns: {column}")
            has_status = "status" in version.get("subresources", {})
            kind = Kind(spec["group"], version["name"], names["plural"], names["kind"], has_status, schema)
            self.kinds.setdefault((kind.group, kind.plural), kind).schema = schema

    def _found(self, kind: Kind, key: Key) -> Doc:
        if key not in kind.objects:
            raise Refused(404, "NotFound", f'{kind.plural} "{key[1]}" not found', name=key[1])
        return kind.objects[key]

    def _replace(self, kind: Kind, key: Key, document: Doc, part: str) -> Doc:
        before = self._found(kind, key)
        given = document.get("metadata", {}).get("resourceVersion")
        if given and given != before["metadata"]["resourceVersion"]:
            message = "the object has been modified; please apply your changes to the latest version"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on "{key[1]}": {message}')
        uid = document.get("metadata", {}).get("uid")
        if uid and uid != before["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        after = copy_of(before)
        if part == "status":
            after["status"] = document.get("status", {})
        else:
            kept = {name: before["metadata"].get(name) for name in ("uid", "creationTimestamp", "generation")}
            after = {**document, "metadata": {**document["metadata"], **kept}}
            if kind.has_status:
                after.pop("status", None)
                after |= {"status": before["status"]} if "status" in before else {}
        self._admit(kind, after, before)
        after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if after == before:
            return copy_of(before)
        if after.get("spec") != before.get("spec"):
            after["metadata"]["generation"] = before["metadata"]["generation"] + 1
        kind.objects[key] = after
        return self._tick(kind, "MODIFIED", after)

    def _patch(self, kind: Kind, key: Key, change: Doc, part: str) -> Doc:
        before = self._found(kind, key)
        if part == "status":
            change = {name: change[name] for name in ("metadata", "status") if name in change}
            metadata = {
                name: value
                for name, value in change.get("metadata", {}).items()
                if name in ("resourceVersion", "uid")
            }
            change["metadata"] = metadata
        given = change.get("metadata", {}).get("resourceVersion")
        after = _merged(before, change)
        if not given:
            after["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        return self._replace(kind, key, after, part)

    def _delete(self, kind: Kind, key: Key, options: Doc) -> Doc:
        document = self._found(kind, key)
        wanted = options.get("preconditions", {}).get("uid")
        if wanted and wanted != document["metadata"]["uid"]:
            raise Refused(409, "Conflict", f"Precondition failed: UID in precondition: {wanted}")
        if options.get("propagationPolicy") == "Foreground":
            if "deletionTimestamp" not in document["metadata"]:
                document["metadata"] |= {"deletionTimestamp": _now(), "finalizers": ["foregroundDeletion"]}
                self._tick(kind, "MODIFIED", document)
            if self.lingering:
                return copy_of(document)
        return self._remove(kind, key, orphan=options.get("propagationPolicy") == "Orphan")

    def _remove(self, kind: Kind, key: Key, *, orphan: bool = False) -> Doc:
        """Remove an object, and with it those that it alone owns."""
        document = kind.objects.pop(key)
        last = self._tick(kind, "DELETED", document)
        if kind.plural == "namespaces":
            inside = [
                (each, place) for each in self.kinds.values() for place in each.objects if place[0] == key[1]
            ]
            for other, place in inside:
                other.objects.pop(place, None)
        uid = document["metadata"]["uid"]
        for other in self.kinds.values():
            for place, each in list(other.objects.items()):
                owners = each["metadata"].get("ownerReferences", [])
                if not any(owner["uid"] == uid for owner in owners):
                    continue
                left = [owner for owner in owners if owner["uid"] != uid]
                if orphan or left:
                    each["metadata"]["ownerReferences"] = left
                    self._tick(other, "MODIFIED", each)
                else:
                    self._remove(other, place)
        return last

    # --- lists and watches -------------------------------------------------------------------------

    def _list(self, kind: Kind, namespace: str, query: dict[str, str]) -> Doc:
        known = self._stale.get((kind.group, kind.plural), kind.objects)
        chosen = [each for each in known.values() if _is_selected(each, namespace, query)]
        items, version = sorted(chosen, key=lambda each: each["metadata"]["name"]), self.version
        if query.get("continue"):
            page = self._pages.pop(query["continue"], None)
            if page is None or page[1] < kind.compacted:
                raise Refused(410, "Expired", "the continue token has expired")
            items, version = page
        limit = int(query.get("limit", 0)) or len(items)
        metadata: Doc = {"resourceVersion": str(version)}
        if len(items) > limit:
            token = metadata["continue"] = uuid4().hex
            self._pages[token] = items[limit:], version
        document = {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": metadata}
        return {**document, "items": _copied(items[:limit])}

    async def _watch(self, kind: Kind, namespace: str, query: dict[str, str], send: "_Chunks") -> None:
        since = int(query.get("resourceVersion") or self.version)
        until = asyncio.get_running_loop().time() + int(query.get("timeoutSeconds", 300))
        while asyncio.get_running_loop().time() < until:
            if since < kind.compacted:
                status = _status(410, "Expired", "too old resource version")
                await send({"type": "ERROR", "object": status})
                return
            changed = self._changed
            for version, event, document in [each for each in kind.events if each[0] > since]:
                if _is_selected(document, namespace, query):
                    await send({"type": event, "object": document})
                since = max(since, version)
            try:
                async with asyncio.timeout(self.bookmark_s):
                    await changed.wait()
            except TimeoutError:
                if changed.is_set():
                    continue
                since = max(since, self.version)
                if query.get("allowWatchBookmarks") == "true":
                    mark: Doc = {"apiVersion": kind.api_version, "kind": kind.kind}
                    mark |= {"metadata": {"resourceVersion": str(self.version)}}
                    await send({"type": "BOOKMARK", "object": mark})

    # --- HTTP --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["ApiServer"]:
        """Serve on a free port of the loopback interface."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut_watches()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether another one may follow."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.is_down:
            return False
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        try:
            kind, namespace, name, part = self._route(url.path)
            verb = _verb_of(method, name, query)
            resource = f"{kind.plural}/{part}" if part else kind.plural
            logged = Logged(verb, kind.group, resource, namespace, name)
            self.requests.append(logged)
            number = len(self.requests)
            if self.on_request(number, "before"):
                return False
            fault = next((each for each in self.faults if each.times and each.match(logged)), None)
            if fault is not None:
                fault.times -= 1
                await _admission(fault, query)
                if fault.cut == "never":
                    await asyncio.Event().wait()
                if fault.cut == "before":
                    return False
                if fault.status is not None:
                    await _reply(
                        writer, fault.status, _status(fault.status, "", "injected"), fault.retry_after
                    )
                    return True
            self._authorize(headers, logged)
            if verb == "watch":
                await self._watch(kind, namespace, query, _Chunks(writer))
                writer.write(b"0\r\n\r\n")
                await writer.drain()
                return True
            document = self._execute(logged, kind, part, query, headers, json.loads(body or b"null"))
        except Refused as refused:
            self.refusals[refused.code] += 1
            status = _status(refused.code, refused.reason, refused.message)
            await _reply(writer, refused.code, status | {"details": {"name": refused.name}})
            return True
        if self.on_request(number, "after") or (fault is not None and fault.cut == "after"):
            return False
        await _reply(writer, 201 if verb == "create" else 200, document)
        return True

    def _route(self, path: str) -> tuple[Kind, str, str, str]:
        words = [unquote(word) for word in path.strip("/").split("/")]
        if words[0] == "api":
            words.insert(1, "")  # the core group has no name
        if words[0] not in ("api", "apis") or len(words) < 4:
            raise Refused(404, "NotFound", f"no resource at {path}")
        group, version, *rest = words[1:]
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural, name, part = (*rest, "", "")[:3]
        kind = self.kinds.get((group, plural))
        if kind is None or kind.version != version or (part and not (part == "status" and kind.has_status)):
            raise Refused(404, "NotFound", f"no resource at {path}")
        return kind, namespace, name, part

    def _authorize(self, headers: Doc, logged: Logged) -> None:
        if self.token is not None and headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")
        if self.rules is None:
            return
        for rule in self.rules:
            names = rule.get("resourceNames")
            if (
                logged.group in rule["apiGroups"]
                and logged.resource in rule["resources"]
                and logged.verb in rule["verbs"]
                and (names is None or logged.name in names)
                and rule.get("namespace", logged.namespace) == logged.namespace
            ):
                return
        raise Refused(403, "Forbidden", f"cannot {logged.verb} {logged.resource} in {logged.group}")

    def _execute(
        self, logged: Logged, kind: Kind, part: str, query: dict[str, str], headers: Doc, body: Any
    ) -> Doc:
        key = (logged.namespace, logged.name)
        match logged.verb:
            case "get":
                stale = self._stale.get((kind.group, kind.plural), {})
                return copy_of(stale[key] if key in stale else self._found(kind, key))
            case "list":
                return self._list(kind, logged.namespace, query)
            case "create":
                return self._create(kind, logged.namespace, body)
            case "update":
                if not body["metadata"].get("resourceVersion"):
                    raise Refused(422, "Invalid", "metadata.resourceVersion: must be specified for an update")
                return self._replace(kind, key, body, part)
            case "patch":
                if headers.get("content-type") != "application/merge-patch+json":
                    raise Refused(415, "UnsupportedMediaType", "this double knows merge patches only")
                return self._patch(kind, key, body, part)
            case _:
                return self._delete(kind, key, body or {})


class _Chunks:
    """Sends the events of a watch, one chunk each; the head goes before the first."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head.encode())

    async def __call__(self, document: Doc) -> None:
        line = json.dumps(document).encode() + b"\n"
        self._writer.write(b"%x\r\n%s\r\n" % (len(line), line))
        await self._writer.drain()


async def _reply(writer: asyncio.StreamWriter, code: int, document: Doc, after: int | None = None) -> None:
    body = json.dumps(document).encode()
    retry = "" if after is None else f"Retry-After: {after}\r\n"
    head = f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\nContent-Type: application/json\r\n{retry}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


def _status(code: int, reason: str, message: str) -> Doc:
    status = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
    return {**status, "code": code, "reason": reason, "message": message}


async def _admission(fault: Fault, query: dict[str, str]) -> None:
    """Wait for a webhook; a request that has a timeout is refused after it, and not executed later."""
    limit = float(query["timeout"].removesuffix("s")) if "timeout" in query else None
    try:
        async with asyncio.timeout(limit):
            await asyncio.sleep(fault.delay)
            if fault.gate is not None:
                await fault.gate.wait()
    except TimeoutError:
        raise Refused(504, "Timeout", "request did not complete within the allowed duration") from None


def _verb_of(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET":
        if query.get("watch") in ("1", "true"):
            return "watch"
        return "get" if name else "list"
    verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    return verbs[method] if name or method == "POST" else "deletecollection"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _merged(before: Any, change: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(change, dict):
        return _copied(change)
    after = dict(before) if isinstance(before, dict) else {}
    for name, value in change.items():
        if value is None:
            after.pop(name, None)
        else:
            after[name] = _merged(after.get(name), value)
    return after


def _is_selected(document: Doc, namespace: str, query: dict[str, str]) -> bool:
    metadata = document["metadata"]
    if namespace and metadata.get("namespace") != namespace:
        return False
    for clause in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = clause.partition("=")
        if metadata.get(path.removeprefix("metadata.")) != value:
            return False
    labels = metadata.get("labels", {})
    for clause in filter(None, query.get("labelSelector", "").split(",")):
        name, equals, value = clause.partition("=")
        if name not in labels or (equals and labels[name] != value.lstrip("=")):
            return False
    return True


# --- admission of built-in kinds -----------------------------------------------------------------------


def _invalid(message: str) -> Refused:
    return Refused(422, "Invalid", message)


def _admit_job(document: Doc, before: Doc | None) -> None:
    """Check a Job as the API server does, as far as the operator and its tests depend on it."""
    metadata, spec = document["metadata"], document.get("spec", {})
    if len(metadata["name"]) > 63:
        raise _invalid("metadata.name: must be no more than 63 characters")
    _check_notes(metadata)
    _check_notes(spec.get("template", {}).get("metadata", {}))
    _check_pod(spec)
    if before is None:
        _add_selector(metadata, spec)
    elif (spec.get("template"), spec.get("selector")) != (
        before["spec"].get("template"),
        before["spec"].get("selector"),
    ):
        raise _invalid("spec.template: field is immutable")
    _check_job_status(document.get("status", {}), (before or {}).get("status", {}))


def _check_notes(metadata: Doc) -> None:
    """Check labels and annotations."""
    for name, value in metadata.get("labels", {}).items():
        if not re.fullmatch(QUALIFIED, name):
            raise _invalid(f"metadata.labels: Invalid value: {name!r}")
        if not re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value):
            raise _invalid(f"metadata.labels: Invalid value: {value!r}")
    for name, value in metadata.get("annotations", {}).items():
        if not isinstance(value, str):
            raise Refused(400, "BadRequest", "annotations must be strings")
        if not re.fullmatch(QUALIFIED, name):
            raise _invalid(f"metadata.annotations: Invalid value: {name!r}")
    if (
        sum(len(name) + len(value.encode()) for name, value in metadata.get("annotations", {}).items())
        > 2**18
    ):
        raise _invalid("metadata.annotations: Too long")


def _check_pod(spec: Doc) -> None:
    pod = spec.get("template", {}).get("spec", {})
    if not pod.get("containers"):
        raise _invalid("spec.template.spec.containers: Required value")
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        raise _invalid("spec.template.spec.restartPolicy: Required value")
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        for variable in container.get("env", ()):
            if not isinstance(variable.get("value", ""), str):
                raise Refused(400, "BadRequest", "the value of a variable must be a string")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for name, value in {"backoffLimit": 6, "parallelism": 1, "suspend": False}.items():
        spec.setdefault(name, value)


def _add_selector(metadata: Doc, spec: Doc) -> None:
    """Make the pods of a Job its own."""
    own = {"batch.kubernetes.io/controller-uid": metadata["uid"]}
    labels = {**own, "batch.kubernetes.io/job-name": metadata["name"]}
    inner = spec["template"].setdefault("metadata", {})
    inner["labels"] = {**inner.get("labels", {}), **labels}
    spec["selector"] = {"matchLabels": own}


def _check_job_status(status: Doc, before: Doc) -> None:
    """Check the status of a Job, as API servers do since 1.32."""
    met, had = _met(status), _met(before)
    start, end = status.get("startTime"), status.get("completionTime")
    done = met & {"Complete", "Failed"}
    rules = {
        "a condition that ends a Job is not withdrawn": not (had & {"Complete", "Failed", *TARGETS}) - met,
        "a finished Job has a startTime": not done or bool(start),
        "the startTime does not change": before.get("startTime") in (None, start),
        "the completionTime does not change": before.get("completionTime") in (None, end),
        "the completionTime is not before the startTime": not end or bool(start and start <= end),
        "only a complete Job has a completionTime": ("Complete" in met) == bool(end),
        "Complete needs SuccessCriteriaMet": "Complete" not in met or "SuccessCriteriaMet" in met,
        "Failed needs FailureTarget": "Failed" not in met or "FailureTarget" in met,
        "a Job either succeeds or fails": not (
            met & {"Complete", TARGETS[0]} and met & {"Failed", TARGETS[1]}
        ),
        "a finished Job has no pods": not done or not (status.get("active") or status.get("terminating")),
        "no more pods are ready than active": status.get("ready", 0) <= status.get("active", 0),
        "counters do not decrease": all(
            status.get(name, 0) >= before.get(name, 0) for name in ("succeeded", "failed")
        ),
    }
    for rule, holds in rules.items():
        if not holds:
            raise _invalid(f"status: {rule}")


TARGETS = ("SuccessCriteriaMet", "FailureTarget")


def _met(status: Doc) -> set[str]:
    return {each["type"] for each in status.get("conditions", []) if each["status"] == "True"}


MICRO_TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)"
QUALIFIED = r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"


def _admit_lease(document: Doc, _: Doc | None) -> None:
    _check_notes(document["metadata"])
    spec = document.get("spec", {})
    for name in ("acquireTime", "renewTime"):
        if name in spec and not re.fullmatch(MICRO_TIME, spec[name]):
            raise Refused(400, "BadRequest", f"{name} is no MicroTime: {spec[name]}")
    if spec.get("leaseDurationSeconds", 1) <= 0 or spec.get("leaseTransitions", 0) < 0:
        raise _invalid("spec: must be greater than 0")


def _admit_event(document: Doc, before: Doc | None) -> None:
    """Check an Event of events.k8s.io/v1: everything is required, and nothing may be long."""
    if before is not None:
        return
    if not re.fullmatch(MICRO_TIME, document.get("eventTime", "")):
        raise _invalid("eventTime: Required value")
    for name in ("reportingController", "reportingInstance", "action", "reason"):
        if not 0 < len(document.get(name, "")) <= 128:
            raise _invalid(f"{name}: Required value, of at most 128 characters")
    if not re.fullmatch(QUALIFIED, document["reportingController"]):
        raise _invalid("reportingController: must be a qualified name")
    if len(document.get("note", "").encode()) > 1024:
        raise _invalid("note: can have at most 1024 characters")
    if document.get("type") not in ("Normal", "Warning"):
        raise _invalid("type: must be Normal or Warning")
    if document.get("regarding", {}).get("namespace") != document["metadata"]["namespace"]:
        raise _invalid("regarding.namespace: does not match event.namespace")


ADMISSION: dict[str, Callable[[Doc, Doc | None], None]] = {
    "jobs": _admit_job,
    "leases": _admit_lease,
    "events": _admit_event,
}
