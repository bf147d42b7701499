"""`kron plan`: what a change of a job file does to the starts to come."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from kron.cli.main import GOOD, NO, one_line
from kron.cli.support.interval import Days, From, Interval, To, columns, counted, parse_interval
from kron.cli.support.job_file import load_jobs
from kron.cli.support.option import AsJson
from kron.cli.support.read import check_once
from kron.core.job.difference import (
    ChangeKind,
    Collision,
    Difference,
    JobChange,
    Shift,
    ShiftKind,
    difference_of,
)
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339

# How many starts, minutes and jobs are listed; the rest is counted.
MAX_SHOWN = 10
# The longest value that is shown whole.
MAX_VALUE = 40
SIGNS = {
    ChangeKind.ADDED: "+",
    ChangeKind.REMOVED: "-",
    ChangeKind.CHANGED: "~",
    ChangeKind.RENAMED: ">",
}
SHIFT_SIGNS = {ShiftKind.MOVES: "~", ShiftKind.APPEARS: "+", ShiftKind.VANISHES: "-"}
PLURAL = {ShiftKind.MOVES: "move", ShiftKind.APPEARS: "appear", ShiftKind.VANISHES: "vanish"}

Old = Annotated[str, typer.Argument(metavar="OLD", help="The file of jobs as it is; - is standard input.")]
New = Annotated[str, typer.Argument(metavar="NEW", help="The file of jobs as it is to be, or -.")]
All = Annotated[bool, typer.Option("--all", help=f"List everything, not only the first {MAX_SHOWN}.")]


def plan_command(
    old: Old,
    new: New,
    start: From = None,
    end: To = None,
    days: Days = None,
    everything: All = False,
    as_json: AsJson = False,
) -> int:
    """Show which coming starts move, appear, vanish or newly share a minute between two versions of a file.

    The exit code is 0 if the jobs are the same and 1 if any of them is not. All times are UTC.

    \b
    Examples:
      kron plan jobs.yaml jobs-new.yaml
      kron plan jobs.yaml jobs-new.yaml --from 2026-03-01 --days 31 --all
      git show HEAD:jobs.yaml | kron plan - jobs.yaml
    """  # noqa: D301
    interval = parse_interval(start, end, days)
    check_once([old, new])
    before, after = (load_jobs(file, may_be_empty=True) for file in (old, new))
    difference = difference_of(before, after, *interval)
    if as_json:
        print(json.dumps(_document(old, new, interval, difference), indent=2, ensure_ascii=False))
    else:
        print(f"{one_line(old)} -> {one_line(new)}\n{interval}, all times in UTC\n")
        _show(difference, most=None if everything else MAX_SHOWN)
    return NO if difference.changes else GOOD


def _show(difference: Difference, *, most: int | None) -> None:
    if not difference.changes:
        print(f"Nothing changes: {counted(difference.unchanged, 'job')}, all the same")
        return
    shifts = difference.shifts
    _show_totals(difference, shifts)
    lists = (
        (
            "Jobs",
            ["\n".join(_change_lines(change)) for change in difference.changes[:most]],
            difference.changes,
        ),
        ("Starts: ~ moves, + appears, - vanishes", list(map(_shift_line, shifts[:most])), shifts),
        (
            "Minutes with more starts than before, the fullest first; + is new there",
            [_collision_line(collision, whole=most is None) for collision in difference.collisions[:most]],
            difference.collisions,
        ),
    )
    for title, lines, found in lists:
        if lines:
            print("\n".join(["", title, *lines]))
        if len(found) > len(lines):
            print(f"  ... {len(found) - len(lines):,} more (--all lists them)")


def _show_totals(difference: Difference, shifts: Sequence[Shift]) -> None:
    kinds = Counter(change.kind for change in difference.changes)
    jobs = [f"{kinds[kind]:,} {kind}" for kind in ChangeKind if kinds[kind]]
    fates = Counter(shift.kind for shift in shifts)
    starts = [_doing(fates[kind], kind) for kind in ShiftKind if fates[kind]]
    print(f"Jobs:    {', '.join(jobs)}, {difference.unchanged:,} unchanged")
    print(f"Starts:  {', '.join(starts) or 'none changes'}")
    print(f"Minutes: {len(difference.collisions):,} with more starts than before, and more than one")


def _doing(count: int, kind: ShiftKind) -> str:
    return f"{count:,} {kind if count == 1 else PLURAL[kind]}"


# --- jobs ---


def _change_lines(change: JobChange) -> list[str]:
    """Say what becomes of a job: its name, the fields that differ, and a sentence on its starts."""
    name = change.identity
    fields = [f"{field.path}: {_value(field.old)} -> {_value(field.new)}" for field in change.fields]
    if change.kind is ChangeKind.RENAMED:
        assert change.old is not None
        name = f"{change.old.identity} is now {name}"
        seeded = "; it is part of the seed, so times are chosen anew" if change.shifts else ""
        fields = [f"only the identity differs{seeded}"]
    return [
        f"  {SIGNS[change.kind]} {one_line(name)}",
        *(f"      {line}" for line in (*fields, sentence_of(change))),
    ]


def sentence_of(change: JobChange) -> str:
    """Say what becomes of a job's starts."""
    fates = Counter(shift.kind for shift in change.shifts)
    before = change.stay + fates[ShiftKind.MOVES] + fates[ShiftKind.VANISHES]
    if not fates:
        return f"{counted(before, 'start')}: none changes" if before else "no start in this interval"
    if not before:
        starts = counted(fates[ShiftKind.APPEARS], "start")
        return f"{starts} {'appears' if starts == '1 start' else 'appear'}"
    parts = [_fate(kind, fates[kind], before) + _detail(change, kind) for kind in ShiftKind if fates[kind]]
    return f"{counted(before, 'start')}: {', '.join(parts)}"


