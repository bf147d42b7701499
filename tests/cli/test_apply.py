"""Job files applied to a service, compared with it and exported from it: at a server and at a store."""

import json
from pathlib import Path
from typing import Any

from kron.cli.main import BAD, GOOD, NO
from kron.clocks.system import SystemClock
from tests.cli.conftest import Kron

FILE = """\
jobs:
  - identity: prod/backup
    schedule: "0 2 * * *"
    timezone: Europe/Berlin
    window: { mode: after, duration: 1h }
    constraints: { avoid: { dates: [2026-12-24..2026-12-26] } }
    policy: { concurrency: forbid, deadline: 10m, catchup: once }
    launcher: { kind: http, url: "http://127.0.0.1:9/backup", headers: { Authorization: Bearer secret-1 } }
    description: |
      Copies the books.
    tags: [nightly, books]
    retention: { keep: 30d, keep_runs: 5 }
  - schedule_id: prod/report
    cron_expr: 30 8 * * mon-fri
    overlap_policy: queue
    catchup_policy: fire_immediately
    deadline: null
    start_at: "2026-01-01T00:00:00Z"
    launcher: { kind: process, command: [/bin/true] }
"""
SETTINGS = {
    "KRON_MAX_PAGE": "2",
    "KRON_ALLOWED_HOSTS": "127.0.0.1",
    "KRON_ALLOWED_COMMANDS": "/bin/true",
}


def exported(kron: Kron, *words: str) -> dict[str, Any]:
    """Return the exported jobs by name."""
    code, output, errors = kron("export", "--json", *words)
    assert (code, errors) == (GOOD, ""), errors
    return {job["identity"]: job for job in json.loads(output)["jobs"]}


def applied(kron: Kron, *words: str) -> Any:
    code, output, errors = kron("apply", "--yes", "--json", *words)
    assert (code, errors) == (GOOD, ""), errors
    return json.loads(output)


def hour_not_near() -> int:
    """Return an hour of UTC that begins hours from now, so that a shift of one hour passes no start."""
    return 15 if SystemClock().now().hour < 12 else 3


def counts(plan: Any) -> dict[str, int]:
    return {kind: plan[kind] for kind in ("created", "changed", "unchanged", "deleted") if plan[kind]}


def test_a_file_is_applied_once_and_is_unchanged_from_then_on(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE)
    code, output, _ = kron("diff", "jobs.yaml")
    assert code == NO
    assert "Schedules: 2 created" in output
    code, output, errors = kron("apply", "jobs.yaml")
    assert (code, errors) == (NO, "kron: nothing was written; use --yes to apply it\n")
    assert exported_names(kron) == set()
    code, output, errors = kron("apply", "jobs.yaml", "--yes")
    assert (code, errors) == (GOOD, "")
    assert output.endswith("applied: 2 created\n")
    assert kron("apply", "jobs.yaml") == (GOOD, "No changes: 2 unchanged\n", "")
    assert kron("diff", "jobs.yaml", "--prune") == (GOOD, "No changes: 2 unchanged\n", "")


def exported_names(kron: Kron) -> set[str]:
    code, output, _ = kron("export", "--json")
    return {job["identity"] for job in json.loads(output)["jobs"]} if code == GOOD else set()


def test_an_export_is_a_file_that_changes_nothing(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE)
    applied(kron, "jobs.yaml")
    code, text, errors = kron("export")
    assert (code, errors) == (GOOD, "")
    assert "secret-1" not in text
    Path("exported.yaml").write_text(text)
    assert kron("diff", "exported.yaml", "--prune")[:2] == (GOOD, "No changes: 2 unchanged\n")
    assert counts(applied(kron, "exported.yaml", "--prune")) == {"unchanged": 2}
    assert kron("export")[1] == text
    report = exported(kron)["prod/report"]
    assert report["policy"] == {
        "concurrency": "queue",
        "deadline": None,
        "suspend": False,
        "start_at": "2026-01-01T00:00:00Z",
    }
    backup = exported(kron, "prod/backup")["prod/backup"]
    assert (backup["tags"], backup["retention"]) == (["books", "nightly"], {"keep": "720h", "keep_runs": 5})
    assert backup["description"] == "Copies the books.\n"
    assert set(exported(kron, "--tag", "books")) == {"prod/backup"}
    code, lines, errors = kron("export", "--krontab")
    assert (code, errors, len(lines.splitlines())) == (GOOD, "", 2)
    assert '": null' not in lines
    Path("exported.krontab").write_text(lines)
    assert kron("diff", "exported.krontab", "--prune")[:2] == (GOOD, "No changes: 2 unchanged\n")


