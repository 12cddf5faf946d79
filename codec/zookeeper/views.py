"""The views of a data directory: which files are read for them, and how their rows become one."""

from __future__ import annotations

from collections.abc import Sequence

from logwright.codec.layout import Group, Listing, Part, Plan, Role, View
from logwright.codec.option import Options
from logwright.codec.zookeeper import snapshot, txnlog

LOG, SNAPSHOT = txnlog.CODEC.name, snapshot.CODEC.name
VIEWS = {
    view.name: view
    for view in (
        View(
            "txns", LOG, "rows", "every transaction of the logs, in the order in which a server applies them"
        ),
    )
}


def parts(listing: Listing, plan: Plan, view: str, options: Options) -> Sequence[Part | Group]:
    """See `codec.layout.Layout.parts`."""
    return [
        Part(file.name, LOG, "rows", file.hints)
        for file in plan.files
        if file.role is Role.PRIMARY and file.codec == LOG
    ]
