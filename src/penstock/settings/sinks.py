"""Settings of the pipeline's sinks, one section each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from string import Formatter
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from penstock.settings.pipeline import RecordType, SchemaPolicy
from penstock.settings.section import Names, PassedOn, Section, flat
from penstock.system.addresses import keeps_secrets


class TextFields(StrEnum):
    """How text columns are searched: word by word, or as a whole only."""

    TEXT = "text"
    KEYWORD = "keyword"


class MapFields(StrEnum):
    """Whether map columns are searched by their entries, or only kept in the document."""

    FLATTENED = "flattened"
    STORED = "stored"


class SearchSettings(Section):
    """Elasticsearch or OpenSearch: one document per row."""

    urls: Names = ("http://127.0.0.1:9200",)
    """The cluster's nodes, as `https://search1:9200`; when one does not answer, the next is asked."""
    index: str = "{table}"
    """The index of a table; `{keyspace}` and `{table}` stand for its names. Two tables never share an index."""
    username: str | None = None
    """The user to log in as; none when the cluster asks for none."""
    password: SecretStr | None = None
    """The user's password. Better kept in password_file."""
    password_file: Path | None = None
    """A file that holds the password and nothing else."""
    api_key: SecretStr | None = None
    """An API key, encoded, instead of a user. Better kept in api_key_file."""
    api_key_file: Path | None = None
    """A file that holds the API key and nothing else."""
    tls_ca_file: Path | None = None
    """The certificates (PEM) that the nodes' must be signed by; none: the system's."""
    tls_verify_host: bool = True
    """Whether a node's certificate must name the address that was connected to."""
    plain_http: bool = False
    """Send the login without TLS beyond this machine too, as where the network itself is encrypted."""
    bulk_bytes_max: int = Field(default=8 << 20, ge=1024, le=100 << 20)
    """One bulk request holds at most this much, before compression; a larger document goes alone."""
    bulk_documents_max: int = Field(default=5000, ge=1)
    """One bulk request holds at most so many documents."""
    gzip: bool = False
    """Whether requests are compressed; pays where the network is the limit."""
    timeout_s: float = Field(default=60.0, gt=0)
    """A request that is not answered within this time is sent again."""
    retry_s_max: float = Field(default=30.0, gt=0)
    """A cluster that is busy or away is asked again after a tenth of a second, then less and less often, but at least
    this often."""
    refused_documents_max: int = Field(default=1000, ge=0)
    """So many documents of one task may go to the dead letters; more stop the pipeline, for then the index is wrong."""
    text_fields: TextFields = TextFields.TEXT
    """How text columns are mapped: `text`, searched by words, with a field `keyword` below it, or `keyword` only. Keys
    are always keywords."""
    map_fields: MapFields = MapFields.FLATTENED
    """How map columns are mapped: `flattened`, searched by key and value, or `stored`, kept in the document only.
    OpenSearch refuses documents with flattened entries longer than 32 KiB."""
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    """When a table has columns that its index does not have: `evolve` adds them to the mapping, `ignore` leaves them
    out of the documents, `fail` stops."""
    remember_deletes_s: int = Field(default=3600, ge=60)
    """So long an index that Penstock makes remembers the versions of deleted documents (index.gc_deletes)."""
    index_settings: PassedOn = Field(default_factory=dict)
    """More settings of the indices that Penstock makes, by their names, as `number_of_replicas = "2"`."""

    @model_validator(mode="after")
    def _target_is_clear(self) -> SearchSettings:
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("urls: each looks like https://host:9200")
            if parts.username is not None:
                raise ValueError("urls: a login belongs into username and password_file, not into a URL")
        if not self.urls:
            raise ValueError("urls: at least one")
        _check_template(self.index)
        if self.password is not None and self.password_file is not None:
            raise ValueError("password or password_file, not both")
        if self.api_key is not None and self.api_key_file is not None:
            raise ValueError("api_key or api_key_file, not both")
        if self.username is not None and (self.api_key is not None or self.api_key_file is not None):
            raise ValueError("a user or an API key, not both")
        secret = self.password or self.password_file or self.api_key or self.api_key_file
        if secret is not None and not self.plain_http and not all(map(keeps_secrets, self.urls)):
            raise ValueError("urls: the login would be sent in the clear; use https://, or plain_http = true")
        return self


def _check_template(template: str, setting: str = "index") -> None:
    """Braces hold the two known names as they are; anything else would be a way into Python's objects."""
    try:
        fields = [part[1:] for part in Formatter().parse(template) if part[1] is not None]
    except ValueError:
        raise ValueError(f"{setting}: a brace without its partner") from None
    if not template or any(field not in (("keyspace", "", None), ("table", "", None)) for field in fields):
        raise ValueError(f"{setting}: a name in which only {{keyspace}} and {{table}} may stand in braces")


class FileFormat(StrEnum):
    """What the files sink writes."""

    PARQUET = "parquet"
    JSON = "json"


class FileCompression(StrEnum):
    """How the files sink compresses."""

    NONE = "none"
    GZIP = "gzip"
    ZSTD = "zstd"


class FilesSettings(Section):
    """Files of records, one directory per table."""

    directory: Path = Path("penstock-files")
    """Where the files go. All workers reach it."""
    format: FileFormat = FileFormat.PARQUET
    """`parquet`, or `json` for one JSON object per line."""
    record: RecordType = RecordType.AFTER
    """What records say: `change` (changed values only), `after` (the whole row after) or `all` (before and after)."""
    compression: FileCompression = FileCompression.ZSTD
    """How files are compressed."""
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    """When a table's schema changes: with `evolve` new files have the new columns, with `ignore` only those that the
    table had before, `fail` stops."""
    file_bytes_max: int = Field(default=128 << 20, ge=1 << 16)
    """A task begins another file of the same table when one has reached about this size."""


