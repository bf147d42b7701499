"""The registry of commands, and how one is called."""

import os
import re
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from kron.cli.main import BAD, GOOD, INTERRUPTED, print_error
from kron.cli.support.secret_check import check_words
from kron.core.version import VERSION

# Each command and its function, by the section of `kron --help`. Only the modules of the command on the
# command line are imported, so that it starts quickly. A new command is a file in kron/cli/commands, and a
# line here.
SECTIONS = {
    "Everyday": {
        "status": "kron.cli.commands.status:status_command",
        "runs": "kron.cli.commands.runs:runs_command",
        "why": "kron.cli.commands.why:why_command",
        "logs": "kron.cli.commands.logs:logs_command",
        "run": "kron.cli.commands.run:run_command",
        "pause": "kron.cli.commands.pause:pause_command",
        "resume": "kron.cli.commands.pause:resume_command",
        "schedules upsert": "kron.cli.commands.upsert:upsert_command",
        "schedules bulk": "kron.cli.commands.bulk:bulk_command",
        "schedules list": "kron.cli.commands.schedules:list_command",
        "schedules show": "kron.cli.commands.schedules:show_command",
        "schedules pause": "kron.cli.commands.pause:pause_command",
        "schedules resume": "kron.cli.commands.pause:resume_command",
        "schedules delete": "kron.cli.commands.schedules:delete_command",
        "schedules run": "kron.cli.commands.run:run_command",
        "schedules backfill": "kron.cli.commands.run:backfill_command",
        "schedules preview": "kron.cli.commands.upsert:preview_command",
        "schedules why": "kron.cli.commands.why:why_command",
    },
    "DAGs": {
        "dag list": "kron.cli.commands.dag:list_command",
        "dag show": "kron.cli.commands.dag:show_command",
        "dag runs": "kron.cli.commands.dag:runs_command",
        "dag tasks": "kron.cli.commands.dag:tasks_command",
        "dag logs": "kron.cli.commands.dag:logs_command",
        "dag put": "kron.cli.commands.dag:put_command",
        "dag trigger": "kron.cli.commands.dag:trigger_command",
        "dag catchup": "kron.cli.commands.dag:catchup_command",
        "dag retry": "kron.cli.commands.dag:retry_command",
        "dag cancel": "kron.cli.commands.dag:cancel_command",
        "dag pause": "kron.cli.commands.dag:pause_command",
        "dag resume": "kron.cli.commands.dag:resume_command",
        "dag pool": "kron.cli.commands.dag:pool_command",
        "dag worker": "kron.cli.commands.dag_run:worker_command",
        "dag run": "kron.cli.commands.dag_run:run_command",
    },
    "Definitions": {
        "next": "kron.cli.commands.next:next_command",
        "explain": "kron.cli.commands.explain:explain_command",
        "lint": "kron.cli.commands.lint:lint_command",
        "plan": "kron.cli.commands.plan:plan_command",
        "diff": "kron.cli.commands.apply:diff_command",
        "apply": "kron.cli.commands.apply:apply_command",
        "export": "kron.cli.commands.export:export_command",
        "import": "kron.cli.commands.import_jobs:import_command",
        "schema": "kron.cli.commands.schema:schema_command",
    },
    "Service": {
        "serve": "kron.cli.commands.serve:serve_command",
        "worker": "kron.cli.commands.worker:worker_command",
        "workers": "kron.cli.commands.workers:workers_command",
        "config": "kron.cli.commands.config:config_command",
        "token keys": "kron.cli.commands.token:keys_command",
        "token make": "kron.cli.commands.token:make_command",
        "token show": "kron.cli.commands.token:show_command",
        "token signing-key": "kron.cli.commands.token:signing_command",
        "audit": "kron.cli.commands.audit:audit_command",
        "report": "kron.cli.commands.runs:report_command",
        "migrate": "kron.cli.commands.migrate:migrate_command",
        "prune": "kron.cli.commands.prune:prune_command",
        "reencrypt": "kron.cli.commands.reencrypt:reencrypt_command",
    },
    "Kubernetes": {
        "operator": "kron.cli.commands.operator:operator_command",
    },
    "Analysis": {
        "simulate": "kron.cli.commands.simulate:simulate_command",
        "verify": "kron.cli.commands.verify:verify_command",
        "conform": "kron.cli.commands.conform:conform_command",
    },
}
COMMANDS = {name: place for members in SECTIONS.values() for name, place in members.items()}
# The section of commands that are in no other.
OTHER = "Other"

# Commands that take one expression, which a shell splits unless it is quoted.
TAKE_EXPRESSION = ("next", "explain")
# Set by the completion scripts of shells.
COMPLETION = "_KRON_COMPLETE"
# How typer writes arguments: {NAME} if required, [NAME] if not, which may have brackets and dots already.
_ARGUMENT = re.compile(r"^(?:\{(.*?)\}|\[(\[.*\])(?:\.{3})?\])((?:\.{3})?)$")
_TYPE = re.compile(r"(?<=\S) <(?:list\[)?(?:str|int(?: range)?|function|read)\]?>")
HELP = ("-h", "--help")
# Longer summaries of commands are cut in the list of commands.
MAX_SUMMARY = 200
# The base class of usage errors; typer exports only this one of its subclasses.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class PlainCommand(TyperCommand):
    """A command whose help names its arguments as this project writes them: SCHEDULE, [TIME]."""

    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the arguments for the usage line, without braces and doubled brackets."""
        pieces = super().collect_usage_pieces(ctx)
        return [_ARGUMENT.sub(r"\1\2\3", piece).replace("......", "...") for piece in pieces]

    def get_help(self, ctx: typer.Context) -> str:  # type: ignore[override]
        """Return the help without the Python types of arguments."""
        text = super().get_help(ctx)
        return _TYPE.sub(lambda match: " " * len(match[0]), text)


class SectionGroup(TyperGroup):
    """A group whose help lists its commands in sections, each with its whole summary."""

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the commands, section by section."""
        width = max(map(len, self.commands))
        for title, members in self.sections().items():
            rows = [
                (name.ljust(width), self.commands[name].get_short_help_str(MAX_SUMMARY)) for name in members
            ]
            with formatter.section(title):
                formatter.write_dl(rows)

    def sections(self) -> dict[str, list[str]]:
        """Return the commands by section: here all in one."""
        return {"Commands": list(self.commands)}