def _fate(kind: ShiftKind, count: int, before: int) -> str:
    if count < before or kind is ShiftKind.APPEARS:
        return _doing(count, kind)
    return f"it {kind}" if count == 1 else f"all {PLURAL[kind]}"


def _detail(change: JobChange, kind: ShiftKind) -> str:
    """Say how far starts move, and how many vanish although their period is still there."""
    if kind is ShiftKind.MOVES:
        moves = [shift.seconds for shift in change.shifts if shift.seconds is not None]
        least, most = min(moves), max(moves)
        return f" by {signed(least)}" + (f" to {signed(most)}" if most > least else "")
    if kind is ShiftKind.VANISHES and change.unschedulable:
        return f" ({change.unschedulable:,} for want of an allowed time)"
    return ""


def _value(value: object) -> str:
    """Write a field's value on part of a line."""
    if value is None:
        return "none"
    text = one_line(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text or '""'
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def signed(seconds: int) -> str:
    """Write by how much a start moves, e.g. ``+1h30m``."""
    return f"{'-' if seconds < 0 else '+'}{format_duration(timedelta(seconds=abs(seconds)))}"


# --- starts and minutes ---


def _shift_line(shift: Shift) -> str:
    by = "" if shift.seconds is None else signed(shift.seconds)
    old, new = (_moment(at) for at in (shift.old_at, shift.new_at))
    arrow = "->" if by else "  "
    return f"  {SHIFT_SIGNS[shift.kind]} {old:19} {arrow} {new:19} {by:>9}  {one_line(shift.identity)}"


def _moment(at: EpochSeconds | None) -> str:
    return "" if at is None else rfc3339(at)[:19].replace("T", " ")


def _collision_line(collision: Collision, *, whole: bool) -> str:
    came = set(collision.newcomers)
    names = [f"+{one_line(name)}" for name in collision.identities if name in came]
    names += [one_line(name) for name in collision.identities if name not in came]
    head = f"  {_moment(collision.minute_at)[:16]}  {len(names):,} starts, {collision.before:,} before: "
    return head + (", ".join(names) if whole else _fitting(names, columns() - len(head)))


def _fitting(names: Sequence[str], room: int) -> str:
    """Write as many names as fit, at least one, and count the rest."""
    for shown in range(len(names), 1, -1):
        rest = f" and {len(names) - shown:,} more" if shown < len(names) else ""
        text = ", ".join(names[:shown]) + rest
        if len(text) <= room:
            return text
    return f"{names[0]} and {len(names) - 1:,} more"


# --- JSON ---


def _document(old: str, new: str, interval: Interval, difference: Difference) -> dict[str, object]:
    return {
        "old": old,
        "new": new,
        "from": rfc3339(interval.start),
        "to": rfc3339(interval.end),
        "same": not difference.changes,
        "unchanged": difference.unchanged,
        "jobs": [_change_entry(change) for change in difference.changes],
        "starts": [
            {
                "identity": shift.identity,
                "kind": shift.kind,
                "old": _instant(shift.old_at),
                "new": _instant(shift.new_at),
                "seconds": shift.seconds,
            }
            for shift in difference.shifts
        ],
        "collisions": [
            {
                "minute": rfc3339(collision.minute_at),
                "before": collision.before,
                "after": len(collision.identities),
                "identities": list(collision.identities),
                "newcomers": list(collision.newcomers),
            }
            for collision in difference.collisions
        ],
    }


def _change_entry(change: JobChange) -> dict[str, object]:
    fates = Counter(shift.kind for shift in change.shifts)
    return {
        "identity": change.identity,
        "kind": change.kind,
        "old_identity": change.old and change.old.identity,
        "fields": [field._asdict() for field in change.fields],
        "stay": change.stay,
        **{kind.value: fates[kind] for kind in ShiftKind},
        "newly_unschedulable": change.unschedulable,
        "sentence": sentence_of(change),
    }


def _instant(at: EpochSeconds | None) -> str | None:
    return None if at is None else rfc3339(at)
