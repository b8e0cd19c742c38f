"""Message ids made by producers: unique in the process and, by address, process id and seed, everywhere.

A forked process uses its own process id and seed, so that it does not repeat the ids of its parent.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from firearrow.clock import wall_ms
from firearrow.net.address import advertised_ip
from firearrow.wire.message_ids import UniqueKeys

_generators: dict[str, UniqueKeys] = {}


def id_generator(ip: str) -> Callable[[int], str]:
    """Return the function that makes a new id for a time in ms. It is not valid after a fork."""
    found = _generators.get(ip)
    if found is None:
        found = _generators[ip] = UniqueKeys(ip, os.getpid(), int.from_bytes(os.urandom(4), "big"))
    return found.next


def next_key(ip: str) -> str:
    return id_generator(ip)(wall_ms())


def own_ip() -> str:
    """Return the address of this machine as seen by others."""
    return advertised_ip("0.0.0.0")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_generators.clear)
