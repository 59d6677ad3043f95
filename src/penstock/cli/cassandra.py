"""`penstock cassandra`: look into Cassandra's commit log without a Cassandra."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli import needs, output
from penstock.cli.output import JsonOption
from penstock.errors import InvalidInput

app = typer.Typer(
    help="Look into Cassandra's commit log: print its changes, check cdc_raw.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

PathsArgument = Annotated[list[str], typer.Argument(metavar="SEGMENT|DIR...", help="Segments, or directories of them.")]
SchemaOption = Annotated[
    str | None, typer.Option("--schema", metavar="FILE", help="Table definitions: CQL text (.cql) or JSON.")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data-dir", metavar="DIR", help="Cassandra's data directory, for ids that --schema does not tell."),
]
ContactOption = Annotated[
    str | None,
    typer.Option("--contact-point", metavar="HOST[:PORT]", help="Ask this node for the table definitions."),
]
UsernameOption = Annotated[str | None, typer.Option("--username", metavar="NAME", help="The user to log in as.")]
PasswordOption = Annotated[
    str | None, typer.Option("--password-file", metavar="FILE", help="A file that holds the user's password.")
]
TlsOption = Annotated[bool, typer.Option("--tls", help="Connect with TLS.")]
TlsCaOption = Annotated[
    str | None, typer.Option("--tls-ca", metavar="FILE", help="Certificates (PEM) to trust; none: the system's.")
]
TlsCertificateOption = Annotated[
    str | None, typer.Option("--tls-certificate", metavar="FILE", help="The client certificate (PEM).")
]
TlsKeyOption = Annotated[str | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")]
TlsAnyHostOption = Annotated[
    bool, typer.Option("--tls-any-host", help="Accept a certificate that names another address.")
]
KeystoreOption = Annotated[
    str | None, typer.Option("--keystore", metavar="FILE", help="The key store of an encrypted log.")
]
KeystorePasswordOption = Annotated[
    str | None,
    typer.Option("--keystore-password-file", metavar="FILE", help="A file that holds the key store's password."),
]
KeyPasswordOption = Annotated[
    str | None,
    typer.Option("--key-password-file", metavar="FILE", help="The same for its keys, when they have another one."),
]
YamlOption = Annotated[
    str | None,
    typer.Option("--cassandra-yaml", metavar="FILE", help="The node's own file: its key store, its limit of cdc_raw."),
]


@app.command("decode")
def decode(
    paths: PathsArgument,
    schema: SchemaOption = None,
    data_directory: DataOption = None,
    contact_point: ContactOption = None,
    username: UsernameOption = None,
    password_file: PasswordOption = None,
    tls: TlsOption = False,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    tls_any_host: TlsAnyHostOption = False,
    keystore: KeystoreOption = None,
    keystore_password_file: KeystorePasswordOption = None,
    key_password_file: KeyPasswordOption = None,
    yaml: YamlOption = None,
    keyspace: Annotated[
        str | None, typer.Option("--keyspace", metavar="NAME", help="Only this keyspace, also a system keyspace.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="[KS.]TABLE", help="Only tables with this name.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Report the health of the directories instead.")] = False,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="SIZE", help="With --verify: what cdc_raw may hold, as 4096MiB.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print the changes of commit-log segments in log order. Exit code 1 when something is damaged or undecoded."""
    from penstock.cli import cassandra_decode, cassandra_health
    from penstock.cli.cassandra_sources import Contact, KeyStoreFiles, key_store, known_schemas

    if limit is not None and not verify:
        raise InvalidInput("--limit needs --verify")
    if verify and (keyspace is not None or table is not None):
        raise InvalidInput("--verify looks at whole directories; leave --keyspace and --table out")
    needs.for_commit_log("decode", asks=any((contact_point, yaml, keystore)))
    contact = Contact(contact_point, username, password_file, tls, tls_ca, tls_certificate, tls_key, tls_any_host)
    schemas = known_schemas(schema, data_directory, contact)
    keys = key_store(KeyStoreFiles(keystore, keystore_password_file, key_password_file), yaml)
    if verify:
        sound = cassandra_health.report(paths, schemas, keys, limit, yaml, json=json)
    else:
        choice = cassandra_decode.Choice.parse(keyspace, table)
        sound = cassandra_decode.run(paths, schemas, keys, choice, json=json)
    output.flush()
    if not sound:
        raise typer.Exit(1)


@app.command("schema")
def schema_of(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[SEGMENT|DIR...]", help="Segments to learn from as well.")
    ] = None,
    schema: SchemaOption = None,
    data_directory: DataOption = None,
    contact_point: ContactOption = None,
    username: UsernameOption = None,
    password_file: PasswordOption = None,
    tls: TlsOption = False,
    tls_ca: TlsCaOption = None,
    tls_certificate: TlsCertificateOption = None,
    tls_key: TlsKeyOption = None,
    tls_any_host: TlsAnyHostOption = False,
    keystore: KeystoreOption = None,
    keystore_password_file: KeystorePasswordOption = None,
    key_password_file: KeyPasswordOption = None,
) -> None:
    """Print the tables that a node, a file or segments tell, as a JSON schema file for `decode --schema`."""
    from penstock.cli import cassandra_decode
    from penstock.cli.cassandra_sources import Contact, KeyStoreFiles, key_store, known_schemas

    if not paths and schema is None and contact_point is None:
        raise InvalidInput("nothing to read tables from: give segments, --contact-point or --schema")
    needs.for_commit_log("schema", asks=any((contact_point, keystore)))
    contact = Contact(contact_point, username, password_file, tls, tls_ca, tls_certificate, tls_key, tls_any_host)
    schemas = known_schemas(schema, data_directory, contact)
    keys = key_store(KeyStoreFiles(keystore, keystore_password_file, key_password_file), None)
    sound = cassandra_decode.print_schema(paths or [], schemas, keys)
    output.flush()
    if not sound:
        raise typer.Exit(1)
