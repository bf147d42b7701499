"""Each extra, installed alone in an empty environment, does what the documentation says of it.

The packages come from the cache that `make` filled, so nothing is downloaded. Where the environment was made
without that cache (pip instead of uv) these tests are skipped and say so.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.server import serving

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")

pytestmark = pytest.mark.slow


class Installed:
    """An environment with the wheel and one extra."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"

    def kron(self, *words: str) -> tuple[int, str, str]:
        """Run the installed command in an empty folder, without the variables of the tests."""
        return self._run([self.folder / "bin" / "kron", *words])

    def code(self, text: str) -> tuple[int, str, str]:
        """Run a program."""
        return self._run([self.python, "-c", text])

    def _run(self, command: list[Path | str]) -> tuple[int, str, str]:
        place = self.folder / "empty"
        place.mkdir(exist_ok=True)
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(place)}
        done = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    assert built.name.startswith("kron_engine-")
    return built


@pytest.fixture(scope="module")
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    what = f"{wheel}[{request.param}]" if request.param else str(wheel)
    options = [
        "--quiet",
        "--offline",
        "--constraint",
        str(ROOT / "constraints.txt"),
        "--python",
        str(folder / "bin" / "python"),
    ]
    done = subprocess.run([UV, "pip", "install", *options, what], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the packages of [{request.param}] are not in the cache: {done.stderr.strip()[-300:]}")
    return Installed(folder)


alone = pytest.mark.parametrize("installed", [""], indirect=True, ids=["library"])
cli = pytest.mark.parametrize("installed", ["cli"], indirect=True)
service = pytest.mark.parametrize("installed", ["service"], indirect=True)
postgres_extra = pytest.mark.parametrize("installed", ["postgres"], indirect=True)
celery = pytest.mark.parametrize("installed", ["service,celery"], indirect=True)


@alone
def test_the_library_needs_nothing_but_the_zones(installed: Installed) -> None:
    code = "import kron; kron.Runner; print(kron.Schedule('0 9 * * *', timezone='Europe/Berlin').timezone)"
    assert installed.code(code) == (0, "Europe/Berlin\n", "")
    listed = "from importlib.metadata import distributions as d; print(sorted(x.name for x in d()))"
    assert installed.code(listed)[1] == "['kron-engine', 'tzdata']\n"


@alone
def test_without_extras_the_command_says_what_to_install(installed: Installed) -> None:
    remedy = "pip install 'kron-engine[cli]' (from a checkout: pip install '.[cli]')"
    line = f"kron: the command line needs more packages: {remedy}\n"
    assert installed.kron("--help") == (2, "", line)


@cli
def test_the_command_line_lists_its_commands(installed: Installed) -> None:
    code, shown, _ = installed.kron("--help")
    assert code == 0
    assert "token" in shown
    assert installed.kron("--version") == (0, "kron 0.1.0\n", "")


@cli
def test_a_mistyped_command_gets_a_suggestion(installed: Installed) -> None:
    assert installed.kron("nxt") == (
        2,
        "",
        "kron: No such command 'nxt'. Did you mean 'next'? (see kron --help)\n",
    )


@cli
@pytest.mark.parametrize(
    "words", [["token"], ["token", "make", "--help"], ["serve", "--help"], ["why", "--help"]]
)
def test_every_command_has_its_help_without_the_service(installed: Installed, words: list[str]) -> None:
    code, shown, errors = installed.kron(*words)
    assert (code, errors) == (0, "")
    assert shown.lstrip().startswith("Usage: kron")


@cli
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["serve"], "fastapi"),
        (["worker"], "fastapi"),
        (["token", "keys", "keys"], "cryptography"),
        (["token", "show"], "jwt"),
        (["token", "make", "--user", "ann", "--scope", "read"], "jwt"),
    ],
)
def test_a_command_of_the_service_names_its_extra(
    installed: Installed, words: list[str], module: str
) -> None:
    reason = f'The "service" extra is not installed (there is no module "{module}")'
    line = f"kron: {reason}: pip install 'kron-engine[service]' (from a checkout: pip install '.[service]')\n"
    assert installed.kron(*words) == (2, "", line)


@cli
def test_the_first_command_of_the_tutorial_works(installed: Installed) -> None:
    words = ["next", "0 9 * * mon-fri", "--tz", "Europe/Berlin", "--from", "2026-06-05", "-n", "1"]
    code, shown, errors = installed.kron(*words)
    assert (code, errors) == (0, "")
    assert "Fri 2026-06-05 09:00  CEST   2026-06-05T07:00:00Z" in shown


@cli
def test_a_store_on_postgresql_names_its_extra(installed: Installed) -> None:
    code, _, errors = installed.kron("status", "--store", "postgresql://kron@127.0.0.1:1/kron")
    assert code == 2
    assert "PostgreSQL needs an extra: pip install 'kron-engine[postgres]'" in errors


@service
def test_the_service_serves(installed: Installed, tmp_path: Path) -> None:
    with serving(tmp_path, program=[str(installed.folder / "bin" / "kron")]) as (client, _):
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/").status_code == 200


@service
def test_the_service_makes_keys_and_tokens(installed: Installed, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    assert installed.kron("token", "keys", str(keys))[0] == 0
    words = ["--user", "ann", "--scope", "read", "--key", str(keys / "private.pem")]
    code, token, errors = installed.kron("token", "make", *words)
    assert (code, errors) == (0, "")
    assert token.count(".") == 2


@postgres_extra
def test_the_postgres_extra_brings_its_own_driver(installed: Installed, postgres_url: str) -> None:
    code, _, errors = installed.kron("migrate", postgres_url)
    assert (code, errors) == (0, "")
    assert installed.kron("status", "--store", postgres_url)[0] == 0
    assert installed.code("import psycopg; print(psycopg.pq.__impl__)") == (0, "binary\n", "")


@celery
def test_the_celery_extra_has_what_its_launcher_imports(installed: Installed) -> None:
    code = (
        "import celery; from kron.launchers.celery.launcher import CeleryLauncher as it; print(it.__name__)"
    )
    assert installed.code(code) == (0, "CeleryLauncher\n", "")
