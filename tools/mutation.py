"""Change one detail of Kron at a time and check that a test fails: `make mutation ARGS="--module app"`.

A mutant is a copy of the source with one changed expression or statement. The tests that run its line, by a
map measured once, must fail for it; a mutant that survives shows a behaviour that no test checks. Samples
are drawn by a seed, results are kept, and a run that was interrupted continues.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from compileall import compile_dir
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tools.mutation_operators import Mutation, Mutator, key_of  # noqa: E402 - as a script it has no package
from tools.mutation_plugin import DURATIONS, VARIABLE  # noqa: E402
from tools.mutation_sql import sql_mutations, uses_of  # noqa: E402

SOURCE = ROOT / "src" / "kron"
CACHE = ROOT / ".cache" / "mutation"
MAP, REPORT = CACHE / "map.json", CACHE / "report.json"
ROOMS = ("app", "stores", "launchers", "fronts/service/auth")
# The tests that run these rooms; the fast tier of each.
TESTS = ["tests/app", "tests/stores", "tests/launchers", "tests/service", "tests/runtime", "tests/telemetry",
         "tests/embed", "tests/kubernetes", "tests/fronts", "tests/cli/test_token.py",
         "tests/cli/test_service.py"]  # fmt: skip
FAST_TIER = ("-m", "not slow", "--hypothesis-profile=fast")
# Tests of one mutant take at most this long by the map; the shortest come first.
MAX_TESTS_S = 40.0
# A mutant may take this long beyond what its tests take: it may wait for ever.
PATIENCE_S, SLOWDOWN = 60.0, 4.0
# How long a test of a mutant waits for a condition.
WAITING_S = 30
COVERAGE = """
[run]
data_file = {folder}/data/coverage
source = {source}
parallel = true
sigterm = true
patch = _exit
context = ${{{variable}-}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


class Mutant(NamedTuple):
    """A mutation of a file, with its name in the report, and the lines of code that show it when they run."""

    key: str
    path: str
    mutation: Mutation
    before: str
    spans: tuple[tuple[str, int, int], ...]

    @property
    def place(self) -> str:
        """Return the file, the line and the function."""
        scope = f" {self.mutation.scope}" if self.mutation.scope else ""
        return f"{self.path}:{self.mutation.lines[0]}{scope}"

    def __str__(self) -> str:
        words = " ".join(self.before.split()), " ".join(self.mutation.replacement.split())
        return f"{self.place}: {self.mutation.operator}: {words[0]} -> {words[1]}"


class CoverageMap(NamedTuple):
    """Which tests run which line of a file, and how long each takes. A file of tests stands for all of it."""

    seconds: dict[str, float]
    lines: dict[str, dict[int, list[str]]]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that may notice a mutant, the shortest first, within the time for one mutant."""
        names: set[str] = set()
        for path, first, last in mutant.spans:
            lines = self.lines.get(path, {})
            # A line of the module itself runs at its import, before any test.
            wanted = [line for line in lines if mutant.mutation.is_static or first <= line <= last]
            names.update(name for line in wanted for name in lines[line])
        if "" in names:
            # It runs at the import too, and what it made there is used by the modules beside it.
            names |= self._running(f"{Path(mutant.path).parent.as_posix()}/")
        if mutant.path.endswith(".sql"):
            names &= self._running(f"stores/{Path(mutant.path).parent.name}/")
        chosen: list[str] = []
        total = 0.0
        for name in sorted(self._expanded(names), key=lambda name: (self.seconds[name], name)):
            total += self.seconds[name]
            if chosen and total > MAX_TESTS_S:
                break
            chosen.append(name)
        return chosen

    def _running(self, package: str) -> set[str]:
        """Return the tests that run any line of a package."""
        files = (found for path, found in self.lines.items() if path.startswith(package))
        return {name for found in files for names in found.values() for name in names}

    def _expanded(self, names: set[str]) -> set[str]:
        files = {name for name in names if "::" not in name}
        inside = {test for test in self.seconds if test.partition("::")[0] in files}
        return (names & self.seconds.keys()) | inside


# --- the map of tests --------------------------------------------------------------------------------


def measure(workers: int, tests: list[str]) -> None:
    """Run tests once under coverage, and write which of them run which line."""
    shutil.rmtree(CACHE / "data", ignore_errors=True)
    (CACHE / "data").mkdir(parents=True)
    config = CACHE / "coverage.ini"
    config.write_text(COVERAGE.format(folder=CACHE, source=SOURCE, variable=VARIABLE))
    words = ["-m", "pytest", "-q", "-n", str(workers), "-p", "tools.mutation_plugin", "--dist", "worksteal"]
    # Every Python process below this one measures itself, and reads the variable of its context then.
    variables = {
        VARIABLE: "",
        DURATIONS: str(CACHE / "durations.json"),
        "COVERAGE_PROCESS_START": str(config),
    }
    subprocess.run(
        [sys.executable, *words, *FAST_TIER, *tests], cwd=ROOT, env=os.environ | variables, check=False
    )
    MAP.write_text(json.dumps({"seconds": _durations(), "lines": dict(_lines(config))}))
    print(f"[mutation] wrote {MAP.relative_to(ROOT)}")


def _durations() -> dict[str, float]:
    durations: dict[str, float] = json.loads((CACHE / "durations.json").read_text())
    return durations


def _lines(config: Path) -> Iterator[tuple[str, dict[int, list[str]]]]:
    from coverage import Coverage

    measured = Coverage(config_file=str(config))
    measured.combine()
    data = measured.get_data()
    for file in data.measured_files():
        path = Path(file)
        if path.is_relative_to(SOURCE):
            found = data.contexts_by_lineno(file)
            # A context is the file of the test that started a process, a bar, and the test itself.
            names = {line: sorted({context.strip("|") for context in found[line]}) for line in found}
            yield path.relative_to(SOURCE).as_posix(), names


def read_map() -> CoverageMap:
    """Read the map of tests."""
    document = json.loads(MAP.read_text())
    lines = {
        path: {int(line): names for line, names in found.items()} for path, found in document["lines"].items()
    }
    return CoverageMap(document["seconds"], lines)


# --- mutants -----------------------------------------------------------------------------------------


def mutants_of(path: str) -> list[Mutant]:
    """Return every mutant of a file."""
    text = (SOURCE / path).read_text()
    mutations = list(sql_mutations(text)) if path.endswith(".sql") else Mutator(text).mutations()
    source, seen, mutants = text.encode(), Counter[str](), []
    for mutation in mutations:
        key = key_of(path, mutation, source, 0)
        seen[key] += 1
        if seen[key] > 1:
            key = key_of(path, mutation, source, seen[key])
        before = source[mutation.start : mutation.end].decode()
        mutants.append(Mutant(key, path, mutation, before, _spans_of(path, mutation)))
    return mutants


def _spans_of(path: str, mutation: Mutation) -> tuple[tuple[str, int, int], ...]:
    if not path.endswith(".sql"):
        return ((path, *mutation.lines),)
    stores, name = SOURCE / "stores", Path(path)
    files = [*stores.glob("*.py"), *(stores / name.parent.name).glob("*.py")]
    uses = list(uses_of(mutation.scope, sorted(files)))
    spans = [(file.relative_to(SOURCE).as_posix(), line, line) for file, line in uses]
    # The name of a statement may be computed; then the whole module of its file may run it.
    return tuple(spans) or ((f"stores/{name.stem}.py", 1, 10_000),)


def files_of(name: str) -> list[str]:
    """Return the files of a room, a package or a module, as paths below `src/kron`."""
    place = SOURCE / name
    if place.is_dir():
        files = [*place.rglob("*.py"), *(file for file in place.rglob("*.sql") if not file.name[0].isdigit())]
    else:
        files = [place if place.is_file() else place.with_suffix(".py")]
    return sorted(file.relative_to(SOURCE).as_posix() for file in files)


def sample_of(wanted: list[str], count: int | None, seed: int) -> list[Mutant]:
    """Return a sample of each given room, package or module; the same for a seed while its lines stay."""
    chosen: dict[str, Mutant] = {}
    for name in wanted:
        mutants = [mutant for path in files_of(name) for mutant in mutants_of(path)]
        mutants.sort(key=lambda mutant: hashlib.sha256(f"{seed}:{mutant.key}".encode()).digest())
        chosen |= {mutant.key: mutant for mutant in mutants[:count]}
    return sorted(chosen.values(), key=lambda mutant: (mutant.path, mutant.mutation.start))


class Scratch:
    """A compiled copy of the source, into which mutants are put one at a time."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._source = folder / "src"
        shutil.copytree(ROOT / "src", self._source, ignore=shutil.ignore_patterns("__pycache__"))
        compile_dir(self._source, quiet=2)
        self._environment = os.environ | {
            "PYTHONPATH": str(self._source),
            # What Python compiles for one mutant must not be read for the next.
            "PYTHONDONTWRITEBYTECODE": "1",
            "TEST_PATIENCE_S": str(WAITING_S),
        }
        # Another test run would close a shared folder of temporary files to the database's user.
        (folder / "tmp").mkdir()
        self._environment["TMPDIR"] = str(folder / "tmp")
        self._arguments = folder / "tests.txt"

    def status_of(self, mutant: Mutant, tests: list[str], seconds: float) -> tuple[str, str]:
        """Run tests on a mutant; return its status and the test that failed."""
        file = self._source / "kron" / mutant.path
        original = file.read_bytes()
        Path(cache_from_source(str(file))).unlink(missing_ok=True)
        try:
            file.write_bytes(mutant.mutation.applied_to(original))
            return self._run(tests, seconds)
        finally:
            file.write_bytes(original)

    def _run(self, tests: list[str], seconds: float) -> tuple[str, str]:
        self._arguments.write_text("\n".join(tests) + "\n")
        words = ["-m", "pytest", "-q", "-x", "--no-header", "--tb=no", "-n", "0", "--hypothesis-profile=fast",
                 "-o", f"cache_dir={self._arguments.parent}", f"@{self._arguments}"]  # fmt: skip
        process = subprocess.Popen(
            ["nice", "-n", "10", sys.executable, *words],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "timeout", ""
        failed = [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        by = failed[0].split(" ")[1] if failed else ""
        if process.returncode in (0, 5):
            return "survived", ""
        return "killed", by or f"exit code {process.returncode}"


# --- the run -----------------------------------------------------------------------------------------


def hunt(mutants: list[Mutant], *, retry: bool) -> dict[str, dict[str, object]]:
    """Run every mutant that has no result yet, and keep each result at once."""
    results: dict[str, dict[str, object]] = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    missing = {mutant.key for mutant in mutants} - results.keys()
    if retry:
        missing |= {key for key, result in results.items() if result["status"] != "killed"}
    wanted = [mutant for mutant in mutants if mutant.key in missing]
    if not wanted:
        return results
    tests, scratch = read_map(), Scratch(CACHE / f"scratch-{os.getpid()}")
    for number, mutant in enumerate(wanted, start=1):
        chosen = tests.tests_of(mutant)
        expected = sum(tests.seconds[test] for test in chosen)
        began = time.perf_counter()
        status, by = "uncovered", ""
        if chosen:
            status, by = scratch.status_of(mutant, chosen, PATIENCE_S + SLOWDOWN * expected)
        seconds = round(time.perf_counter() - began, 1)
        results[mutant.key] = {
            "mutant": str(mutant), "status": status, "by": by, "tests": len(chosen), "seconds": seconds,
        }  # fmt: skip
        _keep(results)
        print(f"[mutation] {number} of {len(wanted)}: {status} ({seconds} s): {mutant}", flush=True)
    return results


def _keep(results: dict[str, dict[str, object]]) -> None:
    """Write all results, with those that another run kept since."""
    kept = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    new = REPORT.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps({**kept, **results}, indent=1))
    new.replace(REPORT)


def main() -> None:
    """Draw mutants, run their tests, and print the survivors and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", action="append", help="a room, package or module below src/kron")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each --module; 0 for all of them")
    parser.add_argument("--seed", type=int, default=1, help="which sample")
    parser.add_argument("--retry", action="store_true", help="run survivors again")
    parser.add_argument("--measure", action="store_true", help="measure again which test runs which line")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="the files and folders that are measured")
    parser.add_argument("--workers", type=int, default=2, help="processes that measure")
    options = parser.parse_args()
    if options.measure or not MAP.exists():
        measure(options.workers, options.tests)
    wanted = options.module or list(ROOMS)
    mutants = sample_of(wanted, options.sample or None, options.seed)
    results = hunt(mutants, retry=options.retry)
    counts = Counter[object]()
    for mutant in mutants:
        result = results[mutant.key]
        counts[result["status"]] += 1
        if result["status"] != "killed":
            print(f"{result['status']}: {mutant}")
    print(f"[mutation] seed {options.seed}: {len(mutants)} mutants, {dict(counts)}")
    sys.exit(1 if counts["survived"] or counts["uncovered"] else 0)


if __name__ == "__main__":
    main()