class AllCommands(SectionGroup):
    """The group of all commands."""

    def sections(self) -> dict[str, list[str]]:
        """Return the commands by section."""
        return sections(list(self.commands))


class ListGroup(SectionGroup):
    """A group of commands with `list` as its default."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Insert `list` before arguments that name no command."""
        return super().parse_args(ctx, ["list", *args] if self.means_list(args) else args)

    def means_list(self, args: list[str]) -> bool:
        """Return whether arguments name no command."""
        return not args or (args[0].startswith("-") and args[0] not in HELP)


def sections(commands: Sequence[str]) -> dict[str, list[str]]:
    """Return commands by section, without empty sections."""
    first_words = {title: dict.fromkeys(map(_first_word, members)) for title, members in SECTIONS.items()}
    placed = {title: [name for name in words if name in commands] for title, words in first_words.items()}
    known = {name for members in placed.values() for name in members}
    placed[OTHER] = [name for name in commands if name not in known]
    return {title: members for title, members in placed.items() if members}


def _first_word(command: str) -> str:
    """Return the name of a command, or of its group."""
    return command.partition(" ")[0]


class Group(NamedTuple):
    """The help text of a group of commands, and its class."""

    about: str
    kind: type[TyperGroup] = ListGroup


GROUPS = {
    "token": Group("Create keys and tokens, and inspect them.", SectionGroup),
    "dag": Group("Run DAGs, and inspect, catch up, retry and cancel their runs."),
    "schedules": Group("Create, list, show, backfill and delete schedules."),
}


def call(arguments: Sequence[str] | None) -> int:
    """Run a command; a usage error is one line."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    check_words(words)
    if _has_subject_only(words):
        _load(COMMANDS[words[0]])(words[1])
        return GOOD
    if COMPLETION in os.environ:
        # Shells read one suggestion per line, so descriptions must not wrap.
        os.environ["TERMINAL_WIDTH"] = "10000"
    try:
        code = build(_command_of(words))(args=words, prog_name="kron", standalone_mode=False)
    except UsageError as error:
        print_error(_usage_error(error))
        return BAD
    except SystemExit as end:
        # Typer exits when the reader of its output has closed the pipe, which `run` handles.
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        raise
    except typer.Abort as abort:
        # A question was answered by Ctrl-C, or by the end of the input, and the cursor is still behind it.
        typer.echo(err=True)
        print_error("aborted")
        return INTERRUPTED if isinstance(abort.__context__, KeyboardInterrupt) else BAD
    return code if isinstance(code, int) else GOOD


def _has_subject_only(words: list[str]) -> bool:
    """Return whether a command has one expression or file and no option, so that its defaults hold.

    Then it is called directly: to parse options, typer imports pydantic, which takes most of such a call.
    """
    is_simple = len(words) == 2 and words[0] in TAKE_EXPRESSION and not words[1].startswith("-")
    return is_simple and COMPLETION not in os.environ


def _command_of(words: list[str]) -> str | None:
    """Return the command on the line, which may be one that a shell completes; None for all commands."""
    if COMPLETION in os.environ:
        line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
        words = line.split()[1:]
        # The word at the cursor may be incomplete.
        if len(words) == 1 and not line[-1].isspace():
            return None
    return words[0] if words and words[0] in names() else None


def names() -> list[str]:
    """Return the commands and, after them, the groups of commands."""
    return [*(name for name in COMMANDS if " " not in name), *GROUPS]


def build(command: str | None = None) -> typer.Typer:
    """Return the application with one command or group, or with all of them."""
    app = _typer("kron", invoke_without_command=True)
    app.callback(cls=AllCommands)(_kron)
    for name in [command] if command else names():
        if name in GROUPS:
            app.add_typer(_group(name), name=name)
        else:
            app.command(name, cls=PlainCommand)(_load(COMMANDS[name]))
    return app


def _group(name: str) -> typer.Typer:
    about, kind = GROUPS[name]
    group = _typer(name, invoke_without_command=kind is SectionGroup)
    group.callback(cls=kind, help=about)(_show_help)
    for path, place in COMMANDS.items():
        first, _, verb = path.partition(" ")
        if first == name and verb:
            group.command(verb, cls=PlainCommand)(_load(place))
    return group


def _typer(name: str, *, invoke_without_command: bool) -> typer.Typer:
    return typer.Typer(
        name=name,
        invoke_without_command=invoke_without_command,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(HELP)},
    )


def _load(place: str) -> Callable[..., object]:
    module, _, name = place.partition(":")
    function: Callable[..., object] = getattr(import_module(module), name)
    return function


def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"kron {VERSION}")
        raise typer.Exit


def _kron(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Kron decides when work runs, records every decision, and can prove it was right."""
    _show_help(context)


def _usage_error(error: Exception) -> str:
    message = str(getattr(error, "format_message", error.__str__)())
    context = getattr(error, "ctx", None)
    if "unexpected extra argument" in message and context and context.info_name in TAKE_EXPRESSION:
        message = f'{message}; put an expression in quotes, as in "0 9 * * 1-5"'
    command = context.command_path if context else "kron"
    return f"{message.rstrip('.')} (see {command} --help)"
