"""`kron apply` and `kron diff`: schedules of a service, compared with job files and made equal to them."""

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import typer

from kron.app.preview import effect_text
from kron.cli.main import GOOD, NO, print_error
from kron.cli.support.client import Server, StoreUrl, Target, objects_in, request
from kron.cli.support.difference import MAX_SHOWN, All, difference_document, show_difference
from kron.cli.support.interval import Days, Interval, parse_interval
from kron.cli.support.manifest import load_definitions
from kron.cli.support.option import AsJson
from kron.cli.support.read import check_once
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InputError, InvalidJobFileError
from kron.core.job.difference import Difference, difference_of
from kron.core.job.job import Job
from kron.fronts.service.client import ServiceClient
from kron.fronts.service.definitions import DEFAULT_SET, ApplyRequest
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import InvalidScheduleError
from kron.fronts.service.responses import View

Files = Annotated[
    list[str],
    typer.Argument(metavar="FILE...", help="Job files, or manifests of KronJobs; - is standard input."),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete schedules of the set that no file has any more.")
]
SetName = Annotated[
    str, typer.Option("--set", metavar="NAME", help="Name of the set of schedules that the files define.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Apply without confirmation.")]
# How the sets of krond start, which are the paths of its job files.
OF_A_FILE = "/"
_NUMBERED = re.compile(r"jobs\[(\d+)\]\.?")


class ApplyPlan(NamedTuple):
    """The changes that applying job files would make, and the starts that move by that."""

    jobs: list[Job]
    changes: list[Document]
    interval: Interval
    difference: Difference

    @property
    def differing(self) -> list[Document]:
        """Return the changes that have to be written."""
        return [change for change in self.changes if change["change"] != "unchanged"]

    def document(self) -> Document:
        """Return the plan as JSON."""
        counts = {kind: self.count(kind) for kind in ("created", "changed", "unchanged", "deleted")}
        return {**counts, **difference_document(self.interval, self.difference), "changes": self.changes}

    def count(self, kind: str) -> int:
        """Return the number of schedules with a kind of change."""
        return sum(change["change"] == kind for change in self.changes)


