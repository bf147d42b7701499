"""The settings reader, with a table of its own: sources, files, secrets and problems."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kron.app.redaction import SECRET, URL
from kron.app.settings import (
    InvalidSettingsError,
    SettingsReader,
    boolean,
    integer,
    json_value,
    setting,
    settings_table,
    words,
)
from kron.core.errors import InputError
from kron.core.fields import parse_text


def _labels(value: object) -> Mapping[str, str]:
    assert isinstance(value, Mapping)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Small:
    """A few settings of every form."""

    url: str = setting(parse_text, "A URL", default="memory://", sensitive=URL)
    url_file: str | None = setting(parse_text, "A file with the URL", default=None, file_of="url")
    key: str | None = setting(parse_text, "A key", default=None, sensitive=SECRET)
    key_file: str | None = setting(
        parse_text, "A file with the key", default=None, file_of="key", exclusive=True
    )
    days: int = setting(integer(0, 10, forever=0), "Days", default=3, bare=True)
    names: frozenset[str] = setting(words, "Names", default=frozenset())
    labels: Mapping[str, str] = setting(_labels, "Labels", default={}, show=len)


READER = SettingsReader(Small, commands=["token"])


def test_a_setting_is_one_field_with_its_default_and_help() -> None:
    assert Small() == READER.read({}, {}).settings
    assert [(name, entry.help_text) for name, entry in settings_table(Small).items()][:2] == [
        ("url", "A URL"),
        ("url_file", "A file with the URL"),
    ]
    assert Small().labels is not Small().labels


def test_the_source_of_each_value_is_known_and_secrets_are_redacted(tmp_path: Path) -> None:
    file = tmp_path / "kron.toml"
    file.write_text('days = 1\nnames = ["b", "a"]\nkey = "s3cret"\n')
    effective = READER.read({"DAYS": "2", "KRON_TOKEN": "t"}, {"url": "x://u:s3cret@h"}, file=str(file))
    rows = {row["name"]: row for row in effective.rows()}
    assert {name: (row["value"], row["source"], row["place"]) for name, row in rows.items()} == {
        "url": ("x://u:***@h", "option", "--url"),
        "url_file": (None, "default", None),
        "key": ("***", "file", f"{file}: key"),
        "key_file": (None, "default", None),
        "days": (2, "environment", "DAYS"),
        "names": (["a", "b"], "file", f"{file}: names"),
        "labels": (0, "default", None),
    }
    assert "s3cret" not in repr(effective.settings)


def test_a_file_yields_to_a_value_from_a_later_source_unless_both_are_forbidden() -> None:
    given = {"KRON_URL_FILE": "here"}
    assert READER.read(given, {"url": "x://h"}).settings.url_file is None
    assert READER.read({**given, "KRON_URL": "x://h"}, {}).settings.url_file == "here"
    with pytest.raises(InvalidSettingsError, match=r"KRON_KEY_FILE .*key is set too"):
        READER.read({"KRON_KEY": "k", "KRON_KEY_FILE": "f"}, {})


def test_every_problem_is_reported_at_once_by_its_name_at_the_source() -> None:
    with pytest.raises(InvalidSettingsError) as refused:
        READER.read({"KRON_DAYS": "11", "KRON_DAZE": "1"}, {"names": 7})
    assert sorted(problem.path for problem in refused.value.problems) == ["--names", "KRON_DAYS", "KRON_DAZE"]


@pytest.mark.parametrize(("text", "expected"), [("forever", 0), (" 7 ", 7), (7, 7)])
def test_a_whole_number_may_be_a_word(text: object, expected: int) -> None:
    assert integer(0, 10, forever=0)(text) == expected


@pytest.mark.parametrize("value", ["x", "9" * 40, True, None, "-1", 1.5])
def test_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InputError):
        integer(0, 10)(value)


def test_a_truth_value_and_json_are_read_from_text() -> None:
    assert [boolean(text) for text in ("TRUE", "1", "false", "0", True)] == [True, True, False, False, True]
    assert json_value('{"a": 1}') == json_value({"a": 1}) == {"a": 1}
    with pytest.raises(InputError) as refused:
        json_value("s3cret")
    assert "s3cret" not in str(refused.value)
