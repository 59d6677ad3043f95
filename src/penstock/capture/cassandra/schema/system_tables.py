"""The tables that every Cassandra has, with layouts that are known without asking.

A commit log has no names and types, only table ids. The ids of Cassandra's own tables follow from their names, so with
these layouts the log can be read from its first byte, and tells the schema of all other tables by itself
(docs/concepts/cassandra-schema.md). Each layout is the union over versions 3.11, 4.0, 4.1, 5.0 and 6.0: the log names
the columns that it has, so columns that a version lacks do no harm.

A line is a table: its name, partition columns, clustering columns, other columns.
"""

from __future__ import annotations

import hashlib
import uuid

from penstock.capture.cassandra.schema import cql_types
from penstock.capture.cassandra.schema.table import CassandraTable, in_order
from penstock.model.schema import Column, Role, TableId, TableSchema

SCHEMA_KEYSPACE = "system_schema"
# Keyspaces whose tables are Cassandra's own affair; nobody's data is in them.
SYSTEM_KEYSPACES = frozenset(
    {
        "system",
        "system_accord",
        "system_auth",
        "system_cluster_metadata",
        "system_distributed",
        SCHEMA_KEYSPACE,
        "system_traces",
    }
)

_OPTIONS = (
    "additional_write_policy text; allow_auto_snapshot boolean; auto_repair frozen<map<text, text>>; "
    "bloom_filter_fp_chance double; caching frozen<map<text, text>>; cdc boolean; comment text; "
    "compaction frozen<map<text, text>>; compression frozen<map<text, text>>; crc_check_chance double; "
    "dclocal_read_repair_chance double; default_time_to_live int; extensions frozen<map<text, blob>>; "
    "fast_path frozen<map<text, text>>; gc_grace_seconds int; id uuid; incremental_backups boolean; "
    "max_index_interval int; memtable text; memtable_flush_period_in_ms int; min_index_interval int; "
    "read_repair text; read_repair_chance double; speculative_retry text"
)
_PEER = (
    "data_center text; host_id uuid; native_address inet; native_port int; preferred_ip inet; preferred_port int; "
    "rack text; release_version text; rpc_address inet; schema_version uuid; tokens set<text>"
)
_ESTIMATE = "mean_partition_size bigint; partitions_count bigint"
_PAXOS = (
    "in_progress_ballot timeuuid; in_progress_read_ballot timeuuid; most_recent_commit blob; "
    "most_recent_commit_at timeuuid; most_recent_commit_version int; proposal blob; proposal_ballot timeuuid; "
    "proposal_version int"
)
_FAILURE = "exception_message text; exception_stacktrace text; finished_at timestamp; started_at timestamp"
_LIST = "frozen<list<text>>"
_MAP = "frozen<map<text, text>>"

