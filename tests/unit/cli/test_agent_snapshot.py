"""Asking for a snapshot from the command line."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from uuid import UUID

import pytest

from penstock.capture.cassandra.snapshot.ring import FULL, cut
from penstock.capture.cassandra.snapshot.state import StateDirectory, TableState
from penstock.cli.agent_process import snapshot_asker
from penstock.cli.agent_snapshot import parse_table
from penstock.cli.main import main
from penstock.errors import InvalidInput
from penstock.log import snapshot_requests as requests
from penstock.model.schema import TableId
from penstock.settings import AgentSettings, CassandraSettings, Settings, Share, SnapshotSettings
from penstock.system.files import OsFiles

TABLE = TableId("shop", "orders")


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "agent.toml"
    file.write_text(f'[agent]\ndirectory = "{tmp_path / "logs"}"\n')
    return str(file)


def state_directory(config: str) -> str:
    return str(Path(config).parent / "logs" / ".agent" / "snapshot")


def test_a_request_is_written_for_the_agent(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "snapshot", config, "shop.orders"]) == 0
    assert "asked for a snapshot of shop.orders" in capsys.readouterr().out
    assert requests.waiting(OsFiles(), state_directory(config)) == [TABLE]


def test_readers_elsewhere_ask_the_agent_for_what_the_command_asks_for(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    copying = Settings(agent=AgentSettings(directory=directory), cassandra=CassandraSettings(contact_points=("n1",)))
    ask = snapshot_asker(copying)
    assert ask is not None
    ask(TABLE)
    # A pipeline on the same machine looks for the agent there without its settings.
    beside = requests.usual_directory(OsFiles(), str(directory))
    assert beside is not None
    assert requests.waiting(OsFiles(), beside) == [TABLE]
    assert requests.usual_directory(OsFiles(), str(tmp_path)) is None
    assert snapshot_asker(copying.model_copy(update={"snapshot": SnapshotSettings(share=Share.NONE)})) is None
    assert snapshot_asker(Settings(agent=AgentSettings(directory=directory))) is None


def test_a_request_tells_programs_in_json(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "snapshot", config, "shop.orders", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"table": "shop.orders", "requested": True}


def test_waiting_follows_the_run_to_its_end(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    def agent() -> None:
        """Takes the request up as the agent does: the run is on disk before the request goes."""
        directory = state_directory(config)
        while not requests.waiting(OsFiles(), directory):
            threading.Event().wait(0.01)
        states = StateDirectory(OsFiles(), directory)
        state = TableState(TABLE, UUID(int=1), run=2)
        state.begin(cut([FULL], 2), 1, requested=True)
        states.save(state)
        requests.done(OsFiles(), directory, TABLE)
        for split in list(state.pending):
            state.advance(split, split.end, 500)
            states.save(state)
        state.finished_us = 2
        states.save(state)

    thread = threading.Thread(target=agent)
    thread.start()
    assert main(["agent", "snapshot", config, "shop.orders", "--wait"]) == 0
    thread.join()
    assert capsys.readouterr().out == "shop.orders: 1,000 rows, run 3\n"


def test_waiting_for_a_table_that_is_not_captured_ends_with_an_error(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def agent() -> None:
        while not requests.waiting(OsFiles(), state_directory(config)):
            threading.Event().wait(0.01)
        requests.done(OsFiles(), state_directory(config), TABLE)

    thread = threading.Thread(target=agent)
    thread.start()
    assert main(["agent", "snapshot", config, "shop.orders", "--wait"]) == 1
    thread.join()
    assert "the agent does not capture this table" in capsys.readouterr().err


def test_an_agent_that_copies_nothing_refuses(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(config).open("a") as file:
        file.write('[snapshot]\nshare = "none"\n')
    assert main(["agent", "snapshot", config, "shop.orders"]) == 1
    assert "copies nothing" in capsys.readouterr().err


def test_an_agent_of_another_source_refuses(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Path(config).open("a") as file:
        file.write('[source]\nkind = "replay"\n')
    assert main(["agent", "snapshot", config, "shop.orders"]) == 1
    assert 'source.kind is "replay"' in capsys.readouterr().err


@pytest.mark.parametrize("text", ["orders", ".orders", "shop.", ""])
def test_a_table_needs_its_keyspace(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"keyspace\.table"):
        parse_table(text)


def test_a_dry_run_asks_for_nothing(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "snapshot", config, "shop.orders", "--dry-run"]) == 0
    assert "would ask for a snapshot of shop.orders" in capsys.readouterr().out
    assert requests.waiting(OsFiles(), state_directory(config)) == []
