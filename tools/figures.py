"""Measure the shape of the source: module sizes, importers, class names, wording, and files per operation.

    python tools/figures.py [--json] [--source src/kron] [--no-trace]

`make figures` prints each figure beside its goal and fails when one is missed.
"""

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VAGUE = re.compile(
    r"\b(somebody|whoever|nobody|anybody|what is|what was|what has|so many|so much|looks? after|as usual"
    r"|comes? of|by itself|in hand|on record|meanwhile|goes on|elsewhere)\b",
    re.IGNORECASE,
)
FIELD = re.compile(
    r"\b(lease|commit|retr(?:y|ies)|middleware|dispatch\w*|tenants?|workers?|transactions?|queues?|shards?"
    r"|batch(?:es)?|redact\w*|timeouts?|backoff|idempoten\w*|fenc\w+|namespaces?|cursors?|revisions?"
    r"|heartbeats?|rate limits?)\b",
    re.IGNORECASE,
)
WORD = re.compile(r"\w+")
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Figure(NamedTuple):
    """One measured value, and the bound it has to keep, if it has one."""

    name: str
    value: float
    most: float | None = None

    @property
    def missed(self) -> bool:
        return self.most is not None and self.value > self.most


def figures_of(source: Path) -> list[Figure]:
    """Return every figure that reading the source gives."""
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in trees}
    ports = source / "ports.py"
    lengths = [length for tree in trees.values() for length in _function_lengths(tree)]
    lonely = single_importers(trees, source)
    words, vague, field = _wording(trees)
    return [
        Figure("lines", sum(sizes.values())),
        Figure("modules", len(trees)),
        Figure("longest function, lines", max(lengths), 50),
        *([Figure("the page of the ports, lines", sizes[ports], 250)] if ports in sizes else []),
        Figure("modules with exactly one importer, %", round(100 * len(lonely) / len(trees), 1), 19.9),
        Figure("class names with two homes", len(shared_class_names(trees)), 7),
        Figure("vague words per 1,000", round(1000 * vague / words, 2), 2),
        Figure("field terms per 1,000", round(1000 * field / words, 1)),
    ]


def _function_lengths(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.end_lineno - node.lineno + 1


def single_importers(trees: Mapping[Path, ast.Module], source: Path) -> list[str]:
    """Return the modules that exactly one other module imports; command files have one by design."""
    names = {_module_name(path, source): path for path in trees}
    importers: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        own = _module_name(path, source)
        for target in _imported(tree):
            if target in names and target != own:
                importers[target].add(own)
    return sorted(
        name
        for name, users in importers.items()
        if len(users) == 1 and names[name].name != "__init__.py" and ".cli.commands." not in name
    )


def _module_name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def shared_class_names(trees: Mapping[Path, ast.Module]) -> list[str]:
    """Return the names of top-level classes that more than one module defines."""
    homes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, count in homes.items() if count > 1)


def _wording(trees: Mapping[Path, ast.Module]) -> tuple[int, int, int]:
    """Return the words of all docstrings and comments, how many are vague, and how many are field terms."""
    texts = [text for path, tree in trees.items() for text in (*_docstrings(tree), *_comments(path))]
    return (
        sum(len(WORD.findall(text)) for text in texts),
        sum(len(VAGUE.findall(text)) for text in texts),
        sum(len(FIELD.findall(text)) for text in texts),
    )


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, SCOPES):
            yield ast.get_docstring(node, clean=False) or ""


def _comments(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8") as file:
        for token in tokenize.generate_tokens(io.StringIO(file.read()).readline):
            if token.type == tokenize.COMMENT:
                yield token.string


def vague_places(source: Path) -> Iterator[str]:
    """Yield `file:line: words` for every vague wording, so that they can be mended."""
    for path in sorted(source.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            found = VAGUE.findall(ast.get_docstring(node) or "") if isinstance(node, SCOPES) else []
            if found:
                yield f"{path}:{getattr(node, 'lineno', 1)}: {', '.join(found)}"
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
            if token.type == tokenize.COMMENT and (found := VAGUE.findall(token.string)):
                yield f"{path}:{token.start[0]}: {', '.join(found)}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=ROOT / "src" / "kron")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", choices=("vague", "importers", "classes"), help="list the places instead")
    parser.add_argument("--no-trace", action="store_true", help="only read the source, run nothing")
    options = parser.parse_args()
    if options.list:
        print("\n".join(_listing(options.list, options.source)))
        return 0
    figures = figures_of(options.source)
    if not options.no_trace:
        figures += traced()
    if options.json:
        print(json.dumps([figure._asdict() for figure in figures], indent=2))
    else:
        for figure in figures:
            goal = "" if figure.most is None else f"at most {figure.most:g}"
            missed = "MISSED" if figure.missed else ""
            print(f"{figure.name:45} {figure.value:>10g}  {goal:12} {missed}".rstrip())
    return int(any(figure.missed for figure in figures))


def _listing(what: str, source: Path) -> list[str]:
    if what == "vague":
        return list(vague_places(source))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(source.rglob("*.py"))}
    return single_importers(trees, source) if what == "importers" else shared_class_names(trees)


def traced() -> list[Figure]:
    """Run an upsert over HTTP and a due process, and count the files of Kron that run for each."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "trace_files.py")], capture_output=True, text=True, check=True
    )
    known, new, process = (len(files) for files in json.loads(done.stdout))
    return [
        Figure("files that run for an HTTP upsert", new, 28),
        Figure("the same, with an expression used before", known),
        Figure("files that run for a due process", process, 28),
    ]


if __name__ == "__main__":
    sys.exit(main())
