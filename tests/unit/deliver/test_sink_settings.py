"""Settings of the search, files and console sinks: what contradicts itself is refused, in the user's own spelling."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.settings import RecordType
from penstock.settings.sinks import ConsoleSettings, FilesSettings, SearchSettings


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"urls": ["search1:9200"]}, "each looks like https://host:9200"),
        ({"urls": ["ftp://search1"]}, "each looks like https://host:9200"),
        ({"urls": []}, "at least one"),
        ({"urls": ["https://me:secret@search1:9200"]}, "not into a URL"),
        ({"index": "{database}"}, "only {keyspace} and {table}"),
        ({"index": "{table.__class__}"}, "only {keyspace} and {table}"),
        ({"index": "{table!r}"}, "only {keyspace} and {table}"),
        ({"index": "{table:>9}"}, "only {keyspace} and {table}"),
        ({"index": "{}"}, "only {keyspace} and {table}"),
        ({"index": ""}, "only {keyspace} and {table}"),
        ({"index": "{table"}, "without its partner"),
        ({"password": "secret", "password_file": "x"}, "password or password_file"),
        ({"api_key": "secret", "api_key_file": "x"}, "api_key or api_key_file"),
        ({"api_key": "secret", "username": "me"}, "a user or an API key"),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as refused:
        SearchSettings(**given)
    assert complaint in str(refused.value)
    assert "secret" not in str(refused.value)


def test_urls_can_come_from_a_variable() -> None:
    made = SearchSettings(urls="http://a:9200, https://b:9200")
    assert made.urls == ("http://a:9200", "https://b:9200")


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(SearchSettings(username="me", password="hidden"))


def test_records_are_whole_rows_unless_told_otherwise() -> None:
    assert FilesSettings().record is ConsoleSettings().record is RecordType.AFTER
