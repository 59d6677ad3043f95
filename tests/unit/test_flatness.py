"""The judge of a soak has teeth: what grows is found, what stays level is not."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.soak.agents import private_kib
from tests.soak.flatness import Sample, judge

MIB = 1024.0
_MEMORY_KIB = 32 << 10


def series(value: Callable[[float], float], count: int = 900) -> list[Sample]:
    """Samples of half an hour."""
    return [Sample(2.0 * number, value(2.0 * number)) for number in range(count)]


def noise(seed: int) -> Callable[[], float]:
    random = Random(seed)
    return lambda: random.gauss(0, 256)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a leak of 4 KiB a second", lambda t: 60 * MIB + 4 * t),
        ("a step in the middle that stays", lambda t: 60 * MIB + (6 * MIB if t > 900 else 0)),
        ("a leak that begins late", lambda t: 60 * MIB + max(0.0, t - 1000) * 12),
        ("a saw whose teeth rise", lambda t: 60 * MIB + (t % 60) * 20 + 5 * t),
    ],
)
def test_what_grows_is_not_flat(name: str, value: Callable[[float], float]) -> None:
    jitter = noise(1)
    assert not judge(series(lambda t: value(t) + jitter()), 4 * MIB).flat, name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("level", lambda t: 60 * MIB),
        ("a warm-up", lambda t: 60 * MIB + min(t, 300) * 100),
        ("a saw", lambda t: 60 * MIB + (t % 60) * 50),
        ("floods that pass", lambda t: 60 * MIB + (20 * MIB if t % 100 < 8 else 0)),
        ("falling", lambda t: 60 * MIB - 10 * t),
    ],
)
def test_what_stays_level_is_flat(name: str, value: Callable[[float], float]) -> None:
    jitter = noise(2)
    verdict = judge(series(lambda t: value(t) + jitter()), 4 * MIB)
    assert verdict.flat, (name, verdict)


def test_descriptors_that_are_left_open_one_by_one_are_found() -> None:
    assert not judge(series(lambda t: 40 + t // 240 + (48 if t % 40 < 10 else 0)), 4).flat
    assert judge(series(lambda t: 40 + (48 if t % 40 < 10 else 0)), 4).flat


def test_too_few_samples_are_no_judgement() -> None:
    with pytest.raises(ValueError, match="too few"):
        judge(series(lambda _: 1.0, 5), 1.0)


def test_memory_that_is_written_counts_and_a_file_that_is_read_does_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(_MEMORY_KIB << 10))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        before = private_kib(os.getpid())
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            assert sum(mapped[:: mmap.PAGESIZE]) == 0
            assert private_kib(os.getpid()) - before < _MEMORY_KIB // 2
            # Of the system itself: what the process has freed before would not count as new.
            with mmap.mmap(-1, _MEMORY_KIB << 10, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as written:
                written.write(b"x" * len(written))
                assert private_kib(os.getpid()) - before >= _MEMORY_KIB