# name: partition columns | clustering columns | the others.
_LAYOUTS: dict[str, dict[str, str]] = {
    SCHEMA_KEYSPACE: {
        "keyspaces": f"keyspace_name text | | durable_writes boolean; replication {_MAP}; fast_path {_MAP}",
        "tables": f"keyspace_name text | table_name text | flags frozen<set<text>>; {_OPTIONS}",
        "views": "keyspace_name text | view_name text | base_table_id uuid; base_table_name text; where_clause text; "
        f"include_all_columns boolean; {_OPTIONS}",
        "columns": "keyspace_name text | table_name text; column_name text | clustering_order text; "
        "column_name_bytes blob; kind text; position int; type text",
        "column_masks": "keyspace_name text | table_name text; column_name text | function_keyspace text; "
        f"function_name text; function_argument_types {_LIST}; function_argument_values {_LIST}; "
        "function_argument_nulls frozen<list<boolean>>",
        "dropped_columns": "keyspace_name text | table_name text; column_name text | dropped_time timestamp; "
        "kind text; type text",
        "triggers": f"keyspace_name text | table_name text; trigger_name text | options {_MAP}",
        "indexes": f"keyspace_name text | table_name text; index_name text | kind text; options {_MAP}",
        "types": f"keyspace_name text | type_name text | field_names {_LIST}; field_types {_LIST}",
        "functions": f"keyspace_name text | function_name text; argument_types {_LIST} | argument_names {_LIST}; "
        "body text; called_on_null_input boolean; language text; return_type text",
        "aggregates": f"keyspace_name text | aggregate_name text; argument_types {_LIST} | final_func text; "
        "initcond text; return_type text; state_func text; state_type text",
    },
    "system": {
        "local": "key text | | bootstrapped text; broadcast_address inet; broadcast_port int; cluster_name text; "
        "cql_version text; data_center text; gossip_generation int; host_id uuid; listen_address inet; "
        "listen_port int; native_protocol_version text; partitioner text; rack text; release_version text; "
        "rpc_address inet; rpc_port int; schema_version uuid; thrift_version text; tokens set<text>; "
        "truncated_at map<uuid, blob>",
        "peers": f"peer inet | | {_PEER}",
        "peers_v2": f"peer inet | peer_port int | {_PEER}",
        "peer_events": "peer inet | | hints_dropped map<uuid, int>",
        "peer_events_v2": "peer inet | peer_port int | hints_dropped map<uuid, int>",
        "batches": "id timeuuid | | mutations list<blob>; version int",
        "paxos": f"row_key blob | cf_id uuid | {_PAXOS}",
        "paxos_repair_history": "keyspace_name text | table_name text | points frozen<list<tuple<blob, timeuuid>>>",
        "consensus_migration_state": "row_key blob | cf_id uuid; consensus_migrated_at_epoch bigint desc | "
        "consensus_max_hlc bigint; consensus_target tinyint",
        "IndexInfo": "table_name text | index_name text | value blob",
        "range_xfers": "token_bytes blob | | requested_at timestamp",
        "compaction_history": "id timeuuid | | bytes_in bigint; bytes_out bigint; columnfamily_name text; "
        f"compacted_at timestamp; compaction_properties {_MAP}; keyspace_name text; rows_merged map<int, bigint>",
        "sstable_activity": "keyspace_name text; columnfamily_name text; generation int | | rate_120m double; "
        "rate_15m double",
        "sstable_activity_v2": "keyspace_name text; table_name text; id text | | rate_120m double; rate_15m double",
        "size_estimates": f"keyspace_name text | table_name text; range_start text; range_end text | {_ESTIMATE}",
        "table_estimates": "keyspace_name text | table_name text; range_type text; range_start text; range_end text | "
        f"{_ESTIMATE}",
        "available_ranges": "keyspace_name text | | ranges set<blob>",
        "available_ranges_v2": "keyspace_name text | | full_ranges set<blob>; transient_ranges set<blob>",
        "transferred_ranges": "operation text; keyspace_name text | peer inet | ranges set<blob>",
        "transferred_ranges_v2": "operation text; keyspace_name text | peer inet; peer_port int | ranges set<blob>",
        "views_builds_in_progress": "keyspace_name text | view_name text | generation_number int; last_token text",
        "view_builds_in_progress": "keyspace_name text | view_name text; start_token text; end_token text | "
        "keys_built bigint; last_token text",
        "built_views": "keyspace_name text | view_name text | status_replicated boolean",
        "prepared_statements": "prepared_id blob | | logged_keyspace text; query_string text",
        "top_partitions": "keyspace_name text | table_name text; top_type text | last_update timestamp; "
        "top frozen<list<tuple<text, bigint>>>",
        "repairs": "parent_id timeuuid | | cfids set<uuid>; coordinator inet; coordinator_port int; "
        "last_update timestamp; participants set<inet>; participants_wp set<text>; ranges set<blob>; "
        "repaired_at timestamp; started_at timestamp; state int",
        "local_metadata_log": "epoch bigint | | entry_id bigint; kind int; transformation blob",
        "metadata_snapshots": "epoch bigint | | snapshot blob",
    },
    "system_auth": {
        "roles": "role text | | can_login boolean; is_superuser boolean; member_of set<text>; salted_hash text",
        "role_members": "role text | member text | ",
        "role_permissions": "role text | resource text | permissions set<text>",
        "resource_role_permissons_index": "resource text | role text | ",
        "network_permissions": "role text | | dcs frozen<set<text>>",
        "identity_to_role": "identity text | | role text",
        "cidr_permissions": "role text | | cidr_groups frozen<set<text>>",
        "cidr_groups": "cidr_group text | | cidrs frozen<set<tuple<inet, smallint>>>",
    },
    "system_distributed": {
        "repair_history": "keyspace_name text; columnfamily_name text | id timeuuid | coordinator inet; "
        "coordinator_port int; parent_id timeuuid; participants set<inet>; participants_v2 set<text>; "
        f"range_begin text; range_end text; status text; {_FAILURE}",
        "parent_repair_history": "parent_id timeuuid | | columnfamily_names set<text>; keyspace_name text; "
        f"{_FAILURE}; options map<text, text>; requested_ranges set<text>; successful_ranges set<text>",
        "view_build_status": "keyspace_name text; view_name text | host_id uuid | status text",
        "partition_denylist": "ks_name text; table_name text | key blob | ",
        "auto_repair_history": "repair_type text | host_id uuid | delete_hosts set<uuid>; "
        "delete_hosts_update_time timestamp; force_repair boolean; repair_finish_ts timestamp; "
        "repair_start_ts timestamp; repair_turn text",
        "auto_repair_priority": "repair_type text | | repair_priority set<uuid>",
        "compression_dictionaries": "keyspace_name text; table_name text | table_id text desc; dict_id bigint desc | "
        "created_at timestamp; dict blob; dict_checksum int; dict_length int; kind text",
    },
    "system_traces": {
        "sessions": "session_id uuid | | client inet; command text; coordinator inet; coordinator_port int; "
        "duration int; parameters map<text, text>; request text; started_at timestamp",
        "events": "session_id uuid | event_id timeuuid | activity text; source inet; source_elapsed int; "
        "source_port int; thread text",
    },
    "system_cluster_metadata": {
        "distributed_metadata_log": "epoch bigint | | entry_id bigint; kind int; transformation blob",
    },
    "system_accord": {
        "journal": "key blob | descriptor bigint desc; offset int desc | record blob; user_version int",
        "commands_for_key": "key blob | | data blob",
    },
}


