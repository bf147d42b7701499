"""KronJob manifests applied to a service and exported from it: at a server and at a store."""

from pathlib import Path

import pytest

from kron.cli.main import BAD, GOOD, run
from tests.cli import test_apply
from tests.cli.conftest import Kron
from tests.cli.test_apply import FILE, applied, counts, exported

# No Job is started here, so nothing has to answer at its server.
KUBECONFIG = Path(__file__).with_name("kubeconfig.yaml")
SETTINGS = {**test_apply.SETTINGS, "KRON_KUBERNETES": str(KUBECONFIG), "KRON_ALLOWED_NAMESPACES": "prod"}
KRONJOBS = """\
apiVersion: kron.io/v1alpha1
kind: KronCalendar
metadata: { name: holidays, namespace: prod }
spec: { days: [2026-12-24..2026-12-26] }
---
apiVersion: kron.io/v1alpha1
kind: KronJob
metadata: { name: backup, namespace: prod }
spec:
  schedule: "0 2 * * *"
  timezone: Europe/Berlin
  window: { duration: 1h }
  constraints: { avoid: { calendars: [holidays] } }
  policy: { concurrency: replace, deadline: never }
  jobTemplate:
    spec: { template: { spec: { containers: [ { name: a, env: [ { name: A, value: b } ] } ] } } }
"""


def test_kronjobs_are_applied_and_exported_as_the_jobs_they_are(kron: Kron) -> None:
    Path("kronjobs.yaml").write_text(KRONJOBS)
    assert counts(applied(kron, "kronjobs.yaml")) == {"created": 1}
    job = exported(kron)["prod/backup"]
    assert (job["launcher"]["namespace"], job["launcher"]["name"]) == ("prod", "backup")
    assert (job["policy"]["concurrency"], job["policy"]["deadline"]) == ("replace", None)
    assert kron("diff", "kronjobs.yaml") == (GOOD, "No changes: 1 unchanged\n", "")
    code, output, errors = kron("export", "--kronjob")
    assert (code, errors) == (GOOD, "")
    assert "kind: KronJob\nmetadata:\n  namespace: prod\n  name: backup\n" in output
    Path("again.yaml").write_text(output)
    assert kron("diff", "again.yaml", "--prune") == (GOOD, "No changes: 1 unchanged\n", "")


def test_only_schedules_that_start_jobs_are_exported_as_kronjobs(kron: Kron) -> None:
    Path("jobs.yaml").write_text(FILE)
    applied(kron, "jobs.yaml")
    code, output, errors = kron("export", "--kronjob")
    assert (code, output) == (BAD, "")
    assert '"prod/backup" cannot be a KronJob: its launcher is not of the kind kubernetes' in errors
    Path("wrong.yaml").write_text(KRONJOBS.replace("0 2 * * *", "0 25 * * *"))
    code, _, errors = kron("apply", "wrong.yaml", "--yes")
    assert code == BAD
    assert "wrong.yaml" in errors
    assert "schedule" in errors


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("kind: CronJob\n", "there is no KronJob in it", id="another kind"),
        pytest.param("kind: KronJob\nmetadata: {}\n", "a KronJob has no metadata.name", id="no name"),
    ],
)
def test_a_dry_run_of_the_operator_names_the_file_that_it_cannot_use(
    text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "manifest.yaml"
    file.write_text(text, encoding="utf-8")
    assert run(["operator", "--dry-run", "-f", str(file)]) == BAD
    assert capsys.readouterr().err == f'kron: Cannot read "{file}": {reason}\n'
