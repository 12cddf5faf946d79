"""`logwright damage`: make a deliberately damaged copy."""

from __future__ import annotations

import click

from logwright.cli.common import ANY_OPTION, CODEC, OwnOptionsCommand, own_options
from logwright.codec import plural


@click.command("damage", cls=OwnOptionsCommand, context_settings=ANY_OPTION)
@click.argument("path")
@click.option(
    "--op", "operations", multiple=True, metavar="OPERATION", help="Operation to apply; may be repeated."
)
@click.option(
    "-o",
    "--out",
    required=True,
    metavar="DIR",
    help="Directory for the copy and damage.json; must be absent or empty.",
)
@click.option("--seed", metavar="N", default="0", show_default=True, help="Random seed for --count.")
@click.option("--count", default="0", metavar="N", help="Add N random operations.")
@click.option(
    "--apply", "record", metavar="FILE", help="Repeat the operations of a damage.json on the same files."
)
@CODEC
@click.option("--json", "as_json", is_flag=True, help="Print damage.json to standard output.")
@click.pass_context
def command(
    ctx: click.Context,
    path: str,
    operations: tuple[str, ...],
    out: str,
    seed: str,
    count: str,
    record: str | None,
    codec: str | None,
    as_json: bool,
) -> int:
    """Write a damaged copy of a file or directory. PATH itself is only read.

    DIR/damage.json records what was done, which rows must still be readable, and what the real system would do.

    \b
    flip:at=1234,bit=3                      or mask=0x81
    zero:at=100,length=64                   drop:..., duplicate:...,times=2
    write:at=100,hex=00ff                   insert:at=end,zeros=100; text=..., random=N
    cut:at=586                              truncate the file here
    reorder:frames=2..4,order=4/2/3         reversed if order is omitted
    set:frame=3,field=records_count,value=7,reseal
    set:frame=3,record=0,field=key,hex=00ff add=1, text=..., null
    remove:file=*.index                     rename:file=A,to=B; copy:...; create:file=A,text=...

    file= is a name, a pattern, or first or last (the default) of the primary files. frame=, record=, header=, entry= and field= select what
    at= and length= count in; negative numbers count from the end. reseal recomputes the lengths and checksums around the damage. Positions
    refer to the bytes at the time when an operation runs. Options of verify are accepted, such as the --passwd that an HMAC needs.
    """
    import logwright as lw
    from logwright.cli.common import print_json

    result = lw.damage(
        path, out, list(operations), codec=codec, seed=seed, count=count, apply=record, **own_options(ctx)
    )
    if as_json:
        print_json(result.manifest)
        return 0
    verdict = result.manifest["verdict"]["verify"]
    expected = result.manifest["expected"]
    click.echo(
        f"{result.path}: {plural.count(len(result.operations), 'operation')}, recorded in {result.manifest_path}",
        err=True,
    )
    if verdict is not None:
        touched = plural.count(expected["frames_touched"], "frame")
        untouched = f"{plural.count(expected['rows'], 'row')} of {plural.count(expected['frames'], 'frame')}"
        listed = verdict["faults"]
        notes = sum(fault["severity"] == "info" for fault in listed)
        faults = plural.count(verdict["faults_total"] - notes, "fault")
        click.echo(f"untouched: {untouched}; touched: {touched}; verify finds {faults}", err=True)
    return 0
