"""The ids that producers give their messages: unique in this process and, with address, process id and seed, everywhere.

A forked process begins anew, with its own process id and seed; otherwise it would give out the ids of its parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from firearrow.clock import wall_ms
from firearrow.net.address import advertised_ip
from firearrow.wire.message_ids import UniqueKeys

_makers: dict[str, UniqueKeys] = {}


def maker(ip: str) -> Callable[[int], str]:
    """The function that gives a new id for the time in ms. Ask again after a fork."""
    found = _makers.get(ip)
    if found is None:
        found = _makers[ip] = UniqueKeys(ip, os.getpid(), int.from_bytes(os.urandom(4), "big"))
    return found.next


def next_key(ip: str) -> str:
    return maker(ip)(wall_ms())


def own_ip() -> str:
    """This machine's address, as others see it."""
    return advertised_ip("0.0.0.0")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_makers.clear)
