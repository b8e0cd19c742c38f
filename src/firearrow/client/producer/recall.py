"""Recall handles of delayed messages (370).

The result of a send contains the handle: URL-safe Base64 of `v1 <topic> <broker name> <deliver ms> <message id>`.
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
            raise InvalidMessageError(f"the recall handle {handle!r} has version {version!r}, expected v1")
        return RecallTarget(topic, broker_name, int(deliver_ms), msg_id)
    except InvalidMessageError:
        raise
    except (ValueError, binascii.Error):
        raise InvalidMessageError(
            f"{handle!r} is not a recall handle: pass the `recall_handle` of the result of a delayed message"
        ) from None
