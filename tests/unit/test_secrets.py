"""Secrets: by reference, over TLS only, and not in files that everybody can read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from penstock.errors import InvalidSetting
from penstock.pipeline.source.options import parse
from penstock.serve.access import read_token
from penstock.settings import Settings, build

SECRET = "s3cret-of-the-broker"


def password(given: str, environ: dict[str, str] | None = None) -> str:
    settings: Settings = build({"kafka": {"producer": {"sasl.password": given}}}, environ or {})
    return settings.kafka.producer["sasl.password"].get_secret_value()


def test_every_value_may_be_in_a_file_a_variable_or_come_of_a_command(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    assert password(f"${{file:{file}}}") == SECRET
    assert password("${env:BROKER}", {"BROKER": SECRET}) == SECRET
    assert password(f"${{command:{sys.executable} -c 'print(\"{SECRET}\")'}}") == SECRET
    settings = build({"pipeline": {"spark": {"spark.ssl.keyPassword": f"${{file:{file}}}"}}}, {})
    assert settings.pipeline.spark["spark.ssl.keyPassword"] == SECRET
    assert password("a ${env:BROKER}") == "a ${env:BROKER}"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:MISSING}", "MISSING"),
        ("${file:/nonexistent/file}", "nonexistent"),
        ("${command:/nonexistent/program x}", "nonexistent/program"),
        (f"${{command:{sys.executable} -c 'raise SystemExit(\"{SECRET}\")'}}", "ended with 1"),
    ],
)
def test_a_reference_to_nothing_is_an_error_that_shows_no_secret(reference: str, said: str) -> None:
    with pytest.raises(InvalidSetting, match=said) as refusal:
        password(reference)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize(
    "tree",
    [
        {"pipeline": {"agents": ["http://node1:8000"], "agents_token_file": "token"}},
        {"search": {"urls": ["http://search1:9200"], "username": "u", "password": SECRET}},
        {"search": {"urls": ["https://a:9200", "http://search1:9200"], "api_key": SECRET}},
        {"kafka": {"registry_url": "http://registry:8081", "registry_username": "u", "registry_password": SECRET}},
    ],
)
def test_no_secret_goes_over_plain_http_beyond_this_machine(tree: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="in the clear") as refusal:
        build(tree, {})
    assert SECRET not in str(refusal.value)
    here = json.dumps(tree)
    for host in ("node1", "search1", "registry"):
        here = here.replace(f"http://{host}", "http://127.0.0.1")
    build(json.loads(here), {})


def test_an_operator_may_say_that_the_network_is_encrypted() -> None:
    build({"search": {"urls": ["http://s:9200"], "api_key": SECRET, "plain_http": True}}, {})
    registry = {"registry_url": "http://r:8081", "registry_password": SECRET, "registry_plain_http": True}
    build({"kafka": registry}, {})


def test_a_login_in_an_address_is_refused_and_not_shown() -> None:
    address = f"https://user:{SECRET}@node1:8000"
    with pytest.raises(InvalidSetting, match="login") as refusal:
        build({"pipeline": {"agents": [address]}}, {})
    assert SECRET not in str(refusal.value)
    with pytest.raises(InvalidSetting, match="login") as refusal:
        parse({"agents": address, "table": "ks.t"})
    assert SECRET not in str(refusal.value)
    with pytest.raises(InvalidSetting, match="begins with") as refusal:
        parse({"agents": f"ftp://user:{SECRET}@node1", "table": "ks.t"})
    assert SECRET not in str(refusal.value)


def test_a_secret_that_everybody_can_read_is_told_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a token of some length")
    file.chmod(0o644)
    with structlog.testing.capture_logs() as lines:
        read_token(file)
        read_token(file)
    assert [line["file"] for line in lines] == [str(file)]
    file = tmp_path / "closed"
    file.write_text("a token of some length")
    file.chmod(0o640)
    with structlog.testing.capture_logs() as lines:
        read_token(file)
    assert lines == []
