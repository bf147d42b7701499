"""The difference of two sets of jobs, as `kron plan`, `kron diff` and `kron apply` show it."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer

from kron.cli.support.interval import Interval, columns
from kron.cli.support.terminal import say
from kron.core.errors import one_line
from kron.core.job.difference import ChangeKind, Collision, Difference, JobChange, Shift, ShiftKind
from kron.core.time.duration import format_duration
from kron.core.time.instant import EpochSeconds, rfc3339
from kron.core.wording import counted

# How many starts, minutes and jobs are listed; the others are counted.
MAX_SHOWN = 10
# Longer values are cut.
MAX_VALUE = 40
SYMBOLS = {
    ChangeKind.ADDED: "+",
    ChangeKind.REMOVED: "-",
    ChangeKind.CHANGED: "~",
    ChangeKind.RENAMED: ">",
}
SHIFT_SYMBOLS = {ShiftKind.MOVES: "~", ShiftKind.APPEARS: "+", ShiftKind.VANISHES: "-"}
PLURAL = {ShiftKind.MOVES: "move", ShiftKind.APPEARS: "appear", ShiftKind.VANISHES: "vanish"}
All = Annotated[bool, typer.Option("--all", help=f"List all entries, not only the first {MAX_SHOWN}.")]


def show_difference(difference: Difference, *, most: int | None) -> None:
    """Print the jobs that differ, and the starts that move, appear, vanish or collide."""
    if not difference.changes:
        say(f"No changes: {counted(difference.unchanged, 'job')}")
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
    for title, lines, entries in lists:
        if lines:
            say("", title, *(line for entry in lines for line in entry.split("\n")))
        if len(entries) > len(lines):
            say(f"  ... {len(entries) - len(lines):,} more (--all lists them)")


def _show_totals(difference: Difference, shifts: Sequence[Shift]) -> None:
    kinds = Counter(change.kind for change in difference.changes)
    jobs = [f"{kinds[kind]:,} {kind}" for kind in ChangeKind if kinds[kind]]
    shifts_by_kind = Counter(shift.kind for shift in shifts)
    starts = [_doing(shifts_by_kind[kind], kind) for kind in ShiftKind if shifts_by_kind[kind]]
    say(f"Jobs:    {', '.join(jobs)}, {difference.unchanged:,} unchanged")
    say(f"Starts:  {', '.join(starts) or 'none changes'}")
    say(f"Minutes: {len(difference.collisions):,} with more starts than before, and more than one")


def _doing(count: int, kind: ShiftKind) -> str:
    return f"{count:,} {kind if count == 1 else PLURAL[kind]}"


# --- jobs ---


def _change_lines(change: JobChange) -> list[str]:
    """Return the lines of a changed job: its name, the fields that differ, and its starts."""
    name = change.identity
    fields = [f"{field.path}: {_value(field.old)} -> {_value(field.new)}" for field in change.fields]
    if change.kind is ChangeKind.RENAMED:
        assert change.old is not None
        name = f"{change.old.identity} is now {name}"
        seeded = "; it is part of the seed, so new times are chosen" if change.shifts else ""
        fields = [f"only the identity differs{seeded}"]
    return [
        f"  {SYMBOLS[change.kind]} {one_line(name)}",
        *(f"      {line}" for line in (*fields, _sentence_of(change))),
    ]


def _sentence_of(change: JobChange) -> str:
    """Describe the changed starts of a job."""
    shifts_by_kind = Counter(shift.kind for shift in change.shifts)
    before = change.stay + shifts_by_kind[ShiftKind.MOVES] + shifts_by_kind[ShiftKind.VANISHES]
    if not shifts_by_kind:
        return f"{counted(before, 'start')}: none changes" if before else "no start in this interval"
    if not before:
        starts = counted(shifts_by_kind[ShiftKind.APPEARS], "start")
        return f"{starts} {'appears' if starts == '1 start' else 'appear'}"
    parts = [
        _shift_text(kind, shifts_by_kind[kind], before) + _detail(change, kind)
        for kind in ShiftKind
        if shifts_by_kind[kind]
    ]
    return f"{counted(before, 'start')}: {', '.join(parts)}"


def _shift_text(kind: ShiftKind, count: int, before: int) -> str:
    if count < before or kind is ShiftKind.APPEARS:
        return _doing(count, kind)
    return f"it {kind}" if count == 1 else f"all {PLURAL[kind]}"


def _detail(change: JobChange, kind: ShiftKind) -> str:
    """Describe how far starts move, and how many vanish because their period is unschedulable."""
    if kind is ShiftKind.MOVES:
        moves = [shift.seconds for shift in change.shifts if shift.seconds is not None]
        least, most = min(moves), max(moves)
        return f" by {_signed(least)}" + (f" to {_signed(most)}" if most > least else "")
    if kind is ShiftKind.VANISHES and change.unschedulable:
        return f" ({change.unschedulable:,} unschedulable)"
    return ""


def _value(value: object) -> str:
    """Format a field's value on part of a line."""
    if value is None:
        return "none"
    text = one_line(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text or '""'
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 3]}..."


def _signed(seconds: int) -> str:
    """Format the shift of a start, e.g. ``+1h30m``."""
    return f"{'-' if seconds < 0 else '+'}{format_duration(timedelta(seconds=abs(seconds)))}"


# --- starts and minutes ---


def _shift_line(shift: Shift) -> str:
    by = "" if shift.seconds is None else _signed(shift.seconds)
    old, new = (_moment(at) for at in (shift.old_at, shift.new_at))
    arrow = "->" if by else "  "
    return f"  {SHIFT_SYMBOLS[shift.kind]} {old:19} {arrow} {new:19} {by:>9}  {one_line(shift.identity)}"


def _moment(at: EpochSeconds | None) -> str:
    return "" if at is None else rfc3339(at)[:19].replace("T", " ")


def _collision_line(collision: Collision, *, whole: bool) -> str:
    newcomers = set(collision.newcomers)
    names = [f"+{one_line(name)}" for name in collision.identities if name in newcomers]
    names += [one_line(name) for name in collision.identities if name not in newcomers]
    head = f"  {_moment(collision.minute_at)[:16]}  {len(names):,} starts, {collision.before:,} before: "
    return head + (", ".join(names) if whole else _fitting(names, columns() - len(head)))


def _fitting(names: Sequence[str], room: int) -> str:
    """Format as many names as fit, at least one, and count the others."""
    for shown in range(len(names), 1, -1):
        rest = f" and {len(names) - shown:,} more" if shown < len(names) else ""
        text = ", ".join(names[:shown]) + rest
        if len(text) <= room:
            return text
    return f"{names[0]} and {len(names) - 1:,} more"


# --- JSON ---


def difference_document(interval: Interval, difference: Difference) -> dict[str, object]:
    """Return a difference as JSON."""
    return {
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
    shifts_by_kind = Counter(shift.kind for shift in change.shifts)
    return {
        "identity": change.identity,
        "kind": change.kind,
        "old_identity": change.old and change.old.identity,
        "fields": [field._asdict() for field in change.fields],
        "stay": change.stay,
        **{kind.value: shifts_by_kind[kind] for kind in ShiftKind},
        "newly_unschedulable": change.unschedulable,
        "sentence": _sentence_of(change),
    }


def _instant(at: EpochSeconds | None) -> str | None:
    return None if at is None else rfc3339(at)
