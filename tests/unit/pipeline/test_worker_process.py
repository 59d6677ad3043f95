"""What keeps Spark's Python processes quick."""

from __future__ import annotations

import gc

import pytest

from penstock.pipeline import worker_process


def test_what_is_there_is_set_apart_at_the_second_task_and_then_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(worker_process, "_begun", 0)
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(worker_process._begun))
    for _ in range(40):
        worker_process.task_begins()
    assert frozen == [2, 4, 8, 16, 32]
