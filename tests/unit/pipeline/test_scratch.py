"""The directory of what Spark leaves behind: nobody else may enter it, and each start empties it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.pipeline.checkpoint import Checkpoint
from penstock.pipeline.scratch import prepare
from penstock.pipeline.session import _settings, properties_text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_killed_driver_left_is_gone_and_nobody_else_may_enter(tmp_path: Path) -> None:
    place = tmp_path / "checkpoint" / "scratch"
    place.mkdir(parents=True, mode=0o755)
    place.chmod(0o755)
    (place / "blockmgr-1" / "0c").mkdir(parents=True)
    (place / "blockmgr-1" / "0c" / "shuffle_0_0_0.data").write_text("a row")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (place / "link").symlink_to(tmp_path / "precious")
    assert prepare(place) == place
    assert list(place.iterdir()) == []
    assert mode(place) == 0o700
    assert (tmp_path / "precious" / "file").exists()


def test_a_new_one_is_closed_from_the_start(tmp_path: Path) -> None:
    assert mode(prepare(tmp_path / "new" / "scratch")) == 0o700
    assert mode(tmp_path / "new") == 0o700


def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    """Whoever makes the directory first could otherwise read all that comes into it."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(StorageError, match="no directory of this user"):
            prepare(tmp_path / name)


def test_parts_of_a_checkpoint_are_closed_to_others(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    Checkpoint.open(tmp_path, "p", None, 2)
    assert {mode(part) & 0o007 for part in tmp_path.iterdir() if part.is_dir()} == {0}
    (tmp_path / "plans").chmod(0o755)
    Checkpoint.open(tmp_path, "p", None, 2)
    assert mode(tmp_path / "plans") & 0o007 == 0


def test_spark_asks_who_connects_and_keeps_its_files_in_the_scratch(tmp_path: Path) -> None:
    settings = _settings("local[2]", {"spark.mine": "x"}, tmp_path, submitted=False)
    assert settings["spark.authenticate"] == "true"
    assert settings["spark.local.dir"] == str(tmp_path)
    assert f"-Djava.io.tmpdir={tmp_path}" in settings["spark.driver.extraJavaOptions"]
    assert settings["spark.mine"] == "x"


@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster:6443"])
def test_clusters_with_secrets_of_their_own_encrypt_too(master: str) -> None:
    settings = _settings(master, {}, None, submitted=False)
    for name in ("spark.authenticate", "spark.network.crypto.enabled", "spark.io.encryption.enabled"):
        assert settings[name] == "true"
    assert _settings(master, {"spark.authenticate": "false"}, None, submitted=False)["spark.authenticate"] == "false"


def test_a_cluster_without_authentication_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    _settings("spark://master:7077", {}, None, submitted=False)
    assert "can run code in it" in capsys.readouterr().out
    _settings("spark://master:7077", {"spark.authenticate": "true"}, None, submitted=False)
    assert capsys.readouterr().out == ""


def test_settings_stand_one_to_a_line_whatever_is_in_them() -> None:
    text = properties_text({"spark.a": "plain = x", "spark.b c": " led\nby \\ a space"})
    assert text == "spark.a=plain = x\nspark.b\\ c=\\ led\\nby \\\\ a space\n"
