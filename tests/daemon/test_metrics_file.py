"""krond writes its metrics to a file that Prometheus' tools read."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kron.cli.krond import run
from tests.daemon.krond import YEARLY, Krond


def samples_in(file: Path) -> dict[tuple[str, ...], float]:
    """Return the samples of a file by their names and the values of their labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(file.read_text())
        for sample in family.samples
    }


def test_krond_writes_its_metrics_for_a_node_exporter(tmp_path: Path) -> None:
    file = tmp_path / "krond.prom"
    krond = Krond(tmp_path, "--metrics-file", str(file))
    krond.write("host.yaml", f'jobs: [{{ name: fails, schedule: "{YEARLY}", command: exit 3 }}]\n')
    krond.start()
    krond.run("host/fails")
    assert krond.stop() == 0, krond.log_text()
    samples = samples_in(file)
    assert samples["kron_results_total", "failed"] == 1
    assert samples["runs_emitted_total",] == 1
    assert samples["kron_launch_seconds_count", "process"] == 1
    assert samples["kron_store_errors_total", "settle"] == 0
    # An exporter has these of its own process: two of one name fail its scrape.
    assert not [name for name, *_ in samples if name.startswith("process_")]
    assert "host/fails" not in file.read_text()
    # Decisions are logged all the same.
    assert "host/fails" in krond.log_text()
    assert file.stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.glob("*.prom.new"))


@pytest.mark.slow
def test_a_place_that_cannot_be_written_ends_no_krond(tmp_path: Path) -> None:
    krond = Krond(tmp_path, "--metrics-file", str(tmp_path / "missing" / "krond.prom"))
    krond.write("host.yaml", f'jobs: [{{ name: works, schedule: "{YEARLY}", command: "true" }}]\n')
    krond.start()
    assert krond.run("host/works")["status"] == "SUCCESS"
    assert krond.stop() == 0, krond.log_text()
    # Tried when it starts and when it stops, and logged once.
    assert krond.log_text().count("the metrics cannot be written") == 1


def test_a_folder_is_no_metrics_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--state", str(tmp_path / "state"), "--config", str(tmp_path), "--metrics-file", str(tmp_path)]
    assert run(words) == 2
    assert "is a folder" in capsys.readouterr().err
