"""Reading a page of the documentation, and running what it shows."""

import ast
import doctest
import io
import re
import shlex
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

from kron.cli.main import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = Path(sys.executable).parent

# A block with this class is shown and not run; one without a `kron` command is not run either.
NO_RUN = ".no-run"
RESULT = "# ->"
ELISION = "..."
# What a shell has to be asked for; everything else runs in this process.
SHELL_SIGNS = frozenset("|<>&;")
PROGRAMS = ("kron", "krond", "cat", "printf", "sed")

_FENCE = re.compile(r"( *)(`{3,})(.*)")
_TITLE = re.compile(r'title="([^"]*)"')
_FILE_NAME = re.compile(r"[\w.-]+\.[a-z]+")
_OWN_COMMAND = re.compile(r"^\$ (?:.*\| )?krond?\b", re.MULTILINE)
# The one thing in an output that is the machine's and not the page's.
_TZDATA = re.compile(r'"tzdata_version": (?:null|"[^"]*")')


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block: the line it begins in, what follows the fence, and the text inside."""

    line: int
    info: str
    text: str

    @property
    def language(self) -> str:
        """Return the first word, in either of the two ways to write it."""
        found = re.match(r"\s*\{?\s*\.?(\w*)", self.info)
        assert found is not None
        return found[1]

    @property
    def file(self) -> str | None:
        """Return the name of the file that the block is, if it is one."""
        found = _TITLE.search(self.info)
        return found[1] if found and _FILE_NAME.fullmatch(found[1]) else None

    @property
    def runs(self) -> bool:
        """Say whether the block is an example to run."""
        if NO_RUN in self.info:
            return False
        if self.language == "console":
            return _OWN_COMMAND.search(self.text) is not None
        return self.language == "python" and self.file is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A command, and the output the page shows for it."""

    line: int
    command: str
    expected: str


@dataclass(slots=True, kw_only=True)
class Session:
    """Where the examples of one page run, in order: a folder, Python's names, the last exit code."""

    folder: Path
    names: dict[str, object] = field(default_factory=lambda: {"__name__": "__main__"})
    code: int = 0

    def wrong(self, block: Block) -> list[str]:
        """Run a block and return what does not come out as it is shown."""
        if block.file is not None:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        if not block.runs:
            return []
        if block.language == "console":
            return [
                f"line {example.line}: $ {example.command}\n--- shown\n{example.expected}--- is\n{output}"
                for example in examples_of(block)
                if not agrees(example.expected, output := self.output_of(example.command))
            ]
        with chdir(self.folder):
            return self._wrong_in_python(block)

    def output_of(self, command: str) -> str:
        """Return what a command prints, to standard output and standard error alike."""
        if command == "echo $?":
            return f"{self.code}\n"
        words = shlex.split(command, comments=True)
        assert words[0] in PROGRAMS, f"$ {command} cannot be run here; mark the block {{.console {NO_RUN}}}"
        if words[0] == "kron" and not _needs_shell(command):
            return self._in_process(words[1:])
        return self._in_shell(command)

    def _in_process(self, arguments: list[str]) -> str:
        output = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with chdir(self.folder), redirect_stdout(output), redirect_stderr(output):
            self.code = run(arguments)
        output.seek(0)
        return output.read()

    def _in_shell(self, command: str) -> str:
        environment = {"PATH": f"{SCRIPTS}:/usr/bin:/bin", "PYTHONUTF8": "1"}
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            check=False,
        )
        self.code = done.returncode
        return done.stdout

    def _wrong_in_python(self, block: Block) -> list[str]:
        if ">>>" in block.text:
            return self._wrong_in_doctest(block)
        found = []
        expected = _results_of(block.text)
        statements = ast.parse(block.text).body
        for number, statement in enumerate(statements):
            stop = statements[number + 1].lineno if number + 1 < len(statements) else sys.maxsize
            shown = [text for line, text in expected if statement.lineno <= line < stop]
            output = self._execute(statement)
            if shown and "\n".join(shown) != output:
                found.append(
                    f"line {block.line + statement.lineno}: {ast.unparse(statement)}\n--- shown\n"
                    + "\n".join(shown)
                    + f"\n--- is\n{output}"
                )
        return found

    def _execute(self, statement: ast.stmt) -> str:
        """Run one statement and return what it prints or, if nothing, what it is worth."""
        output = io.StringIO()
        value = None
        with redirect_stdout(output):
            if isinstance(statement, ast.Expr):
                value = eval(compile(ast.Expression(statement.value), "<page>", "eval"), self.names)
            else:
                exec(compile(ast.Module([statement], []), "<page>", "exec"), self.names)
        return output.getvalue().rstrip("\n") or ("" if value is None else repr(value))

    def _wrong_in_doctest(self, block: Block) -> list[str]:
        test = doctest.DocTestParser().get_doctest(block.text, self.names, "page", None, block.line)
        said = io.StringIO()
        runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
        runner.run(test, out=said.write, clear_globs=False)
        self.names = test.globs
        return [said.getvalue()] if said.getvalue() else []


