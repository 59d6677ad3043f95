"""A real Cassandra node: one JVM on a loopback address, its files in one directory.

The demo and the tests run the agent against it. The node is made for that: one token, a small heap, the serial
collector and only the quick compiler, so that it starts in seconds and costs little when it is idle. Everything that
cassandra.yaml knows can be overridden. A node has its own loopback address, so that several run side by side on
Cassandra's usual ports. It is ended by its process id: `stop` lets it drain its log, `kill` does not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Self

from penstock.errors import ServerFailed
from penstock.sandbox import cassandra_jars
from penstock.sandbox.java_process import bindable, free_port
from penstock.system.java import java_major

STORAGE_PORT = 7000
NATIVE_PORT = 9042
_READY_S = 300
_STOP_S = 60
_NODETOOL_S = 120
_TAIL_CHARS = 3000
_ADDRESS_TRIES = 50

_LOGBACK = """\
<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%-5level [%thread] %date{{ISO8601}} %F:%L - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="file"/></root>
</configuration>
"""
# What Cassandra's own start scripts open to it in a Java with modules; the last list is for Java 17.
_EXPORTS = [
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
]
_OPENS = [
    "java.base/java.lang.module",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.util.jar",
    "jdk.management/com.sun.management.internal",
]
_OPENS_17 = [
    "java.base/sun.nio.ch",
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.rmi/sun.rmi.transport.tcp",
    "java.base/java.lang.ref",
]
# Quick to start and to stop, small, and no waiting for a cluster that is not there.
_QUICK = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xss512k",
    "-XX:-UsePerfData",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=2000",
    "-Dcassandra.shutdown_announce_in_ms=0",
    "-Dcassandra.available_processors=2",
    "-Djna.nosys=true",
    "-Djava.awt.headless=true",
    "-Dfile.encoding=UTF-8",
]


class CassandraServer:
    """One node; a context manager that starts and stops it.

    `settings` are added to cassandra.yaml and replace what is there; None takes a setting out. A node that was
    stopped or killed can be started again on the same files.
    """

    def __init__(
        self,
        version: str,
        directory: Path,
        *,
        cache: Path,
        address: str | None = None,
        seeds: Sequence[str] = (),
        token: int | None = None,
        settings: Mapping[str, object] | None = None,
        heap: str = "512m",
        java: Path | None = None,
        options: Sequence[str] = (),
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.version = version
        self.number = cassandra_jars.number_of(version)
        self.directory = directory.absolute()
        self.address = address or free_address()
        self.port = NATIVE_PORT
        self.pid: int | None = None
        self._seeds = tuple(seeds) or (self.address,)
        self._token = token
        self._settings = dict(settings or {})
        self._heap = heap
        self._options = tuple(options)
        self._note = note
        self._jars = cassandra_jars.jars(version, cache.absolute(), note)
        self._java = java or cassandra_jars.java_for(version, cache.absolute(), note)
        self._java_major = java_major(self._java) or 0
        self._process: subprocess.Popen[bytes] | None = None
        self._jmx_port = 0

    @property
    def yaml(self) -> Path:
        return self.directory / "conf" / "cassandra.yaml"

    @property
    def commitlog(self) -> Path:
        return self.directory / "commitlog"

    @property
    def cdc_raw(self) -> Path:
        return self.directory / "cdc_raw"

    @property
    def system_log(self) -> Path:
        return self.directory / "system.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *, wait: bool = True) -> None:
        """Start the node and wait for its CQL port. Without `wait`, call `ready` later."""
        assert not self.running
        self._note(f"starting Cassandra {self.version} on {self.address}")
        self._write_files()
        self._jmx_port = free_port()
        with (self.directory / "output.log").open("ab") as output:
            # A session of its own: Ctrl-C in a terminal is for the program that started the node, not for the node.
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                start_new_session=True,
            )
        self.pid = self._process.pid
        if not wait:
            return
        try:
            self.ready()
        except BaseException:
            self.kill()
            raise

    def ready(self, within_s: float = _READY_S) -> None:
        """Wait until the node answers on its CQL port."""
        assert self._process is not None
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerFailed(f"Cassandra {self.version} ended with {self._process.returncode}: {self._tail()}")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex((self.address, self.port)) == 0:
                    return
            time.sleep(0.1)
        raise ServerFailed(f"Cassandra {self.version} did not answer within {within_s:.0f} s: {self._tail()}")

    def stop(self) -> None:
        """End the node in good order; it drains its log. One that does not end is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the node at once, as a power cut of the process would."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        if kill:
            self.kill()
        else:
            self.stop()
        self.start()

    def nodetool(self, *words: str) -> str:
        """Run Cassandra's own nodetool on this node; gives what it prints."""
        command = [str(self._java), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *self._module_options()]
        # The log configuration of the node would make nodetool write into the node's log.
        command += [f"-Dlogback.configurationFile={self._silent_logback()}", "-cp", f"{self._jars}/*"]
        command += ["org.apache.cassandra.tools.NodeTool", "-h", "127.0.0.1", "-p", str(self._jmx_port), *words]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NODETOOL_S,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"nodetool {' '.join(words)} failed: {(done.stdout + done.stderr).strip()[-1000:]}")
        return done.stdout

    def remove(self) -> None:
        """Delete the node's files; it must not run."""
        assert not self.running
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            os.kill(process.pid, number)
            try:
                process.wait(timeout=_STOP_S)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        self._process = self.pid = None

    def _command(self) -> list[str]:
        (jamm,) = sorted(self._jars.glob("jamm-*.jar"))
        return [
            str(self._java),
            f"-Xms{self._heap}",
            f"-Xmx{self._heap}",
            f"-javaagent:{jamm}",
            *_QUICK,
            *self._module_options(),
            *self._options,
            f"-Dcassandra.config={self.yaml.as_uri()}",
            f"-Dcassandra.storagedir={self.directory}",
            f"-Dcassandra.jmx.local.port={self._jmx_port}",
            f"-Dlogback.configurationFile={self.directory / 'conf' / 'logback.xml'}",
            "-cp",
            f"{self.directory / 'conf'}:{self._jars}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _module_options(self) -> list[str]:
        return module_options(self._java_major)

    def _write_files(self) -> None:
        for name in ("conf", "data", "commitlog", "cdc_raw", "hints", "saved_caches"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        # Each value is JSON, which is YAML too.
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in self._yaml_settings().items()]
        self.yaml.write_text("".join(lines), encoding="utf-8")
        logback = self.directory / "conf" / "logback.xml"
        logback.write_text(_LOGBACK.format(file=self.system_log), encoding="utf-8")

    def _silent_logback(self) -> Path:
        path = self.directory / "conf" / "logback-nodetool.xml"
        path.write_text("<configuration/>\n", encoding="utf-8")
        return path

    def _yaml_settings(self) -> dict[str, object]:
        place = self.directory
        settings: dict[str, object] = {
            "cluster_name": "penstock",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "data_file_directories": [str(place / "data")],
            "commitlog_directory": str(self.commitlog),
            "cdc_raw_directory": str(self.cdc_raw),
            "hints_directory": str(place / "hints"),
            "saved_caches_directory": str(place / "saved_caches"),
            "cdc_enabled": True,
            "commitlog_sync": "periodic",
            "disk_failure_policy": "stop",
            "commit_failure_policy": "stop",
            "seed_provider": [
                {
                    "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
                    "parameters": [{"seeds": ",".join(self._seeds)}],
                }
            ],
            "listen_address": self.address,
            "rpc_address": self.address,
            "storage_port": STORAGE_PORT,
            "native_transport_port": self.port,
            "endpoint_snitch": "SimpleSnitch",
            "dynamic_snitch": False,
            "auto_bootstrap": False,
            "auto_snapshot": False,
            "concurrent_reads": 8,
            "concurrent_writes": 8,
            **_settings_of(self.number),
        }
        if self._token is not None:
            settings["initial_token"] = str(self._token)
        settings.update(self._settings)
        return {name: value for name, value in settings.items() if value is not None}

    def _tail(self) -> str:
        """The end of what the node said: its log, or, when it never came that far, its output."""
        for path in (self.system_log, self.directory / "output.log"):
            try:
                text = path.read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            if text.strip():
                return "…" + text.strip()[-_TAIL_CHARS:]
        return "it wrote no log"


def module_options(java_major: int) -> list[str]:
    """What a Java of this version must be told before Cassandra's classes may use its insides."""
    if java_major < 9:
        return []
    options = ["-Djdk.attach.allowAttachSelf=true"]
    opens = list(_OPENS)
    if java_major >= 17:
        options.append("-Djava.security.manager=allow")
        opens += _OPENS_17
    options += [f"--add-exports={name}=ALL-UNNAMED" for name in _EXPORTS]
    return options + [f"--add-opens={name}=ALL-UNNAMED" for name in opens]


def _settings_of(number: tuple[int, int]) -> dict[str, object]:
    """What is named differently by version. Time limits are for a busy machine, not for a quick answer."""
    timeouts = ("read", "range", "write", "counter_write", "truncate")
    if number < (4, 1):
        return {
            "commitlog_sync_period_in_ms": 10_000,
            "commitlog_segment_size_in_mb": 32,
            "commitlog_total_space_in_mb": 1024,
            "cdc_total_space_in_mb": 1024,
            "file_cache_size_in_mb": 32,
            "enable_materialized_views": True,
            **({"start_native_transport": True, "start_rpc": False} if number < (4, 0) else {}),
            "cas_contention_timeout_in_ms": 60_000,
            "request_timeout_in_ms": 60_000,
            **{f"{name}_request_timeout_in_ms": 60_000 for name in timeouts},
        }
    return {
        "commitlog_sync_period": "10000ms",
        "commitlog_segment_size": "32MiB",
        "commitlog_total_space": "1024MiB",
        "cdc_total_space": "1024MiB",
        "file_cache_size": "32MiB",
        "materialized_views_enabled": True,
        "cas_contention_timeout": "60000ms",
        "request_timeout": "60000ms",
        **{f"{name}_request_timeout": "60000ms" for name in timeouts},
    }


def free_address() -> str:
    """A loopback address on which nobody uses Cassandra's ports."""
    random = SystemRandom()
    for _ in range(_ADDRESS_TRIES):
        address = f"127.{random.randint(64, 250)}.{random.randint(1, 250)}.{random.randint(1, 250)}"
        if all(bindable(address, port) for port in (STORAGE_PORT, NATIVE_PORT)):
            return address
    raise ServerFailed("found no loopback address for a Cassandra node: is all of 127.0.0.0/8 on the loopback device?")
