"""The service's verbs on the command line: at a server and at a store, for people and for machines."""

import json
import os
import pty
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kron.cli.app import names
from kron.cli.main import BAD, GOOD, NO, run
from tests.cli.conftest import Kron
from tests.cli.pseudo_terminal import read_to_end
from tests.service.executor import executing
from tests.service.server import KRON, serving

YAML = 'schedule_id: daily\ncron_expr: 0 9 * * *\ntimezone: Europe/Berlin\nstart_at: "2098-06-01T00:00:00Z"\n'
WORK = ["--workflow", "report", "--workflow-version", "3", "--user", "ann"]
SETTINGS = {"KRON_MAX_PAGE": "50", "KRON_ALLOWED_HOSTS": "127.0.0.1"}


def in_json(kron: Kron, *words: str) -> Any:
    """Return the JSON output of a command."""
    code, output, errors = kron(*words, "--json")
    assert (code, errors) == (GOOD, ""), errors
    return json.loads(output)


def sets(*fields: str) -> list[str]:
    return [word for field in fields for word in ("--set", field)]


def test_a_resume_tells_when_a_run_starts_and_not_its_nominal_time(kron: Kron) -> None:
    Path("daily.yaml").write_text(YAML)
    fields = sets(
        'window={"mode": "after", "duration": "1h"}', 'constraints={"avoid": {"dates": ["2098-06-01"]}}'
    )
    assert kron("schedules", "upsert", "daily.yaml", *WORK, *fields)[0] == GOOD
    start = in_json(kron, "schedules", "show", "daily")["next_start_at"]
    assert start.startswith("2098-06-02T07:")
    assert kron("pause", "daily")[0] == GOOD
    resumed = f"daily: resumed, next run {start} (1 passed over)\n"
    assert kron("resume", "daily")[1] == f"daily: 0 runs would start\n{resumed}"


def test_a_schedule_lives_from_its_file_to_its_end(kron: Kron, tmp_path: Path) -> None:
    Path("daily.yaml").write_text(YAML)
    made = (GOOD, "daily: next run 2098-06-01T07:00:00Z\n", "")
    assert kron("schedules", "upsert", "daily.yaml", *WORK) == made
    assert kron("schedules", "upsert", "daily.yaml", *WORK, "--create-only")[0] == NO
    table = (
        "SCHEDULE  NEXT                  EXPRESSION  TIME ZONE\n"
        "daily     2098-06-01T07:00:00Z  0 9 * * *   Europe/Berlin\n"
    )
    assert kron("schedules") == kron("schedules", "list", "--active", "--search", "AIL") == (GOOD, table, "")
    none = "none: no schedule matches, or none is stored yet; kron schedules upsert adds one\n"
    assert kron("schedules", "list", "--paused") == (GOOD, none, "")
    shown = in_json(kron, "schedules", "show", "daily")
    assert (shown["workflow_id"], shown["version"], shown["user_id"]) == ("report", 3, "ann")
    assert kron("pause", "daily") == (GOOD, "daily: paused\n", "")
    assert in_json(kron, "status")["schedules"][0]["paused"]
    assert kron("resume", "daily")[1] == (
        "daily: 0 runs would start\ndaily: resumed, next run 2098-06-01T07:00:00Z\n"
    )
    assert kron("resume", "daily") == (GOOD, "daily: not paused, next run 2098-06-01T07:00:00Z\n", "")
    (first,) = {in_json(kron, "run", "daily", "--request-id", "x")["idempotency_key"] for _ in range(2)}
    assert [each["idempotency_key"] for each in in_json(kron, "runs", "daily")["runs"]] == [first]
    assert [each["idempotency_key"] for each in in_json(kron, "runs")["runs"]] == [first]
    span = ("daily", "--from", "2098-06-02T00:00Z", "--to", "2098-06-04T00:00Z")
    assert in_json(kron, "schedules", "backfill", *span, "--dry-run")["still_to_be_judged"] == 2
    assert in_json(kron, "why", "daily", "2098-06-01T09:00")["code"] == "to_come"
    assert in_json(kron, "why", "daily")["period_id"] == "2098-06-01T07:00:00Z"
    assert in_json(kron, "runs", "daily", "2098-06-01T07:00:00Z")["runs"] == []
    none = "none: daily 2098-06-01T07:00:00Z has no run; kron why explains it\n"
    for time in ("2098-06-01T07:00:00Z", "2098-06-01T09:00", "latest"):
        assert kron("runs", "daily", time) == (GOOD, none, "")
    assert kron("schedules", "delete", "daily") == (GOOD, "daily: deleted\n", "")
    assert kron("schedules", "show", "daily") == (NO, "", 'kron: There is no schedule "daily"\n')
    assert kron("schedules", "upsert", "daily.yaml", *WORK) == made
    misspelt = 'kron: There is no schedule "dayly"; did you mean daily?\n'
    assert kron("why", "dayly") == (NO, "", misspelt)


