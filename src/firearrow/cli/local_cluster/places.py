"""Ports for the members of a cluster. They are chosen before anything starts: members are told each other's addresses."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterable
from typing import Final

from firearrow.cli.local_cluster.topology import PORTS_OF_A_BROKER, Endpoint
from firearrow.cli.servers.config import PORTS_APART
from firearrow.net.address import bind

# Below the ports that systems give to connections, so that none is taken between our look and the member's start.
_CHOICE: Final = range(20_000, 32_000)
_ATTEMPTS: Final = 200
_IN_USE: Final = (errno.EADDRINUSE, errno.EACCES)


def namesrv_place(host: str, port: int) -> Endpoint:
    return Endpoint(host, port or _free(host, (0,), set()))


def broker_places(host: str, first: int, count: int) -> list[Endpoint]:
    """From the port that was asked for, or for 0 wherever there is room."""
    if first:
        last = first + (count - 1) * PORTS_APART
        if last + max(PORTS_OF_A_BROKER) > 65_535:
            raise ValueError(f"--broker-port {first}: the last of {count} brokers would be on port {last}, without room above it")
        return [Endpoint(host, first + index * PORTS_APART) for index in range(count)]
    taken: set[int] = set()
    return [Endpoint(host, _free(host, PORTS_OF_A_BROKER, taken)) for _ in range(count)]


def _free(host: str, gaps: Iterable[int], taken: set[int]) -> int:
    for _ in range(_ATTEMPTS):
        port = random.choice(_CHOICE)
        wanted = {port + gap for gap in gaps}
        if wanted & taken:
            continue
        with contextlib.ExitStack() as held:
            try:
                for one in wanted:
                    held.enter_context(bind(host, one))
            except OSError as error:
                if error.errno not in _IN_USE:
                    raise
                continue
        taken |= wanted
        return port
    raise OSError(f"found no free ports on {host} in {_ATTEMPTS} attempts; say which with --namesrv-port and --broker-port")
