"""Errors of administration, in addition to those of every client."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from firearrow.client.errors import FirearrowError


class AdminError(FirearrowError):
    """The operation is not possible; the text says why and what to do instead."""


class NotFoundError(AdminError):
    """The cluster, broker, topic, group, client or message does not exist."""


def not_found(kind: str, name: str, known: Iterable[str]) -> NotFoundError:
    """Return the error of an unknown name, with the closest known name if one is similar."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return NotFoundError(f"{kind} {name!r} does not exist" + (f"; did you mean {close[0]}?" if close else ""))
