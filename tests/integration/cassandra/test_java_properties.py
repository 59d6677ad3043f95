"""Java itself is the referee of how .properties files are read."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

from penstock.capture.cassandra.debezium import java_properties
from penstock.errors import InvalidSetting

PEER = Path(__file__).with_name("PropertiesPeer.java")
FILES = 20_000
# What files are made of: mostly what has a meaning of its own. Bytes beyond ASCII are ISO-8859-1, as Java reads them.
PIECES = [b"a", b"bc", b"=", b":", b" ", b"\t", b"\f", b"\\", b"\\", b"\\\\", b"\n", b"\r", b"\r\n", b"\\\n", b"\\\r\n"]
PIECES += [
    b"#",
    b"!",
    b"\\u0041",
    b"\\u00fc",
    b"\\u20AC",
    b"\\u12",
    b"\\ud83d\\ude00",
    b"\\t",
    b"\\q",
    b"\xfc ",
    b"key=value",
]


def file(seed: int) -> bytes:
    chosen = random.Random(seed)
    return b"".join(chosen.choices(PIECES, k=chosen.randrange(30)))


def java_answers(files: list[bytes]) -> list[dict[str, str] | None]:
    """What Java makes of each file; None when it refuses it."""
    sent = b"".join(struct.pack(">i", len(data)) + data for data in files)
    answer = subprocess.run(["java", str(PEER)], input=sent, capture_output=True, check=True).stdout
    at = 0

    def number() -> int:
        nonlocal at
        at += 4
        return int(struct.unpack_from(">i", answer, at - 4)[0])

    def text() -> str:
        nonlocal at
        length = number()
        at += length
        return answer[at - length : at].decode("utf-16-be", "surrogatepass")

    found: list[dict[str, str] | None] = []
    while at < len(answer):
        count = number()
        found.append(None if count < 0 else {text(): text() for _ in range(count)})
    return found


def our_answer(data: bytes) -> dict[str, str] | None:
    try:
        return {key: found.value for key, found in java_properties.parse(data, Path("x")).items()}
    except InvalidSetting:
        return None


def test_files_are_read_as_java_reads_them() -> None:
    files = [file(seed) for seed in range(FILES)]
    answers = java_answers(files)
    assert len(answers) == len(files)
    different = []
    for data, java in zip(files, answers, strict=True):
        ours = our_answer(data)
        # Java finds a property without name and value in a lone backslash at the very end; nobody can mean it.
        if data.rstrip(b"\r\n").endswith(b"\\"):
            for answer in (java, ours):
                if answer is not None:
                    answer.pop("", None)
        # Java keeps half a pair of escapes, which is no character; Penstock refuses the file.
        if ours != java and not (ours is None and b"\\\\ud83d" in data):
            different.append((data, ours, java))
    assert not different
    assert sum(java is None for java in answers) > FILES // 100
    assert sum(bool(java) for java in answers) > FILES // 2
