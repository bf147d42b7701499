"""What operators see of real processes: metrics, alert rules, levels of the log, and no secrets."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from kron.app.backfill import PeriodRange
from kron.cli.main import BAD
from kron.clocks.system import SystemClock
from kron.core.job.outcome import Outcome
from kron.core.plan.query import OpenRuns
from kron.core.plan.record import Result
from kron.fronts.service.auth.principal import PROGRAM, acting_as
from kron.fronts.service.registrar import Registrar
from kron.fronts.service.runs import backfill_schedule, run_now
from kron.runtime.journal import WARNINGS
from kron.stores.url import open_store
from kron.telemetry.metrics import STATES
from tests.docs.page import ROOT
from tests.service.executor import Executor, executing
from tests.service.server import Process, process, serving
from tests.tiers import mostly_slow
from tests.waiting import PATIENCE_S, wait_for

SECONDLY = {
    "schedule_id": "customer-4711",
    "workflow_id": "wf",
    "version": 1,
    "user_id": "ann",
    "cron_expr": "* * * * * *",
    "timezone": "UTC",
}
ALERTS = ROOT / "docs" / "assets" / "kron-alerts.yml"
JSON = {"KRON_LOG_FORMAT": "json"}
SELECTOR = re.compile(r"\b((?:kron|runs|schedules|scheduling)_\w+)(?:\{([^}]*)\})?")
# The whole set of each label that rules may choose by.
VALUES: dict[str, set[str]] = {
    "state": set(STATES) | set(OpenRuns._fields),
    "event": set(WARNINGS),
    "outcome": {each.value for each in Outcome},
    "result": {each.value for each in Result},
    "status": {f"{number}xx" for number in range(1, 6)},
}


def scraped(client: httpx.Client) -> dict[str, Metric]:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    found: dict[str, Metric] = {}
    for metric in text_string_to_metric_families(answer.text):
        # A counter is parsed without its suffix, so it has the name of the untyped one beside it.
        found.setdefault(metric.name, metric).samples.extend(
            () if metric is found[metric.name] else metric.samples
        )
    return found


def value_of(client: httpx.Client, name: str, **labels: str) -> float:
    """Return the sum of the samples of one name that have these labels."""
    samples = [sample for metric in scraped(client).values() for sample in metric.samples]
    return sum(
        sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items()
    )


def upsert(client: httpx.Client, **fields: object) -> None:
    client.post("/schedules/upsert", json={**SECONDLY, **fields}).raise_for_status()


def wait_for_starts(executor: Executor, count: int = 2) -> None:
    wait_for(lambda: len(executor.sent) >= count)


def test_the_page_about_alerts_lists_every_rule() -> None:
    page = (ROOT / "docs" / "how-to" / "watch-kron.md").read_text(encoding="utf-8")
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(Kron\w+)` \|", page, re.MULTILINE) == [rule["alert"] for rule in rules]


@pytest.mark.slow
def test_a_real_scrape_has_every_metric_and_label_that_the_alert_rules_name(
    tmp_path: Path, postgres_url: str
) -> None:
    with executing() as executor, serving(tmp_path, KRON_STORE=postgres_url) as (client, _):
        upsert(client, launcher={"kind": "http", "url": executor.url})
        wait_for_starts(executor)
        client.get("/schedules/unknown")
        client.get("/metrics")
        wait_for(lambda: value_of(client, "runs_emitted_total") >= 2)
        found = scraped(client)
        samples = [sample for metric in found.values() for sample in metric.samples]
    labels: dict[str, set[str]] = {}
    for sample in samples:
        labels.setdefault(sample.name, set()).update(sample.labels)
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert len(rules) == len({rule["alert"] for rule in rules}) >= 7
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}
        named = SELECTOR.findall(rule["expr"])
        assert named, rule
        for name, chosen in named:
            assert name in labels, name
            for label, how, value in re.findall(r'(\w+)(=~?)"([^"]*)"', chosen):
                assert label in labels[name], (name, label)
                assert set(value.split("|") if how == "=~" else [value]) <= VALUES[label]
    by = re.findall(r"by \((\w+)\)", ALERTS.read_text())
    assert set(by) == {"verb", "le"}
    # Nothing that a customer names becomes a label.
    said = {value for sample in samples for value in sample.labels.values()}
    assert not {
        text
        for text in said
        for word in ("4711", "ann", "unknown", "127.0.0.1")
        if re.search(rf"\b{word}\b", text)
    }
    for name in ("schedules_due", "runs_emitted", "runs_skipped_overlap", "runs_failed_launch"):
        values = {sample.name: sample.value for sample in samples if sample.name in (name, f"{name}_total")}
        assert values.keys() == {name, f"{name}_total"}, "the specification's name and Prometheus' form"
        assert values[name] == values[f"{name}_total"]
    assert found["scheduling_drift_seconds"].type == "histogram"


@pytest.mark.slow
def test_what_is_scraped_is_what_happened(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path) as (client, _):
        upsert(client, cron_expr="0 0 1 1 *", launcher={"kind": "http", "url": executor.url})
        for _ in range(3):
            client.post("/schedules/customer-4711/run").raise_for_status()
        wait_for(lambda: value_of(client, "kron_launch_seconds_count", launcher="http") == 3)
        assert value_of(client, "runs_emitted_total") == 3
        assert value_of(client, "kron_outcomes_total", outcome="executed", reason="asked") == 3
        route = {"route": "/schedules/{schedule_id}/run", "method": "POST"}
        assert value_of(client, "kron_http_requests_total", **route, status="2xx") == 3
        assert value_of(client, "kron_http_seconds_count", **route) == 3
        assert value_of(client, "kron_engine_state", state="running") == 1
        assert value_of(client, "kron_shards_owned") == 64
        assert value_of(client, "kron_store_seconds_count", verb="settle") >= 1
        assert value_of(client, "kron_build_info", store="sqlite") == 1
        assert value_of(client, "kron_oldest_unhandled_seconds") == 0
        assert value_of(client, "kron_runs_open", state="due") == 0
        client.post(f"/runs/{executor.keys()[0]}/status", json={"status": "FAILED"}).raise_for_status()
        assert value_of(client, "kron_results_total", result="failed") == 1


@pytest.mark.slow
def test_a_worker_alone_shows_its_metrics_and_health_and_nothing_else(tmp_path: Path) -> None:
    with process("worker", folder=tmp_path, KRON_METRICS_PORT="0", KRON_TICK_MS="50") as worker:
        url = worker.logged(r"metrics on (http://\S+)/metrics")[1]
        worker.logged("lease acquired")
        with httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            assert value_of(client, "kron_shards_owned") == 64
            assert client.get("/healthz").json() == {"status": "ok"}
            wait_for(lambda: client.get("/readyz").json()["worker"] == "running")
            assert client.get("/schedules").status_code == 404
            assert client.get("/openapi.json").status_code == 404
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0


@pytest.mark.parametrize(
    ("command", "package"), mostly_slow(product(["serve", "worker"], ["fastapi", "prometheus_client"]))
)
def test_a_package_that_is_missing_is_said_in_one_line(command: str, package: str, tmp_path: Path) -> None:
    program = f"import sys; sys.modules['{package}'] = None; from kron.cli.main import run; sys.exit(run())"
    done = subprocess.run(
        [sys.executable, "-c", program, command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (BAD, "")
    (line,) = done.stderr.splitlines()
    assert "kron-engine[service]" in line


@pytest.mark.slow
def test_how_much_is_logged_can_be_changed_while_the_service_runs(tmp_path: Path) -> None:
    file = tmp_path / "kron.toml"
    file.write_text('log_level = "info"\nlog_format = "json"\n')
    with serving(tmp_path, "--config", str(file)) as (client, server):
        assert client.get("/admin/log-level").json() == {"level": "info"}
        assert client.put("/admin/log-level", json={"level": "debug"}).json() == {"level": "debug"}
        client.get("/healthz", headers={"X-Request-Id": "look-1"})
        (line,) = wait_for_line(server, lambda line: line.get("request_id") == "look-1")
        assert (line["level"], line["logger"]) == ("debug", "kron.http")
        assert client.put("/admin/log-level", json={"level": "loud"}).status_code == 400
        file.write_text('log_level = "error"\nlog_format = "json"\n')
        server.signal(signal.SIGHUP)
        wait_for(lambda: client.get("/admin/log-level").json() == {"level": "error"})
        file.write_text('log_level = "loud"\n')
        server.signal(signal.SIGHUP)
        client.put("/admin/log-level", json={"level": "warning"})
        server.signal(signal.SIGHUP)
        server.logged("settings not reloaded")
        assert client.get("/admin/log-level").json() == {"level": "warning"}


def lines_of(server: Process) -> list[dict[str, object]]:
    return [json.loads(line) for line in list(server.log) if line.startswith("{") and line.endswith("}\n")]


def wait_for_line(server: Process, is_it: Callable[[dict[str, object]], bool]) -> list[dict[str, object]]:
    wait_for(lambda: any(map(is_it, lines_of(server))), lambda: "".join(server.log))
    return [line for line in lines_of(server) if is_it(line)]


def events_of(server: Process, event: str) -> list[dict[str, object]]:
    return [line for line in lines_of(server) if line.get("event") == event]


@pytest.mark.slow
def test_a_request_is_followed_from_the_api_to_the_executor_by_the_key_of_its_run(tmp_path: Path) -> None:
    with executing() as executor, serving(tmp_path, **JSON) as (client, server):
        upsert(client, cron_expr="0 0 1 1 *", launcher={"kind": "http", "url": executor.url})
        client.post("/schedules/customer-4711/run", headers={"X-Request-Id": "ticket-12"}).raise_for_status()
        wait_for_starts(executor, 1)
        (asked,) = wait_for_line(server, lambda line: line.get("event") == "asked")
        (started,) = wait_for_line(server, lambda line: line.get("event") == "started")
    assert asked["request_id"] == "ticket-12"
    assert asked["idempotency_key"] == started["idempotency_key"] == executor.keys()[0]
    headers = executor.sent[0].headers
    assert (headers["x-request-id"], headers["idempotency-key"]) == ("ticket-12", asked["idempotency_key"])


async def ask_for_runs(url: str, executor: Executor) -> None:
    """Ask for runs in this process, in the name of two requests."""
    store = open_store(url)
    registrar = Registrar(store, SystemClock())
    launcher = {"kind": "http", "url": executor.url}
    try:
        await registrar.upsert_schedule({**SECONDLY, "cron_expr": "0 0 1 1 *", "launcher": launcher})
        with acting_as(PROGRAM, "ticket-13"):
            await run_now(registrar, "customer-4711", "one")
        with acting_as(PROGRAM, "no header \u2713"):
            await run_now(registrar, "customer-4711", "two")
        with acting_as(PROGRAM, "ticket-14"):
            await backfill_schedule(
                registrar, "customer-4711", PeriodRange(start=1_577_836_800, end=1_640_995_201)
            )
    finally:
        await store.close()


@pytest.mark.slow
def test_the_id_of_a_request_reaches_the_executor_through_the_store(tmp_path: Path) -> None:
    """The request has ended by the time a worker starts the run."""
    url = f"sqlite:///{tmp_path}/kron.db"
    with executing() as executor:
        asyncio.run(ask_for_runs(url, executor))
        with process("worker", "--store", url, folder=tmp_path, KRON_TICK_MS="50", **JSON) as worker:
            wait_for_starts(executor, 5)
            wait_for(lambda: len(events_of(worker, "started")) == 5)
            said = [str(line["request_id"]) for line in events_of(worker, "started")]
        ids = [sent.headers.get("x-request-id", "") for sent in executor.sent]
    assert sorted(ids) == ["", "ticket-13", "ticket-14", "ticket-14", "ticket-14"]
    assert sorted(said) == ["no header \u2713", "ticket-13", "ticket-14", "ticket-14", "ticket-14"]


PLANTED = {
    "store": "storepassword1",
    "url": "urlpassword22",
    "query": "queryvalue333",
    "header": "headervalue4444",
    "bearer": "beareropaque55555",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlNjY2",
}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_that_were_planted_everywhere_are_nowhere_in_the_log(form: str, tmp_path: Path) -> None:
    with executing() as executor:
        executor.status = 400
        executor.answer = f"refused: Authorization: Bearer {PLANTED['bearer']}, token {PLANTED['token']}"
        log = log_with_secrets(executor, form, tmp_path)
    assert "refused" in log
    assert not [name for name, secret in PLANTED.items() if secret in log]


def log_with_secrets(executor: Executor, form: str, folder: Path) -> str:
    """Have a service handle secrets in every way it can, and return its log."""
    host = executor.url.removeprefix("http://")
    url = f"http://ann:{PLANTED['url']}@{host}?key={PLANTED['query']}"
    launcher = {"kind": "http", "url": url, "headers": {"X-Key": PLANTED["header"]}}
    settings = {
        "KRON_LOG_FORMAT": form,
        "KRON_LOG_LEVEL": "debug",
        "KRON_DEFAULT_LAUNCHER": json.dumps(launcher),
    }
    with serving(folder, **settings) as (client, server):
        upsert(client, overlap_policy="allow")
        for word in ("bearer", "token"):
            headers = {"Authorization": f"Bearer {PLANTED[word]}", "X-Request-Id": f"id-of-{word}"}
            client.get(f"/schedules/{PLANTED['token']}", params={"token": PLANTED[word]}, headers=headers)
            client.post("/schedules/upsert", json={"token": PLANTED[word]}, headers=headers)
        # A caller may even send one as the id of a request.
        client.get("/healthz", headers={"X-Request-Id": f"Bearer {PLANTED['bearer']}"})
        server.logged("launch_failed.*400 Bad Request")
        server.logged("id-of-token" if form == "json" else "kron.http GET /schedules")
        server.signal(signal.SIGKILL)
        server.ended()
        return "".join(server.log)


@pytest.mark.slow
def test_a_store_that_cannot_be_reached_is_complained_of_without_its_password(tmp_path: Path) -> None:
    url = f"postgresql://kron:{PLANTED['store']}@127.0.0.1:9/kron?connect_timeout=1"
    with process("worker", folder=tmp_path, KRON_STORE=url, KRON_LOG_LEVEL="debug") as worker:
        worker.logged("cannot acquire the lease: The store cannot be used")
        worker.signal(signal.SIGKILL)
        worker.ended()
        assert PLANTED["store"] not in "".join(worker.log)
