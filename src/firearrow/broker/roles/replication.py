"""Interface between the broker and replication, which package `ha` implements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from firearrow.broker.context import BrokerContext
from firearrow.broker.send.group_commit import GroupCommit
from firearrow.broker.tables.persistence import ConfigFiles
from firearrow.net.server import Connection
from firearrow.wire.bodies.admin import HARuntimeInfo
from firearrow.wire.frame import Command


@dataclass(frozen=True, slots=True)
class ReplicationHost:
    """The broker as replication sees it. The callbacks are for elected groups."""

    context: BrokerContext
    commit: GroupCommit
    config: ConfigFiles
    now_ms: Callable[[], int]
    lead: Callable[[int], None]  # (term): this broker is the master from now on
    follow: Callable[[str], None]  # (reason): it is no longer
    serve: Callable[[Connection, Command], None]  # serve a request as if it had just been received
    set_proxy: Callable[[bool], None]  # register as a proxy of the leader (proxy_registration.py), or unregister
    pause: Callable[[bool], None]  # stop accepting sends, or accept them again


Forward = Callable[[Connection, Command], None]


class Replication(Protocol):
    """Replication of the log, as the broker sees it."""

    ha_address: str | None  # host:port that slaves connect to; None: as the settings say
    forward: Forward | None  # forwards a request to the master; None: reject it

    async def start(self) -> None:
        """Called when the broker's ports are open, before it is registered."""

    async def hand_over(self) -> None:
        """Let another member take over before this broker stops."""

    async def stop(self, *, abruptly: bool = False) -> None: ...

    def registered(self, ha_address: str | None, master_address: str | None) -> None:
        """Take the addresses of the master that a name server reports."""

    def tick(self, now_ms: int) -> None: ...

    @property
    def master_alive(self) -> bool:
        """True on a master, and on a slave that is connected to its master."""

    def status(self) -> HARuntimeInfo: ...


MakeReplication = Callable[[ReplicationHost], Replication]
