"""A real Cassandra node: one JVM on a loopback address, its files in one directory.

The demo and the tests run the agent against it. The node is made for that: one token, a small heap, the serial
collector and only the quick compiler, so that it starts in seconds and costs little when it is idle. Everything that
cassandra.yaml knows can be overridden. A node has its own loopback address, so that several run side by side on
Cassandra's usual ports. It is ended by its process id: `stop` lets it drain its log, `kill` does not.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import SystemRandom

from penstock.errors import ServerFailed
from penstock.sandbox import cassandra_jars
from penstock.sandbox.java_process import JavaProcess, JavaServer, bindable, free_port
from penstock.system.java import java_major

STORAGE_PORT = 7000
NATIVE_PORT = 9042
_NODETOOL_S = 120
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


class CassandraServer(JavaServer):
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
        self._seeds = tuple(seeds) or (self.address,)
        self._token = token
        self._settings = dict(settings or {})
        self._heap = heap
        self._options = tuple(options)
        self._note = note
        self._jars = cassandra_jars.jars(version, cache.absolute(), note)
        self._java = java or cassandra_jars.java_for(version, cache.absolute(), note)
        self._java_major = java_major(self._java) or 0
        self._jmx_port = free_port()
        name = f"Cassandra {version}"
        super().__init__(JavaProcess(name, self._command(), self.directory, self._answers, self.system_log))

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

    def start(self, *, wait: bool = True) -> None:
        """Start the node and wait for its CQL port. Without `wait`, call `ready` later."""
        assert not self.running
        self._note(f"starting Cassandra {self.version} on {self.address}")
        self._write_files()
        super().start(wait=wait)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.address, self.port)) == 0

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
        done = subprocess.run(  # noqa: S603 - words of ours
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
