"""What can go wrong for an operator beside what goes wrong for every client."""

from __future__ import annotations

from firearrow.client.errors import FirearrowError


class AdminError(FirearrowError):
    """What was asked for cannot be done: the text says why, and what can be done instead."""


class NotFoundError(AdminError):
    """There is no such cluster, broker, topic, group, client or message."""
