"""`logwright damage`: a copy with damage on purpose."""

from __future__ import annotations

import click

_HELP = {"help_option_names": ["-h", "--help"]}


@click.command("damage", context_settings=_HELP)
@click.argument("path")
@click.option("--op", "operations", multiple=True, metavar="OPERATION", help="What to do; several, in order.")
@click.option(
    "-o", "--out", required=True, metavar="DIR", help="Gets the copy and damage.json: absent or empty."
)
@click.option("--seed", default="0", show_default=True, help="Of what chance chooses.")
@click.option("--count", default="0", metavar="N", help="So many more operations, chosen by chance.")
@click.option(
    "--apply", "record", metavar="FILE", help="Do again what a damage.json says, to the same files."
)
@click.option("--codec", help="What it is, when the name and the bytes don't tell; see `logwright codecs`.")
@click.option("--json", "as_json", is_flag=True, help="What damage.json holds, on standard output.")
def command(
    path: str,
    operations: tuple[str, ...],
    out: str,
    seed: str,
    count: str,
    record: str | None,
    codec: str | None,
    as_json: bool,
) -> int:
    """Copy the file or directory PATH to DIR with damage on purpose; PATH itself is only read.

    DIR/damage.json tells what was done, which rows must still be read, and what the real system would do.

    \b
    flip:at=1234,bit=3                      or mask=0x81
    zero:at=100,length=64                   drop:..., duplicate:...,times=2
    write:at=100,hex=00ff                   insert:at=end,zeros=100; text=..., random=N
    cut:at=586                              the file ends there
    reorder:frames=2..4,order=4/2/3         back to front without order
    set:frame=3,field=records_count,value=7,reseal
    set:frame=3,record=0,field=key,hex=00ff add=1, text=..., null
    remove:file=*.index                     rename:file=A,to=B; copy:...; create:file=A,text=...

    file= is a name, a pattern, first or last (the default) of the primary files. frame=, record=, header=, entry= and field=
    choose what at= and length= count in, from the end with negative numbers. reseal makes lengths and checksums right again
    around the damage. Places refer to the bytes as they are when an operation runs.
    """
    import logwright as lw
    from logwright.cli.common import print_json

    made = lw.damage(path, out, list(operations), codec=codec, seed=seed, count=count, apply=record)
    if as_json:
        print_json(made.manifest)
        return 0
    found = made.manifest["verdict"]["verify"]
    expected = made.manifest["expected"]
    click.echo(
        f"{made.path}: {_count(len(made.operations), 'operation')}, told in {made.manifest_path}", err=True
    )
    if found is not None:
        touched = _count(expected["frames_touched"], "frame")
        untouched = f"{_count(expected['rows'], 'row')} of {_count(expected['frames'], 'frame')}"
        faults = _count(found["faults_total"], "fault")
        click.echo(f"untouched: {untouched}; touched: {touched}; verify finds {faults}", err=True)
    return 0


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