def test_a_changed_file_shows_which_starts_move_and_changes_only_that(kron: Kron) -> None:
    hour = hour_not_near()
    before, after = f"30 {hour} * * mon-fri", f"30 {hour + 1} * * mon-fri"
    Path("jobs.yaml").write_text(FILE.replace("30 8 * * mon-fri", before))
    applied(kron, "jobs.yaml")
    Path("jobs.yaml").write_text(FILE.replace("30 8 * * mon-fri", after))
    code, output, _ = kron("diff", "jobs.yaml", "--days", "7")
    assert code == NO
    assert "Schedules: 1 changed, 1 unchanged" in output
    assert f"schedule: {before} -> {after}" in output
    assert "5 starts: all move by +1h" in output
    plan = applied(kron, "jobs.yaml")
    assert counts(plan) == {"changed": 1, "unchanged": 1}
    assert [shift["seconds"] for shift in plan["starts"]] == [3600] * 5
    assert exported(kron)["prod/report"]["schedule"] == after


def test_a_change_of_tags_alone_opens_no_new_epoch_and_moves_nothing(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE)
    applied(kron, "jobs.yaml")
    Path("jobs.yaml").write_text(FILE.replace("[nightly, books]", "[nightly]"))
    plan = applied(kron, "jobs.yaml")
    assert counts(plan) == {"changed": 1, "unchanged": 1}
    assert plan["starts"] == []
    assert [field["path"] for field in plan["jobs"][0]["fields"]] == ["tags"]
    code, output, _ = kron("audit", "--json")
    assert (code, json.loads(output)["entries"][0]["action"]) == (GOOD, "edit")


def test_prune_deletes_only_from_its_own_set(kron: Kron) -> None:
    one, two = FILE.split("  - schedule_id")
    Path("one.yaml").write_text(one)
    Path("two.yaml").write_text(f"jobs:\n  - schedule_id{two}")
    Path("none.yaml").write_text("jobs: []\n")
    applied(kron, "one.yaml", "--set", "one")
    applied(kron, "two.yaml", "--set", "two")
    upsert = ["schedules", "upsert", "--id", "by-hand", "--cron", "0 0 * * *"]
    assert kron(*upsert, "--url", "http://127.0.0.1:9/x")[0] == GOOD
    assert counts(applied(kron, "none.yaml", "--set", "one", "--prune")) == {"deleted": 1}
    assert set(exported(kron)) == {"by-hand", "prod/report"}
    assert counts(applied(kron, "none.yaml", "--set", "one", "--prune")) == {}
    # The same file brings it back.
    assert counts(applied(kron, "one.yaml", "--set", "one")) == {"created": 1}


def test_one_job_that_is_refused_keeps_all_from_being_written(kron: Kron) -> None:
    refused = FILE.replace("[/bin/true]", "[/usr/bin/env]")
    Path("jobs.yaml").write_text(refused)
    code, output, errors = kron("apply", "jobs.yaml", "--yes")
    assert (code, output) == (BAD, "")
    assert 'job "prod/report": launcher.command' in errors
    assert exported_names(kron) == set()


def test_a_problem_of_a_launcher_has_the_line_of_its_file(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE.replace("command: [/bin/true]", "command: [/bin/true], shell: 1"))
    code, _, errors = kron("apply", "jobs.yaml", "--yes")
    assert code == BAD
    assert errors.startswith("kron: jobs.yaml:19: jobs[1].launcher.shell")


def test_a_name_in_two_files_is_refused(kron: Kron) -> None:
    Path("one.yaml").write_text(FILE)
    Path("two.yaml").write_text(FILE)
    code, _, errors = kron("apply", "one.yaml", "two.yaml", "--yes")
    assert (code, errors) == (BAD, 'kron: two.yaml: job "prod/backup" is already defined in one.yaml\n')


def test_a_hidden_secret_stays_with_its_launcher_and_nowhere_else(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE)
    applied(kron, "jobs.yaml")
    text = kron("export")[1]
    Path("moved.yaml").write_text(text.replace("http://127.0.0.1:9/backup", "http://127.0.0.1:9/other"))
    code, _, errors = kron("apply", "moved.yaml", "--yes")
    assert code == BAD
    assert 'launcher.headers.Authorization: is hidden ("***")' in errors
    # With the secret written, the launcher may change.
    Path("moved.yaml").write_text(FILE.replace("9/backup", "9/other").replace("secret-1", "secret-2"))
    assert counts(applied(kron, "moved.yaml")) == {"changed": 1, "unchanged": 1}
    Path("secret.yaml").write_text(FILE.replace("9/backup", "9/other").replace("secret-1", "secret-3"))
    code, output, _ = kron("diff", "secret.yaml")
    assert code == NO
    assert "secret-3" not in output
    assert "~ prod/backup: a hidden value of its launcher, or its set" in output
