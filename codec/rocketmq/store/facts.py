"""Facts for `inspect` from the headers of the messages in the commit log. No message is decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from logwright.codec.frames.codec import Part
from logwright.codec.frames.walk import frames_of
from logwright.codec.rocketmq.formats.commitlog.codec import CODEC
from logwright.codec.rocketmq.formats.commitlog.read import store_timestamps
from logwright.codec.store.listing import Listing, Plan, Role
from logwright.codec.table import moment


def facts(listing: Listing, plan: Plan) -> Mapping[str, Any]:
    """See `codec.layout.Layout.facts`."""
    messages = 0
    offsets: list[int] = []
    times: list[int] = []
    logs = [file for file in plan.files if file.role is Role.PRIMARY]
    for _, windows in frames_of(listing, logs, CODEC, check=False):
        for window, frames in windows:
            part = Part.main(window, frames)
            if len(part):
                messages += len(part)
                stored = store_timestamps(part)
                times += [int(stored.min()), int(stored.max())]
                offsets += [int(part.head["physical_offset"].min()), int(part.head["physical_offset"].max())]
    return {
        "messages": messages,
        "physical_offset": [min(offsets), max(offsets)] if offsets else None,
        "store_timestamp": [moment(min(times)), moment(max(times))] if times else None,
    }
