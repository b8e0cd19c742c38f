"""Taking back a message that waits for its time (370).

The broker gave a handle with the send's result: URL-safe Base64 of `v1 <topic> <broker name> <deliver ms> <message id>`.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from firearrow.client.errors import InvalidMessageError


class RecallTarget(NamedTuple):
    topic: str
    broker_name: str
    deliver_ms: int
    msg_id: str


def parse_recall_handle(handle: str) -> RecallTarget:
    try:
        version, topic, broker_name, deliver_ms, msg_id = base64.urlsafe_b64decode(handle).decode().split(" ")
        if version != "v1":
            raise InvalidMessageError(f"the recall handle {handle!r} is of version {version!r}, expected v1")
        return RecallTarget(topic, broker_name, int(deliver_ms), msg_id)
    except InvalidMessageError:
        raise
    except (ValueError, binascii.Error):
        raise InvalidMessageError(
            f"{handle!r} is no recall handle: expected what `recall_handle` of a delayed message's result says"
        ) from None
