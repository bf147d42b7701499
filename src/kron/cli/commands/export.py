"""`kron export`: the schedules of a service as a job file."""

from typing import Annotated

import typer
import yaml

from kron.cli.main import GOOD, print_error
from kron.cli.support.client import Server, StoreUrl, Target, objects_in, request
from kron.cli.support.manifest import left_out_of, manifests_of
from kron.cli.support.option import AsJson
from kron.cli.support.terminal import say, show_json
from kron.core.job.job import Job
from kron.core.job.krontab import krontab_line
from kron.core.plan.query import JobFilter
from kron.fronts.service.client import PageRequest, ServiceClient
from kron.fronts.service.documents import Document
from kron.fronts.service.errors import UnknownScheduleError

Names = Annotated[
    list[str] | None, typer.Argument(metavar="[SCHEDULE]...", help="Schedules to export.  [default: all]")
]
Tag = Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Only schedules with this tag.")]
AsKrontab = Annotated[bool, typer.Option("--krontab", help="Write krontab lines instead of YAML.")]
AsKronJob = Annotated[
    bool, typer.Option("--kronjob", help="Write KronJobs, of schedules with the launcher kubernetes.")
]
SetName = Annotated[str | None, typer.Option("--set", metavar="NAME", help="Only schedules of this set.")]
# Left out of an exported job where they are a job's defaults; the policy always names its deadline.
_LEFT_OUT = ("dialect", "dst_gap", "dst_repeat", "window", "distribution", "seed", "constraints")


def export_command(
    schedules: Names = None,
    tag: Tag = None,
    set_name: SetName = None,
    server: Server = None,
    store: StoreUrl = None,
    as_krontab: AsKrontab = False,
    as_kronjob: AsKronJob = False,
    as_json: AsJson = False,
) -> int:
    """Write schedules as a job file, which `kron apply` finds unchanged.

    Secrets of launchers are hidden; applying the file keeps them. A pause is not part of a definition.

    \b
    Examples:
      kron export > jobs.yaml
      kron export --set billing --server http://127.0.0.1:8080
      kron export daily-report --json
      kron export --krontab > jobs.krontab
      kron export --kronjob > kronjobs.yaml
    """  # noqa: D301
    wanted = JobFilter(tag=tag, applied_set=set_name)
    jobs = request(Target(server, store), lambda client: _jobs(client, wanted, schedules or []))
    if as_kronjob:
        _show_manifests(jobs, as_json=as_json)
        return GOOD
    content: Document = {"jobs": [_compact(job) for job in jobs]}
    if as_json:
        show_json(content)
    elif as_krontab:
        say(*[krontab_line(Job.from_dict(_compact(job))) for job in jobs])
    else:
        say(*_yaml(content).splitlines())
    return GOOD


def _show_manifests(jobs: list[Document], *, as_json: bool) -> None:
    """Show schedules as KronJobs, and on standard error the fields that these do not have."""
    manifests = list(manifests_of(jobs))
    if as_json:
        show_json({"apiVersion": "v1", "kind": "List", "items": manifests})
    else:
        say(*_yaml(*manifests).splitlines())
    for job in jobs:
        if missing := left_out_of(job):
            print_error(f"{job['identity']}: a KronJob has no {', '.join(missing)}")


def _yaml(*content: Document) -> str:
    """Return a file of YAML; characters that a terminal could interpret are escaped."""
    text = yaml.safe_dump_all(content, sort_keys=False, allow_unicode=True, width=100)
    if all(line.isprintable() for line in text.splitlines()):
        return text
    return yaml.safe_dump_all(content, sort_keys=False, width=100)


async def _jobs(client: ServiceClient, wanted: JobFilter, names: list[str]) -> list[Document]:
    if not names:
        return await _pages(client, wanted)
    jobs = []
    for name in names:
        same = [job for job in await _pages(client, wanted._replace(search=name)) if job["identity"] == name]
        if not same:
            raise UnknownScheduleError(schedule_id=name)
        jobs += same
    return jobs


async def _pages(client: ServiceClient, wanted: JobFilter) -> list[Document]:
    """Return the definitions of every page."""
    jobs: list[Document] = []
    cursor: str | None = None
    while True:  # each page starts later, and the names are finite
        page = await client.definitions(wanted, PageRequest(None, cursor))
        for each in objects_in(page, "jobs"):
            definition = each["definition"]
            assert isinstance(definition, dict), "the service answers with definitions"
            jobs.append(definition)
        if page["next_cursor"] is None:
            return jobs
        cursor = str(page["next_cursor"])


def _compact(job: Document) -> Document:
    """Return a job without the fields that have their defaults."""
    defaults = Job.from_dict({"identity": "*", "schedule": "* * * * *"}).to_dict()
    short = {name: value for name, value in job.items() if name not in _LEFT_OUT or value != defaults[name]}
    launcher = short.get("launcher")
    if isinstance(launcher, dict):
        short["launcher"] = {name: value for name, value in launcher.items() if value not in (None, {})}
    return short
