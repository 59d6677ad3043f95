"""A Debezium configuration becomes settings; what cannot be used is refused by its own name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.capture.cassandra.debezium import table as debezium_table
from penstock.capture.cassandra.debezium.properties import _SIMPLE, DebeziumConfig, is_properties, read
from penstock.capture.cassandra.debezium.table import TABLE, Kind, Origin, Status, find
from penstock.errors import InvalidSetting
from penstock.settings import SnapshotMode, TailMode, known_names
from scripts import debezium_page

# The example of Debezium's own documentation.
EXAMPLE = """\
connector.name=test_connector
commit.log.relocation.dir=/srv/test_dir/relocation/
http.port=8001
cassandra.config=/usr/local/etc/cassandra/cassandra.yaml
cassandra.hosts=127.0.0.1
cassandra.port=9142
kafka.producer.bootstrap.servers=127.0.0.1:9092
kafka.producer.retries=3
kafka.producer.retry.backoff.ms=1000
kafka.topic.prefix=test_prefix
key.converter=io.confluent.connect.avro.AvroConverter
key.converter.schema.registry.url: http://localhost:8081
value.converter=io.confluent.connect.avro.AvroConverter
value.converter.schema.registry.url: http://localhost:8081
offset.backing.store.dir=/srv/test_dir/
snapshot.consistency=ONE
snapshot.mode=ALWAYS
latest.commit.log.only=true
"""
# Every property that Debezium 3.7 defines or honours, and those of its older documentation.
DEBEZIUM = [
    "topic.prefix",
    "key.converter",
    "value.converter",
    "key.converter.x",
    "value.converter.x",
    "snapshot.mode",
    "snapshot.consistency",
    "snapshot.scan.interval.ms",
    "http.port",
    "cassandra.config",
    "cassandra.cluster.name",
    "cassandra.node.id",
    "cassandra.driver.config.file",
    "commit.log.relocation.dir",
    "commit.log.relocation.dir.poll.interval.ms",
    "commit.log.post.processing.enabled",
    "commit.log.transfer.class",
    "commit.log.transfer.x",
    "commit.log.error.reprocessing.enabled",
    "commit.log.real.time.processing.enabled",
    "commit.log.marked.complete.poll.interval.ms",
    "commit.log.processor.shutdown.timeout.seconds",
    "cdc.dir.poll.interval.ms",
    "offset.backing.store.dir",
    "offset.flush.interval.ms",
    "max.offset.flush.size",
    "schema.refresh.interval.ms",
    "num.of.change.event.queues",
    "event.order.guarantee.mode",
    "field.exclude.list",
    "latest.commit.log.only",
    "decimal.handling.mode",
    "varint.handling.mode",
    "tombstones.on.delete",
    "poll.interval.ms",
    "tracing.enabled",
    "kafka.producer.acks",
    "max.queue.size",
    "max.batch.size",
    "max.queue.size.in.bytes",
    "poll.dispatch.interval.ms",
    "topic.naming.strategy",
    "topic.delimiter",
    "topic.cache.size",
    "topic.heartbeat.prefix",
    "schema.name.adjustment.mode",
    "field.name.adjustment.mode",
    "custom.metric.tags",
    "skipped.operations",
    "errors.max.retries",
    "sourceinfo.struct.maker",
    "converters",
    "connector.name",
    "kafka.topic.prefix",
    "cassandra.hosts",
    "cassandra.port",
    "cassandra.username",
    "cassandra.password",
    "cassandra.ssl.enabled",
    "cassandra.ssl.config.path",
    "sanitize.field.names",
    "field.blacklist",
]
SECRET = "hunter2-canary"

Reading = Callable[..., DebeziumConfig]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The driver's default file is looked for in the working directory.
    monkeypatch.chdir(tmp_path)
    return tmp_path / "config.properties"


@pytest.fixture
def reading(file: Path) -> Reading:
    def read_text(text: str, environ: dict[str, str] | None = None) -> DebeziumConfig:
        if "offset.backing.store.dir" not in text:
            text += "\noffset.backing.store.dir=state\n"
        file.write_text(text, encoding="utf-8")
        return read(file, environ or {})

    return read_text


def test_the_example_of_debeziums_documentation_is_read_unchanged(reading: Reading) -> None:
    config = reading(EXAMPLE)
    base = Path("/srv/test_dir")
    assert config.settings.cassandra.config_file == Path("/usr/local/etc/cassandra/cassandra.yaml")
    assert config.settings.cassandra.contact_points == ("127.0.0.1",)
    assert config.settings.cassandra.port == 9142
    assert config.settings.http.port == 8001
    assert config.settings.snapshot.mode is SnapshotMode.ALWAYS
    assert config.settings.snapshot.consistency == "ONE"
    assert config.settings.agent.directory == base / "penstock"
    assert config.settings.agent.error_directory == base / "relocation" / "error"
    assert config.settings.agent.archive_directory == base / "relocation" / "archive"
    assert config.settings.agent.transfer == "delete"
    assert config.settings.agent.tail is TailMode.SYNCED
    assert dict(config.pipeline) == {
        "connector.name": "test_connector",
        "kafka.producer.bootstrap.servers": "127.0.0.1:9092",
        "kafka.producer.retries": "3",
        "kafka.producer.retry.backoff.ms": "1000",
        "topic.prefix": "test_prefix",
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter.schema.registry.url": "http://localhost:8081",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://localhost:8081",
    }
    assert config.warnings == ("properties without effect: latest.commit.log.only",)


@pytest.mark.parametrize("name", DEBEZIUM)
def test_every_property_of_debezium_is_in_the_table(name: str) -> None:
    assert find(name) is not None


def test_every_entry_of_the_table_says_what_becomes_of_it() -> None:
    names = [entry.name for entry in TABLE]
    assert len(set(names)) == len(names)
    settings = set(known_names())
    for entry in TABLE:
        assert entry.note, entry.name
        assert set(entry.settings) <= settings, entry.name
        assert bool(entry.choices) == (entry.kind is Kind.CHOICE), entry.name
        assert not entry.settings or entry.status is Status.MAPPED, entry.name
        assert not entry.now or entry.now in names, entry.name
    simple = {name for name in _SIMPLE if len(debezium_table.EXACT[name].settings) == 1}
    assert simple == set(_SIMPLE)


def test_properties_without_effect_make_one_warning(reading: Reading) -> None:
    config = reading("poll.interval.ms=5\ntracing.enabled=true\nmax.queue.size=1\nquarkus.log.level=INFO\n")
    assert config.warnings == (
        "properties without effect: poll.interval.ms, tracing.enabled, max.queue.size, quarkus.log.level",
    )
    assert reading("snapshot.mode=never").warnings == ()


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("http.prot=1", "unknown property; did you mean http.port?", 1),
        ("\n# x\nsnapshot.mod=never", "unknown property; did you mean snapshot.mode?", 3),
        ("zzz=1", "unknown property; docs/reference/debezium.md lists all that are known", 1),
        ("=1", "unknown property", 1),
        ("kafka.producer.=1", "unknown property", 1),
        ("http.port=eight", "the value must be whole number", 1),
        ("http.port=70000", "setting http.port: input should be less than or equal to 65535", 1),
        ("http.port=٣", "the value must be whole number", 1),
        ("snapshot.scan.interval.ms=0", "the value must be whole number above 0", 1),
        ("schema.refresh.interval.ms=-1", "the value must be whole number above 0", 1),
        ("tombstones.on.delete=yes", "the value must be true or false", 1),
        ("snapshot.mode=sometimes", "the value must be one of initial, always, never", 1),
        ("snapshot.consistency=MOST", "the value must be one of ANY, ONE", 1),
        ("decimal.handling.mode=exact", "the value must be one of double, precise, string", 1),
        ("poll.interval.ms=soon", "the value must be whole number above 0", 1),
        ("commit.log.transfer.class=com.acme.S3Transfer", "write a Python class with the same duty", 1),
        ("storage.credential.key.file=/k", "write a Python transfer class", 1),
        ("connector.class=io.debezium.connector.mysql.MySqlConnector", "this is another one", 1),
        ("commit.log.post.processing.enabled=false", "commit.log.relocation.dir is missing", 1),
        ("cassandra.hosts=a:1,b:2", "must have the same port", 1),
        ("cassandra.hosts=a:x", "written as host or host:port", 1),
        ("cassandra.hosts= , ", "there is no contact point", 1),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(
    reading: Reading, file: Path, text: str, said: str, line: int
) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(said)) as refusal:
        reading(text)
    name = text.strip().rsplit("\n", 1)[-1].split("=")[0]
    assert refusal.value.place == {"file": file, "line": line, "property": name}


def test_the_last_of_equal_properties_counts(reading: Reading) -> None:
    assert reading("http.port=1\nhttp.port=2\n").settings.http.port == 2


def test_the_environment_wins_over_the_file(reading: Reading) -> None:
    config = reading("http.port=1\n", {"PENSTOCK_HTTP__PORT": "2", "PENSTOCK_AGENT__TAIL": "written"})
    assert config.settings.http.port == 2
    assert config.settings.agent.tail is TailMode.WRITTEN
    with pytest.raises(InvalidSetting, match=r"\(variable PENSTOCK_HTTP__PORT\)"):
        reading("http.port=1\n", {"PENSTOCK_HTTP__PORT": "no"})


def test_the_directory_is_needed_as_in_debezium(file: Path) -> None:
    file.write_text("http.port=1\n")
    with pytest.raises(InvalidSetting, match=r"offset\.backing\.store\.dir is missing"):
        read(file, {})
    assert read(file, {"PENSTOCK_AGENT__DIRECTORY": "/d"}).settings.agent.directory == Path("/d")


def test_processed_segments_go_as_the_properties_say(reading: Reading) -> None:
    deleted = reading(f"commit.log.transfer.class={debezium_table.BLACK_HOLE}\n").settings.agent
    assert (deleted.transfer, deleted.error_directory) == ("delete", None)
    kept = reading("commit.log.relocation.dir=/r\ncommit.log.post.processing.enabled=False\n").settings.agent
    assert (kept.transfer, kept.archive_directory) == ("archive", Path("/r/archive"))
    own = reading(
        "commit.log.transfer.class=acme.transfers:S3\ncommit.log.transfer.bucket=b\n"
        "commit.log.error.reprocessing.enabled=true\n"
    ).settings.agent
    assert (own.transfer, own.transfer_options, own.reprocess_errors) == ("acme.transfers:S3", {"bucket": "b"}, True)


def test_intervals_become_seconds(reading: Reading) -> None:
    settings = reading("snapshot.scan.interval.ms=1500\nschema.refresh.interval.ms = 250 \n").settings
    assert settings.snapshot.scan_interval_s == 1.5
    assert settings.agent.schema_refresh_s == 0.25


def test_old_names_give_way_to_new_ones(reading: Reading) -> None:
    config = reading("kafka.topic.prefix=old\ntopic.prefix=new\nfield.blacklist=a.b.c\n")
    assert dict(config.pipeline) == {"topic.prefix": "new", "field.exclude.list": "a.b.c"}


def test_properties_of_converters_are_kept_under_their_names(reading: Reading) -> None:
    config = reading("converters=isbn, upper\nisbn.type=x.Y\nisbn.schema.name=z\nupper.type=w\n")
    assert list(config.pipeline) == ["converters", "isbn.type", "isbn.schema.name", "upper.type"]
    with pytest.raises(InvalidSetting, match="unknown property"):
        reading("converters=isbn\nissn.type=x.Y\n")


def test_a_file_of_debezium_server_is_understood(reading: Reading) -> None:
    config = reading(
        "debezium.source.connector.class=io.debezium.connector.cassandra.Cassandra4Connector\n"
        "debezium.source.snapshot.mode=never\ndebezium.source.cassandra.node.id=n1\n"
        "debezium.source.offset.backing.store.dir=/o\ndebezium.source.topic.prefix=p\n"
        "debezium.sink.type=kafka\ndebezium.transforms=t\ndebezium.transforms.t.type=x\nquarkus.http.port=8080\n"
    )
    assert config.settings.snapshot.mode is SnapshotMode.NEVER
    assert config.settings.agent.node == "n1"
    assert config.settings.agent.directory == Path("/o/penstock")
    assert config.settings.http.port == 8080
    assert dict(config.pipeline) == {
        "topic.prefix": "p",
        "debezium.sink.type": "kafka",
        "transforms": "t",
        "transforms.t.type": "x",
    }
    with pytest.raises(InvalidSetting, match=r"property debezium\.source\.http\.port"):
        reading("debezium.source.http.port=x")


def test_login_comes_from_the_older_properties(reading: Reading) -> None:
    cassandra = reading(
        f"cassandra.hosts=h1:9043, [::1]:9043\ncassandra.username=u\ncassandra.password={SECRET}\n"
    ).settings.cassandra
    assert (cassandra.contact_points, cassandra.port, cassandra.username) == (("h1", "::1"), 9043, "u")
    assert cassandra.password is not None
    assert cassandra.password.get_secret_value() == SECRET
    assert reading("").settings.cassandra.contact_points == ("127.0.0.1",)


def test_the_drivers_file_says_where_the_cluster_is(reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "driver.conf").write_text(
        """
        datastax-java-driver {
          basic.contact-points = [ "10.0.0.1:9043", "10.0.0.2:9043" ]
          basic.request.timeout = 20 seconds
          basic.load-balancing-policy.local-datacenter = dc1
          advanced.auth-provider { class = PlainTextAuthProvider, username = u, password = ${?CASSANDRA_PASSWORD} }
          advanced.ssl-engine-factory {
            class = DefaultSslEngineFactory
            hostname-validation = false
            truststore-path = ca.pem
          }
        }
        """
    )
    config = reading(
        "cassandra.driver.config.file=driver.conf\ncassandra.hosts=ignored\n", {"CASSANDRA_PASSWORD": SECRET}
    )
    cassandra = config.settings.cassandra
    assert (cassandra.contact_points, cassandra.port) == (("10.0.0.1", "10.0.0.2"), 9043)
    assert (cassandra.local_data_centre, cassandra.username) == ("dc1", "u")
    assert cassandra.password is not None
    assert cassandra.password.get_secret_value() == SECRET
    assert (cassandra.tls, cassandra.tls_verify_host, cassandra.tls_ca_file) == (True, False, Path("ca.pem"))
    assert config.warnings == ("keys without effect in driver.conf: basic.request.timeout",)


def test_java_stores_of_the_drivers_file_are_taken_with_their_passwords(reading: Reading, tmp_path: Path) -> None:
    for name in ("trust.jks", "key.jks"):
        (tmp_path / name).write_bytes(b"\xfe\xed\xfe\xed")
    driver = tmp_path / "driver.conf"
    driver.write_text(
        "datastax-java-driver.advanced.ssl-engine-factory { class = DefaultSslEngineFactory\n"
        f"truststore-path = trust.jks, truststore-password = {SECRET}\n"
        f"keystore-path = key.jks, keystore-password = {SECRET} }}"
    )
    config = reading("cassandra.driver.config.file=driver.conf")
    cassandra = config.settings.cassandra
    assert cassandra.tls_trust_store_file == Path("trust.jks")
    assert cassandra.tls_key_store_file == Path("key.jks")
    for secret in (cassandra.tls_trust_store_password, cassandra.tls_key_store_password):
        assert secret is not None
        assert secret.get_secret_value() == SECRET
    assert cassandra.tls_verify_host
    assert SECRET not in repr(config) + repr(config.settings)
    driver.write_text(driver.read_text().replace("key.jks", "none.jks"))
    with pytest.raises(InvalidSetting, match=r"cannot read the store: No such file .*file none\.jks"):
        reading("cassandra.driver.config.file=driver.conf")


def test_the_drivers_default_file_is_read_when_it_is_there(reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "application.conf").write_text('datastax-java-driver.basic.contact-points = ["10.0.0.9:1"]')
    assert reading("").settings.cassandra.contact_points == ("10.0.0.9",)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("basic.cloud.secure-connect-bundle = x", "cloud bundles are not supported"),
        ("advanced.auth-provider.class = DseGssApiAuthProvider", "only PlainTextAuthProvider"),
        ("advanced.ssl-engine-factory.class = acme.Factory", "only DefaultSslEngineFactory"),
        ("basic.contact-points = [", "a value is missing"),
    ],
)
def test_what_the_drivers_file_cannot_have_is_refused_there(
    reading: Reading, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "driver.conf").write_text(f"datastax-java-driver {{\n{text}\n}}")
    with pytest.raises(InvalidSetting, match=re.escape(said)) as refusal:
        reading("cassandra.driver.config.file=driver.conf")
    assert refusal.value.place["file"] == Path("driver.conf")
    with pytest.raises(InvalidSetting, match=r"cannot read the driver's configuration: No such file .*file none\.conf"):
        reading("cassandra.driver.config.file=none.conf")


def test_the_older_ssl_file_is_read(reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    ssl = tmp_path / "ssl.properties"
    ssl.write_text(f"trustStore.location=ca.pem\ntrustStore.password={SECRET}\ncipherSuites=X\n")
    text = "cassandra.ssl.enabled=true\ncassandra.ssl.config.path=ssl.properties\n"
    config = reading(text)
    assert (config.settings.cassandra.tls, config.settings.cassandra.tls_ca_file) == (True, Path("ca.pem"))
    assert config.warnings == ("keys without effect in ssl.properties: cipherSuites",)
    assert not reading(text.replace("true", "false")).settings.cassandra.tls
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed")
    ssl.write_text(f"keyStore.location=store.jks\nkeyStore.password={SECRET}\nkeyStore.type=JKS\n")
    cassandra = reading(text).settings.cassandra
    assert cassandra.tls_key_store_file == Path("store.jks")
    assert cassandra.tls_key_store_password is not None
    assert cassandra.tls_key_store_password.get_secret_value() == SECRET
    ssl.write_text("keystore.location=store.jks\n")
    with pytest.raises(InvalidSetting, match=r"unknown property; known here: trustStore\.location"):
        reading(text)


def test_secrets_are_never_shown(reading: Reading) -> None:
    config = reading(
        f"cassandra.username=u\ncassandra.password={SECRET}\nkafka.producer.ssl.key.password={SECRET}\n"
        f"commit.log.transfer.class=a:B\ncommit.log.transfer.key={SECRET}\npoll.interval.ms=1\n"
    )
    assert config.pipeline["kafka.producer.ssl.key.password"] == SECRET
    assert SECRET not in repr(config) + str(config) + repr(config.pipeline) + str(config.warnings)
    assert "kafka.producer.ssl.key.password" in repr(config)
    for text in (f"http.port={SECRET}", f"snapshot.mode={SECRET}", f"cassandra.pasword={SECRET}"):
        with pytest.raises(InvalidSetting) as refusal:
            reading(text)
        assert SECRET not in str(refusal.value) + repr(refusal.value) + str(refusal.value.__cause__)


def test_files_are_told_apart_by_their_name() -> None:
    assert is_properties("/etc/Debezium.PROPERTIES")
    assert not is_properties("penstock.toml")


def test_the_page_is_made_from_the_table_and_up_to_date() -> None:
    page = debezium_page.PAGE.read_text(encoding="utf-8")
    assert page == debezium_page.page(), "run `make docs`"
    for entry in TABLE:
        assert f"| `{entry.name}` |" in page
    for origin in Origin:
        assert f"## {origin}" in page
