"""`krond`, the host daemon: runs the jobs of files, keeps their outcomes, and takes `kron` commands."""

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from kron.app.notify.sender import NotifyOptions
from kron.cli.main import BAD, GOOD, INSTALL, INTERRUPTED, NO
from kron.core.errors import ConflictError, InputError, KronError
from kron.fronts.daemon.control import Handler
from kron.fronts.daemon.daemon import FIRST_LOAD, NAMESPACE, Daemon, DaemonOptions, only_instance
from kron.fronts.daemon.place import StateFolder, default_config, default_place
from kron.fronts.daemon.settings import read_notify_options, secrets_of

USAGE = """\
krond runs the jobs of job files on this host: each period once, at its time, with its output kept.
It stays in the foreground until SIGTERM or Ctrl-C; SIGHUP and changed files reload the jobs.
`kron status`, `kron runs`, `kron why` and `kron logs` query it; `krond install --help` explains its unit.
"""
# How krond starts itself again. `-P`: no module is taken from the folder that krond was started in, because
# other users may write to it.
PROGRAM = (sys.executable, "-P", "-m", "kron.cli.krond")
# The packages of the extra `service` that the pages need.
PAGES_NEED = ("fastapi", "uvicorn", "jinja2", "prometheus_client")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the daemon, and return its exit code."""
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except KronError as error:
        for line in error.lines():
            print(f"krond: {line}", file=sys.stderr)
        return NO if isinstance(error, ConflictError) else BAD
    except KeyboardInterrupt:
        # While it starts, or a second one while it stops.
        return INTERRUPTED
    except ModuleNotFoundError as cause:
        if (cause.name or "").partition(".")[0] == "kron":
            raise
        print(INSTALL.replace("kron:", "krond:", 1), file=sys.stderr)
        return BAD


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["install"]:
        return _install(arguments[1:])
    options = _parser().parse_args(arguments)
    place = (
        default_place(os.environ) if options.state is None else StateFolder(Path(options.state).absolute())
    )
    crontabs = options.crontab or []
    # With crontabs alone, the usual folder is not meant.
    paths = options.config or ([] if crontabs else [default_config(os.environ)])
    sources = Sources(
        paths, crontabs, None if options.settings is None else os.path.abspath(options.settings)
    )
    if options.check:
        return _check(sources)
    if options.load:
        return _load(place, sources, at_boot=options.boot)
    return _run_daemon(place, sources, options)


def _run_daemon(place: StateFolder, sources: "Sources", options: argparse.Namespace) -> int:
    from kron.telemetry.log_format import start_logging

    notify = read_notify_options(sources.settings)
    start_logging(level=options.log_level, log_format=options.log_format, secrets=secrets_of(notify))
    if options.pages is not None:
        from kron.cli.support.krond_pages import serve_pages

        serve_pages(place, notify, options.pages)
        return GOOD
    metrics = None if options.metrics_file is None else Path(options.metrics_file).absolute()
    listening = None if options.listen is None else _listen(options.listen)
    logs = ["--log-format", options.log_format, "--log-level", options.log_level]
    return _serve(place, sources, DaemonExtras(notify, metrics, listening, logs))


def _listen(address: str) -> socket.socket:
    """Listen for the pages, where the packages that they need are installed."""
    from kron.cli.support.extra import MissingExtraError
    from kron.fronts.daemon.pages import listen

    for module in PAGES_NEED:
        if find_spec(module) is None:
            raise MissingExtraError(extra="service", module=module)
    return listen(address)


class DaemonExtras(NamedTuple):
    """What a krond has beside its jobs: notifications, metrics, pages, and the options of its log."""

    notify: NotifyOptions
    metrics_file: Path | None
    listening: socket.socket | None
    log_words: Sequence[str]


class Sources(NamedTuple):
    """The files that a krond reads: job files and folders of them, crontabs, and its settings."""

    paths: Sequence[str]
    crontabs: Sequence[str]
    settings: str | None

    def words(self) -> list[str]:
        """Return the options that name them."""
        named = [("--config", self.paths), ("--crontab", self.crontabs)]
        named.append(("--settings", [] if self.settings is None else [self.settings]))
        return [word for option, paths in named for path in paths for word in (option, path)]


def _serve(place: StateFolder, sources: Sources, extras: DaemonExtras) -> int:
    from kron.app.process import prepare_process
    from kron.cli.support.job_folder import stamp
    from kron.fronts.daemon.pages import PagesProcess
    from kron.fronts.daemon.systemd import Notifier

    notifier = Notifier.of(os.environ)
    state = ["--state", str(place.folder), *sources.words()]
    pages = None
    if extras.listening is not None:
        pages = PagesProcess([*PROGRAM, *state, *extras.log_words, "--pages"], extras.listening)

    async def serve() -> None:
        options = DaemonOptions(
            place=place,
            loader=[*PROGRAM, "--load", *state],
            stamp=partial(stamp, [*sources.paths, *sources.crontabs]),
            notifier=notifier,
            metrics_file=extras.metrics_file,
            is_measured=pages is not None,
            beside=() if pages is None else (pages.run,),
            notify=extras.notify,
        )
        await Daemon(options, _handler_of).run()

    with only_instance(place):
        prepare_process()
        asyncio.run(serve())
    return GOOD


def _handler_of(daemon: Daemon) -> Handler:
    """Return what answers control requests; it is imported with the first one."""
    answer: Handler | None = None

    async def handle(caller: str, request: Mapping[str, object]) -> object:
        nonlocal answer
        if answer is None:
            from kron.cli.support.control import handler_of

            answer = handler_of(daemon)
        return await answer(caller, request)

    return handle


def _load(place: StateFolder, sources: Sources, *, at_boot: bool) -> int:
    """Apply the files to the database of a krond, and print the result as JSON, for the daemon."""
    from kron.app.catalog import Catalog
    from kron.app.launchers import traits_by_kind
    from kron.cli.support.job_folder import load
    from kron.clocks.system import SystemClock
    from kron.core.time.instant import milliseconds_of
    from kron.fronts.daemon.job_set import Reloaded, reload_jobs, start_boot_jobs
    from kron.launchers.process.host import boot_of, end_with_parent
    from kron.stores.sqlite.store import SqliteStore

    end_with_parent()
    channels = read_notify_options(sources.settings).channels

    async def apply() -> Reloaded:
        clock, store = SystemClock(), SqliteStore(str(place.database))
        catalog = Catalog(store, NAMESPACE, now=lambda: milliseconds_of(clock.now()), traits=traits_by_kind())
        try:
            load_files = partial(load, sources.paths, sources.crontabs)
            reloaded = await reload_jobs(catalog, load_files, channels)
            if at_boot:
                await start_boot_jobs(catalog, boot_of())
            return reloaded
        finally:
            await store.close()

    print(json.dumps(asyncio.run(apply())._asdict()))
    return GOOD


def _check(sources: Sources) -> int:
    """Read the files, print every problem, and say how many jobs they have."""
    from kron.cli.support.job_folder import load
    from kron.core.wording import counted
    from kron.fronts.daemon.job_set import definitions_of

    loaded = load(sources.paths, sources.crontabs)
    definitions, problems = definitions_of(loaded, read_notify_options(sources.settings).channels)
    for line in (line for lines in problems.values() for line in lines):
        print(f"krond: {line}", file=sys.stderr)
    for note in loaded.notes:
        print(note)
    print(f"{counted(len(definitions), 'job')} in {counted(len(loaded.jobs), 'file')}")
    return BAD if problems else GOOD


def _install(arguments: Sequence[str]) -> int:
    """Write the systemd unit of the host or of this user, and say how to start it."""
    from kron.fronts.daemon.systemd import UNIT, unit_folder, unit_text, write_unit

    parser = argparse.ArgumentParser(prog="krond install", description="Write a systemd unit for krond.")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--system", action="store_true", help="for the host, as root: jobs of /etc/krond.d")
    kind.add_argument("--user", action="store_true", help="for this user: jobs of ~/.config/krond")
    parser.add_argument("--directory", metavar="DIR", help="where to write it, if not for systemd")
    options = parser.parse_args(arguments)
    folder = unit_folder(os.environ, system=options.system)
    try:
        words = [*PROGRAM, "--log-format", "journal"]
        place = write_unit(Path(options.directory or folder), unit_text(words, system=options.system))
        if options.directory is None:
            Path(default_config(os.environ)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The unit cannot be written: {error}") from error
    systemctl = "systemctl" if options.system else "systemctl --user"
    print(
        f"wrote {place}", f"start it: {systemctl} daemon-reload && {systemctl} enable --now {UNIT}", sep="\n"
    )
    if options.user:
        print("keep it running without a login: loginctl enable-linger")
    return GOOD


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="krond", description=USAGE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--config", action="append", metavar="PATH",
        help="a job file, or a folder of job files; may be repeated (/etc/krond.d, or ~/.config/krond)",
    )  # fmt: skip
    parser.add_argument(
        "--crontab", action="append", metavar="FILE",
        help="a crontab, run as cron runs it; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--state", metavar="DIR",
        help="the folder of the database, the outputs and the socket "
        "(KROND_STATE, /var/lib/krond, or ~/.local/state/krond)",
    )  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="only read the job files and show their problems"
    )
    parser.add_argument(
        "--settings", metavar="FILE",
        help="a TOML file with the channels of notifications, and their default",
    )  # fmt: skip
    parser.add_argument(
        "--metrics-file", metavar="FILE", help="write metrics for Prometheus to this file every 15 seconds"
    )
    parser.add_argument(
        "--listen", metavar="ADDRESS",
        help="serve the pages and the API there, for this host alone: 127.0.0.1:PORT",
    )  # fmt: skip
    # Of the processes that krond starts for itself.
    for option in ("--load", FIRST_LOAD):
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pages", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log-format", choices=("console", "json", "journal"), default="console")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser


if __name__ == "__main__":
    sys.exit(run())
