"""A client that edits, pauses, resumes, deletes, creates and runs schedules while they are due."""

import json
import threading
import time
from random import Random

import httpx

from tests.chaos.executor import REPORTS
from tests.chaos.story import Story

STEADY, EDITED, MAYFLY = "steady", "edited", "mayfly"
# Schedules of reporting runs with a timeout that passes before a take-over.
TIMED, RUN_TIMEOUT = f"{REPORTS}-timed", "3s"
# The seconds field of the schedules: a first second and a step.
TEXTS = ("*/1", "*/2", "1-59/2", "*/3", "2-59/5")
LEAST_PAUSE_S, MOST_PAUSE_S = 0.02, 0.2
# No response is lost because the machine is busy.
TIMEOUT = "1h"
# How long a request may take, and how long one that must succeed is retried.
REQUEST_S, INSIST_S = 5.0, 240.0
LINES = {"content-type": "application/x-ndjson"}
# Common to all schedules; catch-up never drops a period.
COMMON: dict[str, object] = {
    "workflow_id": "wf",
    "version": 1,
    "user_id": "ann",
    "timezone": "UTC",
    "catchup_policy": "all",
}


class ServiceClient:
    """Writes schedules over the API. `asked` are requests to run one, and whether they were acknowledged."""

    def __init__(self, api: str, executor: str, chance: Random, story: Story) -> None:
        self._client = httpx.Client(base_url=api, timeout=REQUEST_S, trust_env=False)
        self._executor = executor
        self._chance = chance
        self._story = story
        self._over = threading.Event()
        self._numbers = 0
        self.asked: dict[str, bool] = {}
        self.documents: dict[str, dict[str, object]] = {}

    def fill(self) -> None:
        """Create all schedules."""
        policies = ("allow", "skip", "queue", "buffer_one")
        for number in range(12):
            self._create(
                f"{STEADY}-{number}", overlap_policy=policies[number % 4], cron=TEXTS[number % 2], queue_max=3
            )
        for number in range(2):
            self._create(f"{STEADY}-jitter-{number}", jitter_ms=600, cron="*/2", overlap_policy="allow")
        for number, policy in enumerate(("allow", "skip", "queue", "buffer_one")):
            self._create(f"{REPORTS}-{number}", overlap_policy=policy, reports=True, queue_max=3)
        for number, policy in enumerate(("queue", "skip") * 2):
            limits = {"run_timeout": RUN_TIMEOUT}
            self._create(f"{TIMED}-{number}", overlap_policy=policy, reports=True, queue_max=3, policy=limits)
        for number in range(6):
            self._create(f"{EDITED}-{number}", overlap_policy="allow")
            self._create(f"{MAYFLY}-{number}", overlap_policy="allow")
        self._put_all(list(self.documents.values()))

    def _create(self, name: str, *, cron: str = "*/1", reports: bool = False, **more: object) -> None:
        launcher = {"kind": "http", "url": self._executor, "timeout": TIMEOUT, "reports": reports}
        document = {**COMMON, "schedule_id": name, "launcher": launcher, **more}
        self.documents[name] = {**document, "cron_expr": f"{cron} * * * * *"}

    def work(self) -> None:
        """Perform random operations until `leave` is called."""
        acts = [
            self._edit,
            self._edit,
            self._pause,
            self._resume,
            self._delete,
            self._revive,
            self._run,
            self._run,
        ]
        while not self._over.is_set():
            self._chance.choice(acts)()
            time.sleep(self._chance.uniform(LEAST_PAUSE_S, MOST_PAUSE_S))

    def leave(self) -> None:
        """Stop the work."""
        self._over.set()

    def settle(self, end_at: str) -> None:
        """Resume every paused schedule, and let none be due after an instant."""
        last = {"paused": False, "end_at": end_at}
        self._put_all([{**document, **last} for document in self.documents.values()])

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    # --- acts ------------------------------------------------------------------------------------

    def _edit(self) -> None:
        name = self._name(EDITED)
        cron = f"{self._chance.choice(TEXTS)} * * * * *"
        document = {**self.documents[name], "cron_expr": cron}
        if self._try("edit", "POST", "/schedules/upsert", document):
            self.documents[name] = document

    def _pause(self) -> None:
        document = {"schedule_id": self._name(EDITED), "paused": True}
        self._try("pause", "POST", "/schedules/pause", document)

    def _resume(self) -> None:
        document = {"schedule_id": self._name(EDITED), "paused": False}
        self._try("resume", "POST", "/schedules/pause", document)

    def _delete(self) -> None:
        self._try("delete", "DELETE", f"/schedules/{self._name(MAYFLY)}")

    def _revive(self) -> None:
        self._try("create", "POST", "/schedules/upsert", self.documents[self._name(MAYFLY)])

    def _run(self) -> None:
        self._numbers += 1
        request, name = f"request-{self._numbers}", self._name(STEADY)
        self.asked[request] = False
        path = f"/schedules/{name}/run"
        self.asked[request] = self._try("run now", "POST", path, {"request_id": request})

    def _name(self, kind: str) -> str:
        return self._chance.choice([name for name in self.documents if name.startswith(kind)])

    def _try(self, what: str, method: str, path: str, document: object = None) -> bool:
        """Send a request once; return whether it was acknowledged. Otherwise its effect is unknown."""
        try:
            answer = self._client.request(method, path, json=document)
        except httpx.ConnectError:
            self._story.counts["no api"] += 1
            return False
        except httpx.HTTPError as error:
            self._story.counts[f"unheard: {type(error).__name__}"] += 1
            return False
        self._story.counts[what if answer.is_success else f"{what}: {answer.status_code}"] += 1
        return answer.is_success

    def _put_all(self, documents: list[dict[str, object]]) -> None:
        """Write schedules in one bulk request, and retry until it succeeds.

        On a busy machine some of them start between its read and its write, every time; then in two requests.
        """
        content = "".join(f"{json.dumps(document)}\n" for document in documents)
        until = time.monotonic() + INSIST_S
        while time.monotonic() < until:
            try:
                answer = self._client.post(
                    "/schedules/bulk", content=content, headers=LINES, timeout=INSIST_S
                )
                if answer.is_success:
                    return
                problem = answer.text
                if answer.status_code == httpx.codes.CONFLICT and len(documents) > 1:
                    middle = len(documents) // 2
                    self._put_all(documents[:middle])
                    self._put_all(documents[middle:])
                    return
            except httpx.HTTPError as error:
                problem = str(error)
            time.sleep(0.1)
        raise AssertionError(problem)
