"""`kron operator`: runs KronJobs on Kubernetes, or shows what it would create."""

import asyncio
import os
from typing import Annotated

import typer

from kron.cli.main import GOOD
from kron.cli.support.option import AsJson, Count, From, one_of
from kron.cli.support.read import MAX_JOBS, read_text
from kron.cli.support.terminal import say, show_json
from kron.core.errors import InvalidOptionError
from kron.telemetry.log_format import LOG_FORMATS, LOG_LEVELS, start_logging

Kubeconfig = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="The kubeconfig.  [default: $KUBECONFIG, else the pod's service account, else ~/.kube/config]",
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context", metavar="NAME", help="Context of the kubeconfig.  [default: its current context]"
    ),
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAME", help="Run the KronJobs of this namespace only.")
]
LeaseNamespace = Annotated[
    str | None,
    typer.Option(
        "--lease-namespace",
        metavar="NAME",
        help="Namespace of the Lease.  [default: that of the pod or the context]",
    ),
]
LeaseName = Annotated[
    str | None,
    typer.Option(
        "--lease-name",
        metavar="NAME",
        help="Name of the Lease.  [default: kron-operator, with --namespace kron-operator-NAMESPACE]",
    ),
]
LeaseSeconds = Annotated[
    int, typer.Option("--lease-seconds", metavar="N", min=3, help="Duration of the Lease, in seconds.")
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address of probes and metrics.")]
Port = Annotated[
    int, typer.Option("--port", metavar="N", help="Port of probes and metrics; 0 takes a free one.")
]
History = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="URL",
        help="Store that gets a copy of every outcome, e.g. postgresql://kron@db.example/kron.",
    ),
]
LogFormat = Annotated[
    str,
    typer.Option(
        "--log-format",
        metavar="FORMAT",
        help="Log format: console, json or journal.",
        parser=one_of("format", LOG_FORMATS),
    ),
]
LogLevel = Annotated[
    str,
    typer.Option(
        "--log-level",
        metavar="LEVEL",
        help="Log level: debug, info, warning or error.",
        parser=one_of("level", LOG_LEVELS),
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show which Jobs the file's KronJobs create, and when.")
]
File = Annotated[
    str | None, typer.Option("-f", "--file", metavar="FILE", help="Manifests; - is standard input.")
]


def operator_command(
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    lease_namespace: LeaseNamespace = None,
    lease_name: LeaseName = None,
    lease_seconds: LeaseSeconds = 15,
    host: Host = "127.0.0.1",
    port: Port = 8081,
    history: History = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "console",
    dry_run: DryRun = False,
    file: File = None,
    start: From = None,
    count: Count = 5,
    as_json: AsJson = False,
) -> int:
    """Run the KronJobs of a Kubernetes cluster.

    It runs until SIGTERM or Ctrl-C. Of several operators with the same Lease, one is the leader and the
    others stand by. With --dry-run no cluster is used. With --history, outcomes are also copied to a store.

    \b
    Examples:
      kron operator
      kron operator --kubeconfig ~/.kube/config --namespace team-a
      kron operator --history postgresql://kron@db.example/kron
      kron operator --dry-run -f kronjobs.yaml
      kron operator --dry-run -f - --from 2026-06-01 -n 20 --json
    """  # noqa: D301
    _check_dry_run(file, dry_run=dry_run)
    if file is not None:
        _show_plan(file, start, count, as_json=as_json)
        return GOOD
    from kron.fronts.operator.serve import OperatorSettings, serve_operator
    from kron.launchers.kubernetes.access import find_access

    start_logging(level=log_level, log_format=log_format)
    settings = OperatorSettings(
        namespace=namespace,
        lease_namespace=lease_namespace,
        lease_name=lease_name,
        lease_seconds=lease_seconds,
        host=host,
        port=port,
        history_url=history or os.environ.get("KRON_HISTORY") or None,
    )
    asyncio.run(serve_operator(find_access(kubeconfig, context), settings))
    return GOOD


def _check_dry_run(file: str | None, *, dry_run: bool) -> None:
    if dry_run != (file is not None):
        option, reason = ("--file", "needs --dry-run") if file else ("--dry-run", "needs --file")
        raise InvalidOptionError(option=option, value=file or "", reason=reason)


def _show_plan(file: str, start: str | None, count: int, *, as_json: bool) -> None:
    from kron.cli.support.interval import since_of
    from kron.cli.support.manifest import manifests_in
    from kron.cli.support.source import Source
    from kron.core.time.instant import rfc3339
    from kron.fronts.operator.dry_run import planned_jobs

    manifests = manifests_in(Source(name=file, text=read_text(file, MAX_JOBS), has_jobs=True))
    planned = planned_jobs(manifests, since_of(start, "UTC"), count)
    if as_json:
        show_json({"jobs": [each.to_dict() for each in planned]})
        return
    for each in planned:
        times = f"{rfc3339(each.chosen_time)}  for {rfc3339(each.nominal_time)}"
        say(f"{times}  {each.namespace}/{each.kronjob}  job/{each.job}")
    if not planned:
        say("no Job: every KronJob is suspended, or has no further period")
