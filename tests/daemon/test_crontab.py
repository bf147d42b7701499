"""krond runs crontabs unchanged."""

import os
import shutil
from pathlib import Path

import pytest

from kron.cli.support.job_folder import load
from tests.daemon.krond import Krond

CRONTAB = """\
# what cron runs
SHELL=/bin/bash
COLOUR="dark blue"
17 * * * * {user}echo "$COLOUR" $((1 + 1)) $BASH
@daily {user}cat%one%two \\% three
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param("spool", id="of a user"),
        pytest.param(
            "cron.d",
            id="of the system",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users"),
        ),
    ],
)
def test_a_crontab_runs_with_its_variables_its_shell_and_its_input(folder: str, tmp_path: Path) -> None:
    place = tmp_path / folder / "mine"
    place.parent.mkdir()
    place.write_text(CRONTAB.format(user="root " if folder == "cron.d" else ""))
    krond = Krond(tmp_path, "--crontab", str(place))
    krond.start()
    outputs = set()
    for name in krond.names():
        run = krond.run(name)
        assert run["status"] == "SUCCESS", run
        outputs.add(krond.output(name, run["idempotency_key"]))
    assert outputs == {"dark blue 2 /bin/bash\n", "one\ntwo % three\n"}
    assert krond.stop() == 0


@pytest.mark.slow
def test_a_line_of_a_user_runs_at_home_with_crons_shell(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    place = tmp_path / "mine"
    place.write_text("@daily pwd; echo $SHELL $PATH\n")
    krond = Krond(tmp_path, "--crontab", str(place))
    krond.start(env={"HOME": str(home), "SHELL": "/bin/bash", "PATH": os.environ["PATH"]})
    (name,) = krond.names()
    run = krond.run(name)
    assert krond.output(name, run["idempotency_key"]) == f"{home}\n/bin/sh /usr/bin:/bin\n"
    assert krond.stop() == 0


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
def test_root_runs_a_crontab_of_the_spool_as_its_user(tmp_path: Path) -> None:
    place = tmp_path / "crontabs" / "nobody"
    place.parent.mkdir()
    place.write_text("@daily id -un\n")
    os.chown(place, 65534, -1)
    # Its folder is that of Debian: members of a group may add files.
    place.parent.chmod(0o1730)
    krond = Krond(tmp_path, "--crontab", str(place))
    krond.start()
    (name,) = krond.names()
    run = krond.run(name)
    assert krond.output(name, run["idempotency_key"]) == "nobody\n"
    assert krond.stop() == 0
    # A file of another user does not run as that user.
    os.chown(place, 1, -1)
    assert "belongs to another user" in str(load([], [str(place)]).problems)


# The crontabs of Debian's packages cron and e2fsprogs in shape, for a folder of one's own.
SYSTEM = """\
# /etc/crontab: system-wide crontab
SHELL=/bin/sh
PATH=/usr/local/sbin:/usr/local/bin:/sbin:/bin:/usr/sbin:/usr/bin

# .---------------- minute (0 - 59)
# *  *  *  *  * user-name command to be executed
17 *\t* * *\troot\tcd / && run-parts --report {etc}/cron.hourly
25 6\t* * *\troot\ttest -x {etc}/anacron || {{ cd / && run-parts --report {etc}/cron.daily; }}
47 6\t* * 7\troot\ttest -x {etc}/anacron || {{ cd / && run-parts --report {etc}/cron.weekly; }}
52 6\t1 * *\troot\ttest -x {etc}/anacron || {{ cd / && run-parts --report {etc}/cron.monthly; }}
#
30 3 * * 0 root test -e {etc}/systemd || SERVICE_MODE=1 {etc}/cron.daily/mode
"""
INSTALLED = [
    str(place)
    for place in (Path("/etc/crontab"), *sorted(Path("/etc/cron.d").glob("[!.]*")))
    if place.is_file() and place.name != "README"
]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
@pytest.mark.skipif(shutil.which("run-parts") is None, reason="needs Debian's run-parts")
def test_the_system_crontab_of_debian_runs(tmp_path: Path) -> None:
    etc, place = tmp_path / "etc", tmp_path / "cron.d" / "system"
    for period in ("hourly", "daily", "weekly", "monthly"):
        script = etc / f"cron.{period}" / "mode"
        script.parent.mkdir(parents=True)
        script.write_text(f"#!/bin/sh\necho {period} $SERVICE_MODE in $PWD as $(id -un)\n")
        script.chmod(0o755)
    place.parent.mkdir()
    place.write_text(SYSTEM.format(etc=etc))
    krond = Krond(tmp_path, "--crontab", str(place))
    krond.start()
    outputs = []
    for name in krond.names():
        run = krond.run(name)
        assert run["status"] == "SUCCESS", run
        outputs.append(krond.output(name, run["idempotency_key"]))
    assert krond.stop() == 0
    assert sorted(line for output in outputs for line in output.splitlines() if " in " in line) == [
        f"daily 1 in {Path.home()} as root",
        *(f"{period} in / as root" for period in ("daily", "hourly", "monthly", "weekly")),
    ]


@pytest.mark.skipif(not INSTALLED, reason="this host has no crontabs of packages")
def test_the_crontabs_of_the_installed_packages_are_read() -> None:
    loaded = load([], INSTALLED)
    assert not loaded.problems
    lines = [line.split() for place in INSTALLED for line in Path(place).read_text().splitlines()]
    jobs = [words for words in lines if words and words[0][0] in "*@0123456789"]
    assert sum(map(len, loaded.jobs.values())) == len(jobs)


def test_a_job_that_is_in_two_files_is_named_with_its_line(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(
            f'- {{identity: {name}, schedule: "0 0 1 1 *", command: id}}\n'
            '- {identity: same, schedule: "0 0 1 1 *", command: id}\n'
        )
    problems = load([str(tmp_path)]).problems
    assert problems == {
        f"{tmp_path}/b.yaml": [f'{tmp_path}/b.yaml:2: job "same" is already defined in {tmp_path}/a.yaml']
    }
