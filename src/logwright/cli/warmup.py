"""`logwright warmup`: compile every kernel ahead of its first use."""

from __future__ import annotations

import click


@click.command("warmup")
def command() -> int:
    """Compile all kernels into this user's cache."""
    from logwright.codec.warmup import warmup

    for name, seconds in warmup():
        click.echo(f"{name}  {seconds:.2f} s", err=True)
    return 0
