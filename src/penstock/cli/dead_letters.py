"""`penstock dead-letters`: records that a target would not take, and what to do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli import needs, output
from penstock.cli.agent import ConfigArgument
from penstock.cli.output import JsonOption
from penstock.cli.pipeline import load_settings
from penstock.errors import CorruptLog, InvalidInput

if TYPE_CHECKING:
    from penstock.pipeline.dead_letters import DeadLetterStore, StoredLetter
    from penstock.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Records that a target would not take: list them, deliver them again.")

SinkOption = Annotated[str | None, typer.Option("--sink", metavar="NAME", help="Only those of this sink.")]
TableOption = Annotated[str | None, typer.Option("--table", metavar="KS.TABLE", help="Only those of this table.")]
IdsArgument = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Their ids, as `ls` shows them.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them, or all of --sink and --table.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say which they are, and change nothing.")]


@app.command("ls")
def ls(config: ConfigArgument, sink: SinkOption = None, table: TableOption = None, json: JsonOption = False) -> None:
    """List dead letters: which record, and why the target refused it."""
    _, store = _open(config)
    found = list(store.letters(sink=sink, table=table))
    if json:
        for stored in found:
            letter = stored.letter
            output.emit(
                {
                    "id": stored.id,
                    "sink": letter.sink,
                    "table": letter.table,
                    "key": letter.key,
                    "reason": letter.reason,
                }
            )
        return
    if not found:
        output.line("there are no dead letters")
        return
    rows = ((one.id, one.letter.sink, one.letter.table, one.letter.key, one.letter.reason) for one in found)
    output.table(("id", "sink", "table", "key", "reason"), rows)


@app.command()
def show(config: ConfigArgument, id_: Annotated[str, typer.Argument(metavar="ID")]) -> None:
    """Print one dead letter with its record, as JSON."""
    from penstock.formats import json_rows
    from penstock.model.batch import ChangeBatch

    _, store = _open(config)
    letter = store.letter(id_).letter
    facts: dict[str, object] = {"id": id_, "sink": letter.sink, "table": letter.table, "reason": letter.reason}
    try:
        facts["record"] = json_rows.objects(ChangeBatch(letter.schema, 1, letter.row))[0]
    except CorruptLog:
        # Nobody can say what it says; its bytes may help whoever looks for the cause.
        facts["row"] = letter.row.hex()
    output.emit(facts)


@app.command()
def replay(
    config: ConfigArgument,
    ids: IdsArgument = None,
    everything: AllOption = False,
    sink: SinkOption = None,
    table: TableOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Deliver dead letters again; those that the target takes now are forgotten.

    Those of the fold go back to the pipeline, which folds them with its next batch.
    """
    from penstock.deliver.choice import make_sinks
    from penstock.pipeline.checkpoint import REPLAYED
    from penstock.pipeline.dead_letters import FOLD, give_back
    from penstock.pipeline.dead_letters import replay as deliver
    from penstock.system.clock import SystemClock

    settings, store = _open(config)
    chosen = _chosen(store, ids, everything, sink, table)
    if dry_run:
        _tell(chosen, "replayed", json=json)
        return
    if unfolded := [stored for stored in chosen if stored.letter.sink == FOLD]:
        count = give_back(store, unfolded, settings.pipeline.checkpoint_directory / REPLAYED)
        if json:
            output.emit({"sink": FOLD, "given_back": count})
        else:
            output.line(f"{FOLD}: {count:,} given back to the pipeline, for its next batch")
    if len(unfolded) == len(chosen):
        return
    needs.for_replay(settings)
    for target in make_sinks(settings):
        mine = [stored for stored in chosen if stored.letter.sink == target.name]
        if not mine:
            continue
        target.keep_in(settings.pipeline.checkpoint_directory / "sinks" / target.name, settings.pipeline.name)
        target.check()
        done = deliver(store, target, mine, pipeline=settings.pipeline.name, now_us=SystemClock().now_us())
        if json:
            output.emit({"sink": target.name, "delivered": done.delivered, "refused": done.refused})
        else:
            output.line(f"{target.name}: {done.delivered:,} delivered, {done.refused:,} refused again")


@app.command()
def remove(
    config: ConfigArgument,
    ids: IdsArgument = None,
    everything: AllOption = False,
    sink: SinkOption = None,
    table: TableOption = None,
    dry_run: DryRunOption = False,
    json: JsonOption = False,
) -> None:
    """Forget dead letters for good."""
    _, store = _open(config)
    chosen = _chosen(store, ids, everything, sink, table)
    if dry_run:
        _tell(chosen, "removed", json=json)
        return
    count = store.remove([stored.id for stored in chosen])
    if json:
        output.emit({"removed": count})
    else:
        output.line(f"{output.count(count, 'dead letter')} removed")


def _tell(chosen: list[StoredLetter], verb: str, *, json: bool) -> None:
    """Say which letters would be dealt with."""
    for stored in chosen:
        if json:
            output.emit({"id": stored.id, "sink": stored.letter.sink, "table": stored.letter.table})
        else:
            output.line(f"{stored.id}: of {stored.letter.sink}, would be {verb}")


def _open(config: str) -> tuple[Settings, DeadLetterStore]:
    from penstock.pipeline.dead_letters import DeadLetterStore

    settings = load_settings(config)
    where = settings.pipeline
    return settings, DeadLetterStore(where.dead_letter_directory or where.checkpoint_directory / "dead-letters")


def _chosen(
    store: DeadLetterStore, ids: list[str] | None, everything: bool, sink: str | None, table: str | None
) -> list[StoredLetter]:
    if bool(ids) == everything:
        raise InvalidInput("name the letters by their ids, or say --all")
    if ids:
        return [store.letter(id_) for id_ in ids]
    return list(store.letters(sink=sink, table=table))