def test_a_schedule_can_be_made_of_options_alone(kron: Kron) -> None:
    options = ["--id", "a/b", "--cron", "* * * * *", "--url", "http://127.0.0.1:9/"]
    fields = [
        "--set",
        "start_at=2098-06-01T00:00:00Z",
        "--set",
        'policy={"queue_max": 7}',
        "--set",
        "jitter_ms=5",
    ]
    assert in_json(kron, "schedules", "upsert", *options, *fields)["next_run_at"] == "2098-06-01T00:00:00Z"
    shown = in_json(kron, "schedules", "show", "a/b")
    assert (shown["launcher"]["kind"], shown["queue_max"], shown["jitter_ms"]) == ("http", 7, 5)
    assert shown["timezone"] == "UTC"
    code, output, _ = kron("schedules", "show", "a/b")
    assert (code, output.splitlines()[0].split()) == (GOOD, ["schedule_id", "a/b"])
    code, output, _ = kron(
        "schedules", "preview", "--cron", "30 2 29 3 *", "--tz", "Europe/Berlin", "-n", "2"
    )
    assert code == GOOD
    assert output.startswith("At 02:30 on the 29th of March   Europe/Berlin\n") or "02:30" in output


REFUSED: list[tuple[list[str], int, str]] = [
    (["schedules", "show", "nobody"], NO, 'There is no schedule "nobody"'),
    (["pause", "nobody"], NO, 'There is no schedule "nobody"'),
    (["resume", "nobody", "--yes"], NO, 'There is no schedule "nobody"'),
    (["run", "nobody"], NO, 'There is no schedule "nobody"'),
    (["why", "nobody", "2026-01-01T00:00:00Z"], NO, 'There is no schedule "nobody"'),
    (["runs", "nobody"], NO, 'There is no schedule "nobody"'),
    (["report", "f" * 64, "SUCCESS"], NO, "There is no run"),
    (["report", "x", "LATE"], BAD, 'Invalid STATUS "LATE"'),
    (["runs", "--status", "LATE"], BAD, 'Invalid --status "LATE"'),
    (["runs", "nobody", "--status", "FAILED"], NO, 'There is no schedule "nobody"'),
    (["runs", "--limit", "51"], BAD, 'Invalid limit "51": use 1 to 50'),
    (["schedules", "list", "--cursor", "x"], BAD, "Invalid cursor"),
    (["schedules", "upsert", "--cron", "x", "--url", "http://127.0.0.1:9/"], BAD, "cron_expr"),
    (["schedules", "upsert", "--set", "x"], BAD, "write FIELD=VALUE"),
    (["schedules", "upsert", "--id", "y", "--cron", "* * * * *"], BAD, "launcher: is missing; use --url URL"),
    (["schedules", "upsert", "nothing.yaml"], BAD, "No such file"),
    (["schedules", "bulk", "nothing.jsonl"], BAD, "No such file"),
    (["schedules", "pasue", "x"], BAD, "No such command"),
    (["schedules", "backfill", "x", "--from", "a", "--to", "b", "--only", "some"], BAD, "--only"),
    (
        ["status", "--server", "http://127.0.0.1:1", "--store", "memory://"],
        BAD,
        "use --server or --store, not both",
    ),
    (["status", "--server", "127.0.0.1:1"], BAD, "Invalid server"),
    (["status", "--server", "http://127.0.0.1:1"], BAD, "cannot be used"),
]


