"""`logwright warmup`: compile every kernel ahead of its first use."""

from __future__ import annotations

import click

from logwright.cli.common import progress


@click.command("warmup")
def command() -> int:
    """Compile all kernels into this user's cache.

    This takes a minute or two. Otherwise each kernel is compiled when it is first used.
    """
    from logwright.codec.kernels.disk_cache import cache_place
    from logwright.codec.kernels.kernel import INTERPRETED, compiled_ahead, mode, warmup
    from logwright.codec.warmup import make_kernels

    make_kernels()
    number = 0
    with progress("compile", len(compiled_ahead()), "kernels") as show:
        for number, _ in enumerate(warmup(), 1):
            show(number)
    place = cache_place(mode())
    if mode() == INTERPRETED:
        text = "nothing to compile: NUMBA_DISABLE_JIT is set"
    elif place is None:
        text = f"{number} kernels were compiled for nothing: no cache directory can be written; set LOGWRIGHT_CACHE_DIR"
    else:
        text = f"{number} kernels are compiled in {place}"
    click.echo(text, err=True)
    return 0