def apply_command(
    files: Files,
    prune: Prune = False,
    set_name: SetName = DEFAULT_SET,
    yes: Yes = False,
    days: Days = None,
    everything: All = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Make the schedules of a service equal job files: all of them in one transaction, or none.

    It shows which schedules are created, changed and deleted and which starts move, and asks before it
    writes. Without a terminal and without --yes nothing is written, and the exit code is 1. Applying the same
    files again changes nothing.

    \b
    Examples:
      kron apply jobs.yaml
      kron apply jobs/*.yaml --prune --yes --server http://127.0.0.1:8080
      kron apply billing.yaml --set billing --prune
      kron apply kronjobs.yaml
    """  # noqa: D301
    target = Target(server, store)
    wanted = _wanted(files, set_name, prune=prune)
    plan = _plan(target, wanted, parse_interval(None, None, days))
    if not as_json:
        _show(plan, everything=everything)
    if plan.differing and not (yes or _confirmed(plan)):
        if as_json:
            show_json({"applied": False, **plan.document()})
        print_error("nothing was written; use --yes to apply it")
        return NO
    if plan.differing:
        etags = {str(change["schedule_id"]): str(change["etag"]) for change in plan.differing}
        request(target, _sending(wanted._replace(if_match=etags)), creates_store=True)
    if as_json:
        show_json({"applied": True, **plan.document()})
    elif plan.differing:
        say(f"applied: {_totals(plan)}")
    return GOOD


def diff_command(
    files: Files,
    prune: Prune = False,
    set_name: SetName = DEFAULT_SET,
    days: Days = None,
    everything: All = False,
    server: Server = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> int:
    """Show what `kron apply` would change, and write nothing.

    The exit code is 0 if the schedules equal the files, and 1 if not.

    \b
    Examples:
      kron diff jobs.yaml
      kron diff jobs/*.yaml --prune --server http://127.0.0.1:8080
    """  # noqa: D301
    wanted = _wanted(files, set_name, prune=prune)
    plan = _plan(Target(server, store), wanted, parse_interval(None, None, days))
    if as_json:
        show_json(plan.document())
    else:
        _show(plan, everything=everything)
    return NO if plan.differing else GOOD


def _wanted(files: Sequence[str], set_name: str, *, prune: bool) -> ApplyRequest:
    """Return the request that applies the jobs of all files; a name in two files is an error."""
    check_once(files)
    places: dict[str, str] = {}
    documents: list[Document] = []
    for file in files:
        for job in load_definitions(file, may_be_empty=prune):
            if other := places.get(job.identity):
                raise InputError(f'{file}: job "{job.identity}" is already defined in {other}')
            places[job.identity] = file
            documents.append(job.to_dict())
    return ApplyRequest(documents, set_name, prune)


def _plan(target: Target, wanted: ApplyRequest, interval: Interval) -> ApplyPlan:
    """Return the plan of the service, which also checks that it would accept the jobs."""
    answer = request(target, _sending(wanted._replace(dry_run=True)), creates_store=True, dry_run=True)
    changes = objects_in(answer, "changes")
    jobs = [Job.from_dict(document) for document in wanted.jobs]
    unchanged = {change["schedule_id"] for change in changes if change["change"] == "unchanged"}
    same = [job for job in jobs if job.identity in unchanged]
    before, after = (
        [*(Job.from_dict(change[side]) for change in changes if change[side] is not None), *same]
        for side in ("before", "after")
    )
    # What is applied now is in force at the first minute of the interval.
    difference = difference_of(before, after, *interval, edited_at=interval.start - 1)
    return ApplyPlan(jobs, changes, interval, difference)


def _sending(wanted: ApplyRequest) -> Callable[[ServiceClient], Awaitable[View]]:
    """Return a function that sends a request; problems name the jobs, not their numbers."""

    async def send(client: ServiceClient) -> View:
        try:
            return await client.apply(wanted)
        except InvalidScheduleError as error:
            raise InvalidJobFileError(
                problems=[_named(wanted, str(each)) for each in error.problems]
            ) from error

    return send


def _named(wanted: ApplyRequest, problem: str) -> str:
    match = _NUMBERED.match(problem)
    if match is None:
        return problem
    document = wanted.jobs[int(match[1])]
    assert isinstance(document, dict)
    return f'job "{document["identity"]}": {problem[match.end() :]}'


def _totals(plan: ApplyPlan) -> str:
    kinds = ("created", "changed", "deleted", "unchanged")
    return ", ".join(f"{plan.count(kind):,} {kind}" for kind in kinds if plan.count(kind))


def _show(plan: ApplyPlan, *, everything: bool) -> None:
    if not plan.differing:
        say(f"No changes: {_totals(plan) or 'no schedules'}")
        return
    say(f"Schedules: {_totals(plan)}", f"{plan.interval}, all times in UTC", "")
    if plan.difference.changes:
        show_difference(plan.difference, most=None if everything else MAX_SHOWN)
    shown = {change.identity for change in plan.difference.changes}
    for change in plan.differing:
        if change["schedule_id"] not in shown:
            say(f"  ~ {change['schedule_id']}: {_silent(change)}")
        effect = change.get("effect")
        if isinstance(effect, Mapping):
            say(f"  ! {change['schedule_id']} runs again: {effect_text(effect)}")


def _silent(change: Document) -> str:
    """Describe a change of a schedule whose visible definition stays the same."""
    if change["change"] != "changed":
        return str(change["change"])
    before = change["applied_set"]
    if before is not None and str(before).startswith(OF_A_FILE):
        return f"is a job of {before}, which krond loads again: edit that file instead"
    return "joins the set" if before is None else "a hidden value of its launcher, or its set"


def _confirmed(plan: ApplyPlan) -> bool:
    return sys.stdin.isatty() and typer.confirm(f"Apply ({_totals(plan)})?", err=True)