def _needs_shell(command: str) -> bool:
    """Say whether a command has signs of the shell outside its quotes."""
    return not SHELL_SIGNS.isdisjoint(re.sub(r"\"[^\"]*\"|'[^']*'", "", command))


def blocks_of(page: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page in order."""
    opened: re.Match[str] | None = None
    begin = 0
    lines = page.splitlines()
    for number, line in enumerate(lines, 1):
        found = _FENCE.fullmatch(line)
        if found is None:
            continue
        if opened is None:
            opened, begin = found, number
        elif found[2] == opened[2] and not found[3].strip():
            inside = (line.removeprefix(opened[1]) for line in lines[begin : number - 1])
            yield Block(line=begin, info=opened[3], text="".join(f"{line}\n" for line in inside))
            opened = None
    assert opened is None, f"the block of line {begin} does not end"


def examples_of(block: Block) -> Iterator[Example]:
    """Yield the commands of a console block and the output below each; a backslash continues a command."""
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
        command, below = lines[start][2:], start + 1
        while command.endswith("\\"):
            command = f"{command[:-1].rstrip()} {lines[below].strip()}"
            below += 1
        expected = "".join(f"{line}\n" for line in lines[below:stop])
        yield Example(line=block.line + start + 1, command=command, expected=expected)


def agrees(expected: str, output: str) -> bool:
    """Say whether an output is as shown, line by line; a line of three dots stands for any lines."""
    pattern = "".join(
        "(?:.*\n)*" if line.strip() == ELISION else re.escape(line) + "\n" for line in _plain(expected)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in _plain(output))) is not None


def _plain(text: str) -> list[str]:
    """Return lines without what a page cannot hold: blanks at their ends, empty lines at the bottom."""
    named = _TZDATA.sub('"tzdata_version": "any"', text)
    return [line.rstrip() for line in named.rstrip().splitlines()]


def _results_of(text: str) -> list[tuple[int, str]]:
    """Return the line and the text of each comment that shows a result."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token for token in tokens if token.type == tokenize.COMMENT]
    return [
        (comment.start[0], comment.string.removeprefix(RESULT).strip())
        for comment in comments
        if comment.string.startswith(RESULT)
    ]


def table_rows(page: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a page's tables as dictionaries, without the backticks around a cell."""
    header: list[str] | None = None
    for line in page.splitlines():
        if not line.startswith("|"):
            header = None
            continue
        cells = [cell.strip().strip("`") for cell in line.strip().strip("|").split(" | ")]
        cells = [cell.strip().strip("`").strip() for cell in cells]
        if header is None:
            header = cells
        elif set(line) - set("|-: "):
            yield dict(zip(header, cells, strict=False))
