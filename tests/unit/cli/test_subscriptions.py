"""`penstock subscriptions` and `penstock log retain`: looked at, tried, and done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.log.subscription import Subscription
from tests.numbered import fill, numbers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nodes with a log each, whose subscription has read four changes of twelve."""
    for node in ("n1", "n2"):
        directory = str(tmp_path / node / "shop.orders")
        positions = fill(directory, 12)
        with Subscription.open(directory, "billing") as one:
            one.commit(positions[3])
    return tmp_path


def records(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def unread(root: Path, node: str) -> list[int]:
    with Subscription.open(str(root / node / "shop.orders"), "billing") as one:
        return numbers(one.batches())


def test_ls_shows_how_far_each_is_behind(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscriptions", "ls", str(root), "--json"]) == 0
    first, second = records(capsys)
    assert (first["table"], first["name"], first["behind"], first["delivered"]) == ("shop.orders", "billing", 8, 4)
    assert second["directory"] == str(root / "n2" / "shop.orders")
    assert main(["subscriptions", "ls", str(root)]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["table", "log", "subscription", "position", "behind"]
    assert len(rows) == 2


def test_ls_names_a_checkpoint_that_cannot_be_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "n1" / "shop.orders" / "billing.checkpoint").write_text("")
    assert main(["subscriptions", "ls", str(root)]) == 0
    assert "billing: checkpoint not readable" in capsys.readouterr().err


def test_rewind_and_reset_move_it_in_every_log(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscriptions", "rewind", str(root), "billing", "--to", "begin", "--dry-run", "--json"]) == 0
    assert [record["again"] for record in records(capsys)] == [4, 4]
    assert len(unread(root, "n1")) == 8
    assert main(["subscriptions", "rewind", str(root), "billing", "--to", "begin"]) == 0
    assert "went to" in capsys.readouterr().out
    assert len(unread(root, "n1")) == len(unread(root, "n2")) == 12
    assert main(["subscriptions", "reset", str(root), "billing", "--to", "end", "--json"]) == 0
    assert [record["skipped"] for record in records(capsys)] == [12, 12]
    assert unread(root, "n2") == []


def test_a_reader_at_work_in_one_log_leaves_all_of_them_as_they_were(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Subscription.open(str(root / "n2" / "shop.orders"), "billing"):
        assert main(["subscriptions", "rewind", str(root), "billing", "--to", "begin"]) == 1
    assert "another process uses this subscription" in capsys.readouterr().err
    assert len(unread(root, "n1")) == 8


def test_drop_forgets_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscriptions", "drop", str(root / "n1"), "billing", "--dry-run"]) == 0
    assert "would be dropped" in capsys.readouterr().out
    assert main(["subscriptions", "drop", str(root / "n1"), "billing"]) == 0
    assert main(["subscriptions", "drop", str(root / "n1"), "billing"]) == 1
    assert "has a subscription 'billing'" in capsys.readouterr().err


def test_retain_deletes_what_the_settings_say(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = root / "settings.toml"
    config.write_text('[retention]\nbytes_max = "1KiB"\n')
    assert main(["log", "retain", str(root), "--json"]) == 0
    assert [record["removed"] for record in records(capsys)] == [[], []]
    arguments = ["log", "retain", str(root), "--config", str(config)]
    assert main([*arguments, "--dry-run"]) == 0
    assert capsys.readouterr().out.count("3 files would go") == 2
    assert main([*arguments, "--json"]) == 0
    first, _ = records(capsys)
    assert [one["reason"] for one in first["removed"]] == ["size"] * 3
    assert [(loss["subscription"], loss["changes"]) for loss in first["losses"]] == [("billing", 5)]
