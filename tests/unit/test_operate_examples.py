"""The files in examples/operate fit together, and start what they name as far as this machine can tell."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path

import pytest

from penstock.cli.main import main
from penstock.settings import Settings
from penstock.settings.loading import load
from tests.certificates import make_certificate

ROOT = Path(__file__).parent.parent.parent
OPERATE = ROOT / "examples" / "operate"
PARTS = ("agent", "pipeline")
NODE = """\
cluster_name: Test Cluster
cdc_enabled: true
cdc_raw_directory: {home}/var/lib/cassandra/cdc_raw
commitlog_directory: {home}/var/lib/cassandra/commitlog
listen_address: 127.0.0.1
"""


def unit(part: str) -> dict[str, str]:
    """The section Service of a unit; comments and the order of its lines do not count."""
    parser = configparser.RawConfigParser(strict=True)
    # systemd's names are told apart by case.
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(OPERATE / f"penstock-{part}.service")
    return dict(parser["Service"])


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A machine with all that the settings name, below another root."""
    for name in ("etc/penstock", "etc/cassandra", "var/lib/cassandra/cdc_raw", "var/lib/cassandra/commitlog", "lake"):
        (tmp_path / name).mkdir(parents=True)
    etc = tmp_path / "etc" / "penstock"
    made = make_certificate(tmp_path)
    for name, file in (("http.crt", made.file), ("http.key", made.key_file), ("ca.pem", made.file)):
        (etc / name).write_bytes(file.read_bytes())
    for name in ("http-token", "kafka-password", "cassandra-password"):
        (etc / name).write_text("a token of more than sixteen bytes")
        (etc / name).chmod(0o600)
    (tmp_path / "etc" / "cassandra" / "cassandra.yaml").write_text(NODE.format(home=tmp_path))
    return tmp_path


def moved(part: str, home: Path) -> Path:
    """A settings file for that machine."""
    text = re.sub(r'(["{:])(/(?:etc|var|lake))', rf"\1{home}\2", (OPERATE / f"{part}.toml").read_text(encoding="utf-8"))
    file = home / "etc" / "penstock" / f"{part}.toml"
    file.write_text(text, encoding="utf-8")
    return file


def settings(part: str, home: Path) -> Settings:
    return load(str(moved(part, home)), {})


@pytest.mark.parametrize("part", PARTS)
def test_what_the_settings_name_can_start(part: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(moved(part, home))]) == 0
    assert capsys.readouterr().out.startswith(f"{part}: ")


@pytest.mark.parametrize("part", PARTS)
def test_a_unit_starts_the_command_with_the_settings_beside_it(part: str) -> None:
    service = unit(part)
    program, command, file, *_ = shlex.split(service["ExecStart"])
    assert (program, command, file) == ("/opt/penstock/bin/penstock", part, f"/etc/penstock/{part}.toml")
    assert shlex.split(service["ExecStartPre"]) == [program, "config", "check", file]
    assert (OPERATE / f"{part}.toml").is_file()


def test_units_let_their_processes_write_where_the_settings_say(home: Path) -> None:
    agent, pipeline = settings("agent", home), settings("pipeline", home)
    assert agent.agent.directory == home / "var/lib" / unit("agent")["StateDirectory"]
    assert agent.agent.error_directory is not None
    assert agent.agent.error_directory.is_relative_to(agent.agent.directory)
    assert pipeline.pipeline.checkpoint_directory == home / "var/lib" / unit("pipeline")["StateDirectory"]
    assert pipeline.delta.directory == home / unit("pipeline")["ReadWritePaths"].lstrip("/")
    node = NODE.format(home="")
    assert f"cdc_raw_directory: {unit('agent')['ReadWritePaths']}\n" in node


def test_a_pipeline_is_given_more_time_to_end_than_it_takes_itself(home: Path) -> None:
    assert int(unit("pipeline")["TimeoutStopSec"]) > 2 * settings("pipeline", home).pipeline.stop_s


def test_java_may_compile_and_the_agent_may_not() -> None:
    assert unit("agent")["MemoryDenyWriteExecute"] == "yes"
    assert "MemoryDenyWriteExecute" not in unit("pipeline")


def test_agents_listen_where_the_pipeline_reads(home: Path) -> None:
    agent, pipeline = settings("agent", home), settings("pipeline", home)
    assert {address.rpartition(":")[2] for address in pipeline.pipeline.agents} == {str(agent.http.port)}
    assert agent.http.tls_certificate_file is not None
    assert agent.http.token_file == pipeline.pipeline.agents_token_file


def test_the_image_installs_extras_that_there_are() -> None:
    from penstock.system.extras import PACKAGES

    text = (OPERATE / "Containerfile").read_text(encoding="utf-8")
    named = re.findall(r'"/source\[([\w,]+)\]"', text)
    assert len(named) == 1
    assert set(named[0].split(",")) <= set(PACKAGES)
    # What is started is what was installed.
    assert 'ENTRYPOINT ["/opt/penstock/bin/penstock"]' in text
    assert "COPY --from=build /opt/penstock /opt/penstock" in text


def samples() -> list[tuple[str, str]]:
    pages = sorted((ROOT / "docs" / "operate").glob("*.md"))
    return [
        (page.stem, text)
        for page in pages
        for text in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]


@pytest.mark.parametrize(("page", "text"), samples())
def test_the_settings_that_a_page_shows_are_taken(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"{page}.toml"
    file.write_text(re.sub(r"\$\{file:[^}]*\}", "what stands in a file", text))
    load(str(file), {})


def test_pages_show_settings() -> None:
    assert {"backup", "deploy", "spark-security"} <= {page for page, _ in samples()}


def test_every_file_is_spoken_of_on_a_page() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "operate").glob("*.md"))
    missing = [file.name for file in OPERATE.iterdir() if file.name not in pages]
    assert not missing