def system_table_id(keyspace: str, table: str) -> uuid.UUID:
    """The id of one of Cassandra's own tables: a version-3 UUID of its name."""
    digest = hashlib.md5((keyspace + table).encode(), usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest, version=3)


def _columns(layout: str) -> tuple[Column, ...]:
    columns = []
    roles = (Role.PARTITION, Role.CLUSTERING, Role.REGULAR)
    for role, part in zip(roles, layout.split("|"), strict=True):
        for definition in filter(None, map(str.strip, part.split(";"))):
            name, _, text = definition.partition(" ")
            descending = text.endswith(" desc")
            text = text.removesuffix(" desc")
            columns.append(Column(name, cql_types.parse(text), role, descending, text))
    return in_order(columns)


def _table(keyspace: str, name: str, layout: str) -> CassandraTable:
    schema = TableSchema(TableId(keyspace, name), _columns(layout), source="cassandra")
    return CassandraTable(system_table_id(keyspace, name), schema)


SYSTEM: dict[uuid.UUID, CassandraTable] = {
    table.id: table
    for keyspace, layouts in _LAYOUTS.items()
    for table in (_table(keyspace, name, layout) for name, layout in layouts.items())
}
SCHEMA_TABLES: dict[TableId, CassandraTable] = {
    table.schema.table: table for table in SYSTEM.values() if table.schema.table.keyspace == SCHEMA_KEYSPACE
}
# Its map `truncated_at` is where the log tells a TRUNCATE.
LOCAL_ID = system_table_id("system", "local")
