"""The tables of fields in the documentation, written from the field tables of the code.

A page marks where one stands with `<!-- fields: NAME -->` and `<!-- end -->`; `python -m tests.docs.refresh`
writes it anew.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kron.core.fields import NO_DEFAULT, FieldSpec, FieldTable
from kron.core.job.constraint import RULE
from kron.core.job.host import HOST
from kron.core.job.job import JOB
from kron.core.job.notify import NOTIFY
from kron.core.job.policy import POLICY
from kron.core.job.profile import RETENTION
from kron.core.job.seed import SEED
from kron.core.job.window import WINDOW
from kron.fronts.service.schedule_spec import SCHEDULE
from kron.fronts.service.settings import SETTINGS
from kron.launchers.celery.spec import CelerySettings
from kron.launchers.http.spec import HttpSettings
from kron.launchers.kubernetes.spec import KubernetesSettings
from kron.launchers.log import LogSettings
from kron.launchers.process.spec import ProcessSettings
from kron.launchers.spec import WORKFLOW_FIELDS, TableSettings

MARKED = re.compile(r"(<!-- fields: (?P<name>\w+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)
# The sections of jobs.md that explain a field.
SECTIONS = {
    "window": "window",
    "distribution": "distribution",
    "seed": "seed",
    "constraints": "constraints",
    "calendars": "calendars",
    "policy": "policy-and-verdicts",
    "launcher": "launcher",
    "retention": "retention",
    "notify": "notify",
}
# The settings that have a default where a schedule names no value.
BY_SETTING = {
    "overlap_policy": "default_overlap_policy",
    "catchup_policy": "default_catchup_policy",
    "jitter_ms": "default_jitter_ms",
    "launcher": "default_launcher",
    "notify": "notify",
}
assert set(BY_SETTING.values()) <= set(SETTINGS)


class Page(NamedTuple):
    """A table of a page: whether it has a column of defaults, and where its fields are explained."""

    table: FieldTable
    page: str | None = None
    defaults: bool = True
    by_setting: Mapping[str, str] = {}


def of_launcher(settings: type[TableSettings]) -> Page:
    """Return the table of a kind of launcher, without the fields that all kinds have."""
    table = settings.table
    return Page(
        FieldTable(tuple(row for row in table.rows if row.name not in WORKFLOW_FIELDS), table.required)
    )


TABLES = {
    "job": Page(JOB, ""),
    "policy": Page(POLICY),
    "notify": Page(NOTIFY),
    "window": Page(WINDOW),
    "seed": Page(SEED),
    "constraints": Page(RULE, defaults=False),
    "retention": Page(RETENTION),
    "http": of_launcher(HttpSettings),
    "process": of_launcher(ProcessSettings),
    "host": Page(HOST),
    "celery": of_launcher(CelerySettings),
    "kubernetes": of_launcher(KubernetesSettings),
    "log": of_launcher(LogSettings),
    "schedule": Page(SCHEDULE, "jobs.md", by_setting=BY_SETTING),
}


def with_tables(text: str) -> str:
    """Return a page with its tables of fields as the code has them."""
    return MARKED.sub(lambda found: found[1] + "\n".join(lines_of(TABLES[found["name"]])) + found[3], text)


def lines_of(page: Page) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| field | default | meaning |" if page.defaults else "| kind | meaning |"
    yield "|---|---|---|" if page.defaults else "|---|---|"
    for spec in page.table.rows:
        columns = [_name(spec, page), *([_default(spec, page)] if page.defaults else []), _meaning(spec)]
        yield f"| {' | '.join(columns)} |"


def _name(spec: FieldSpec, page: Page) -> str:
    words = ", or ".join(f"`{word}`" for word in spec.words)
    section = None if page.page is None else SECTIONS.get(spec.name)
    return words if section is None else f"[{words}]({page.page}#{section})"


def _default(spec: FieldSpec, page: Page) -> str:
    if spec.word in page.table.required:
        return "required"
    if spec.word in page.by_setting:
        return f"setting `{page.by_setting[spec.word]}`"
    written = None if spec.default in (NO_DEFAULT, None) else spec.type.write(spec.default)
    if written in (None, [], {}):
        return "none"
    return f"`{written}`" if isinstance(written, str) and written else f"`{json.dumps(written)}`"


def _meaning(spec: FieldSpec) -> str:
    match spec.type.schema:
        case {"minimum": int(low), "maximum": int(high)}:
            return f"{spec.doc}; from {low:,} to {high:,}"
        case _:
            return spec.doc