class ConsoleSettings(Section):
    """Records as lines on the terminal."""

    record: RecordType = RecordType.AFTER
    """What records say: `change` (changed values only), `after` (the whole row after) or `all` (before and after)."""
    records_max: int = Field(default=100, ge=1)
    """So many records of each task are shown; how many more there were is said."""
    record_characters_max: int = Field(default=4096, ge=80)
    """A longer line is cut."""


class LakeCodec(StrEnum):
    """How the data files of lakehouse tables are compressed."""

    NONE = "none"
    SNAPPY = "snappy"
    ZSTD = "zstd"


class LakehouseSettings(Section):
    """What tables of current rows and tables of history have in common, whatever their format."""

    current: bool = True
    """Whether there is a table of current rows for each source table."""
    history: bool = False
    """Whether there is a table of all changes for each source table."""
    schema_policy: SchemaPolicy = SchemaPolicy.EVOLVE
    """When a table has columns that its target has no place for: `evolve` adds or widens columns, `ignore` leaves the
    values out, `fail` stops."""
    codec: LakeCodec = LakeCodec.ZSTD
    """How data files are compressed."""
    buffer_bytes: int = Field(default=128 << 20, ge=1 << 20)
    """A task holds at most about so much in memory before it writes a data file."""

    @model_validator(mode="after")
    def _something_is_written(self) -> LakehouseSettings:
        if not self.current and not self.history:
            raise ValueError("current and history cannot both be off")
        return self


class DeltaSettings(LakehouseSettings):
    """Delta tables of current rows, of history, or both."""

    directory: Path = Path("penstock-lake")
    """Where the tables are: a local or mounted directory that all workers reach."""
    path: str = "{keyspace}/{table}"
    """The directory of a table of current rows, below `directory`; `{keyspace}` and `{table}` stand for its names."""
    history_path: str = "{keyspace}/{table}_history"
    """The directory of a table of history."""
    deletion_vectors: bool = True
    """Whether changed rows are marked in deletion vectors, by the tasks. Without, the driver writes every file anew in
    which a row has changed: slower, but for readers that do not know deletion vectors."""
    partition_by: Annotated[dict[str, Names], BeforeValidator(flat)] = Field(default_factory=dict)
    """Columns that the files of a table are divided by, by pattern `keyspace.table`; the first that fits counts."""
    cluster_by: Annotated[dict[str, Names], BeforeValidator(flat)] = Field(default_factory=dict)
    """Columns that the rows of each file are sorted by, by pattern, so that readers can skip files."""
    properties: PassedOn = Field(default_factory=dict)
    """Table properties of tables that Penstock makes, as `delta.logRetentionDuration`."""
    rows_per_file: int = Field(default=1_000_000, ge=1)
    """A data file has at most so many rows."""
    file_bytes: int = Field(default=32 << 20, ge=1 << 10)
    """Small files are written anew together, at most so much at a time, until they have a quarter of this size."""
    checkpoint_every: int = Field(default=50, ge=1)
    """A checkpoint of the table's log is made after so many commits."""
    optimize_every: int = Field(default=0, ge=0)
    """After so many batches, all small files of a table of current rows are written anew on the driver. 0:
    never; with deletion vectors the tasks do that for their own files anyway."""
    history_optimize_every: int = Field(default=200, ge=0)
    """The same for tables of history, whose small files nobody else brings together."""
    vacuum_every: int = Field(default=1000, ge=0)
    """After so many batches, files that the table no longer uses are deleted. 0: never."""
    vacuum_retention_hours: float = Field(default=168.0, ge=0)
    """Files are kept for so long after the table has stopped using them, for readers of older versions."""

    @model_validator(mode="after")
    def _paths_are_apart(self) -> DeltaSettings:
        _check_template(self.path, "path")
        _check_template(self.history_path, "history_path")
        if self.path == self.history_path:
            raise ValueError("path and history_path must differ")
        return self


class IcebergSettings(LakehouseSettings):
    """Iceberg tables of current rows, of history, or both."""

    catalog: str = "penstock"
    """The catalog's name. Without `catalog_properties` it is an SQLite database in `warehouse`."""
    catalog_properties: PassedOn = Field(default_factory=dict)
    """The catalog's properties, as pyiceberg names them: `type`, `uri`, `warehouse`, `credential`, …"""
    warehouse: Path = Path("penstock-lake")
    """Where the tables of the SQLite catalog are: a local or mounted directory."""
    namespace: str = "{keyspace}"
    """The namespace of a table."""
    table: str = "{table}"
    """The name of a table of current rows."""
    history_table: str = "{table}_history"
    """The name of a table of history."""
    spool_directory: Path | None = None
    """Where tasks leave rows for the driver; all workers reach it. None: `spool` below `warehouse`."""
    properties: PassedOn = Field(default_factory=dict)
    """Properties of tables that Penstock makes, as `write.parquet.compression-codec`."""

    @model_validator(mode="after")
    def _names_are_apart(self) -> IcebergSettings:
        for name in ("namespace", "table", "history_table"):
            _check_template(getattr(self, name), name)
        if self.table == self.history_table:
            raise ValueError("table and history_table must differ")
        return self