def test_an_error_is_one_line_with_its_exit_code(kron: Kron) -> None:
    in_json(kron, "schedules", "upsert", "--id", "x", "--cron", "0 0 1 1 *", *WORK)
    for words, code, said in REFUSED:
        found, output, errors = kron(*words)
        assert (words, found, output) == (words, code, ""), errors
        assert said in errors.splitlines()[0]
        assert all(line.startswith("kron: ") for line in errors.splitlines())


def test_many_are_stored_batch_by_batch_and_a_wrong_line_is_named(kron: Kron) -> None:
    lines = [json.dumps({"schedule_id": f"s{n}", "cron_expr": "0 0 1 1 *", "timezone": "UTC",
                         "launcher": {"kind": "log"}}) for n in range(1_500)]  # fmt: skip
    Path("good.jsonl").write_text("\n\n".join(lines))
    assert kron("schedules", "bulk", "good.jsonl") == (GOOD, "stored 1,500 schedules\n", "")
    again = [line.replace("0 0", "0 9") for line in lines]
    Path("bad.jsonl").write_text("\n".join([*again[:1_200], "{", *again[1_200:]]))
    code, output, errors = kron("schedules", "bulk", "bad.jsonl")
    assert (code, output) == (BAD, "")
    assert errors.startswith("kron: line 1201: ")
    assert errors.splitlines()[1:] == [
        "kron: the 1000 schedules before these lines are stored; the request may be repeated"
    ]
    # The batch before it is stored, and nothing of its batch.
    found = [in_json(kron, "schedules", "show", name)["cron_expr"] for name in ("s999", "s1000")]
    assert found == ["0 9 1 1 *", "0 0 1 1 *"]
    Path("empty.jsonl").write_text("\n \n")
    assert in_json(kron, "schedules", "bulk", "empty.jsonl") == {"upserted": 0, "batches": 0}


def test_a_resume_that_would_start_runs_needs_confirmation(kron: Kron) -> None:
    fields = [
        "--set",
        "paused=true",
        "--set",
        "catchup_policy=fire_immediately",
        "--set",
        "overlap_policy=allow",
    ]
    in_json(kron, "schedules", "upsert", "--id", "fast", "--cron", "* * * * * *", *WORK, *fields)
    # In the second of its creation nothing has passed yet.
    while (answer := kron("resume", "fast"))[0] == GOOD:
        in_json(kron, "pause", "fast")
    code, foreseen, errors = answer
    assert (code, errors) == (NO, "kron: still paused; use --yes to resume it\n")
    assert re.match(r"fast: \d+ runs? would start: 20", foreseen)
    assert in_json(kron, "schedules", "show", "fast")["paused"]
    done = in_json(kron, "resume", "fast", "--yes")
    assert done["would_start"] >= 1
    assert not done["paused"]


def test_a_suspended_schedule_says_so_when_it_is_resumed_and_in_lists(kron: Kron) -> None:
    suspended = ["--set", 'policy={"suspend": true}']
    in_json(kron, "schedules", "upsert", "--id", "still", "--cron", "0 0 1 1 *", *WORK, *suspended)
    reason = ["--reason", "the target is down", "--until", "2098-06-01T12:00Z"]
    assert kron("pause", "still", *reason)[1].startswith("still: paused; its definition suspends it too")
    words = "paused (the target is down) until 2098-06-01T12:00:00Z, suspended by its definition"
    assert words in kron("status")[1]
    assert "paused, suspended" in kron("schedules", "list")[1]
    _, output, _ = kron("resume", "still")
    assert output.splitlines()[-1].startswith(
        "still: resumed, but its definition suspends it (policy.suspend)"
    )
    assert in_json(kron, "schedules", "list", "--active")["schedules"] == []
    in_json(kron, "schedules", "upsert", "--id", "still", "--cron", "0 0 1 1 *", *WORK)
    assert len(in_json(kron, "schedules", "list", "--active")["schedules"]) == 1


def test_pages_are_walked_through(kron: Kron) -> None:
    for name in ("a", "b", "c"):
        in_json(kron, "schedules", "upsert", "--id", name, "--cron", "0 0 1 1 *", *WORK)
    code, output, _ = kron("schedules", "list", "--limit", "2")
    _, *rows, more = output.splitlines()
    assert (code, [row[0] for row in rows]) == (GOOD, ["a", "b"])
    page = in_json(kron, "schedules", *more.removeprefix("more: ").split())
    assert ([each["schedule_id"] for each in page["schedules"]], page["next_cursor"]) == (["c"], None)


def test_an_executor_reports_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with executing() as executor, serving(tmp_path) as (client, _):
        monkeypatch.setenv("KRON_SERVER", str(client.base_url))
        launcher = json.dumps({"kind": "http", "url": executor.url, "reports": True})
        assert (
            run(
                ["schedules", "upsert", "--id", "x", "--cron", "* * * * * *", "--set", f"launcher={launcher}"]
            )
            == GOOD
        )
        while not executor.sent:
            pass
        key = executor.keys()[0]
        assert run(["report", key, "failed", "--run-id", "e-1", "--error", "no space"]) == GOOD
        assert "FAILED" in capfd.readouterr().out
        assert run(["status"]) == GOOD
        assert "worker: running" in capfd.readouterr().out


def test_a_store_that_is_not_there_is_not_made_by_looking_at_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["status"]) == BAD
    assert "the file does not exist" in capsys.readouterr().err
    times = ["--cron", "0 9 * * *", "--tz", "UTC", "--set", 'launcher={"kind": "log"}']
    assert run(["schedules", "preview", *times]) == GOOD
    assert run(["schedules", "upsert", "--id", "report", *times, "--dry-run"]) == GOOD
    assert list(tmp_path.iterdir()) == []
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("{identity: report, schedule: 0 9 * * *, launcher: {kind: log}}", encoding="utf-8")
    assert run(["diff", "jobs.yaml"]) == run(["apply", "jobs.yaml"]) == NO
    assert list(tmp_path.iterdir()) == [jobs]
    assert run(["apply", "jobs.yaml", "--yes"]) == GOOD
    assert run(["diff", "jobs.yaml"]) == GOOD


@pytest.mark.parametrize("command", [["status"], ["runs"], ["why", "report"], ["schedules", "list"]])
def test_a_store_that_cannot_be_used_is_an_error_of_every_command(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("no database " * 100, encoding="utf-8")
    assert run([*command, "--store", f"sqlite:///{file}"]) == BAD
    assert capsys.readouterr() == ("", f"kron: The store cannot be used: file is not a database: {file}\n")


def test_a_terminal_sees_how_far_a_bulk_load_is(tmp_path: Path) -> None:
    """On a real terminal the progress bar is drawn there, and the result goes to standard output."""
    line = {"cron_expr": "0 0 1 1 *", "timezone": "UTC", "launcher": {"kind": "log"}}
    text = "".join(json.dumps({**line, "schedule_id": f"s{n}"}) + "\n" for n in range(3_000))
    (tmp_path / "many.jsonl").write_text(text)
    master, slave = pty.openpty()
    words = [*KRON, "schedules", "bulk", "many.jsonl", "--store", "sqlite:///kron.db"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    # A terminal holds 4 KiB: it is read while the command runs, which would wait for room otherwise.
    with ThreadPoolExecutor() as pool, os.fdopen(master, "rb", buffering=0) as terminal:
        reading = pool.submit(read_to_end, terminal)
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=slave, text=True, check=False
        )
        os.close(slave)
        drawn = reading.result()
    assert (done.returncode, done.stdout) == (GOOD, "stored 3,000 schedules\n")
    assert "schedules" in drawn
    assert "/s" in drawn


SERVICE = ("status", "why", "pause", "resume", "run", "schedules", "runs")


@pytest.mark.parametrize("command", SERVICE)
def test_every_verb_has_help_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command in names()
    assert run([command, "--help"]) == GOOD
    said = capsys.readouterr().out
    verbs = re.findall(r"^  (\w+)  +", said.partition("Commands:")[2], re.MULTILINE)
    for words in [[command, verb] for verb in verbs] or [[command]]:
        assert run([*words, "--help"]) == GOOD
        help_text = capsys.readouterr().out
        assert "Examples:" in help_text
        assert "--server" in help_text
        assert "--json" in help_text
