"""A master, its slaves and a name server, in this process, on loopback sockets."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from firearrow.broker.server import Broker
from firearrow.broker.settings import BrokerSettings
from firearrow.ha.factory import create_replication
from firearrow.ha.static.master import HaMaster
from firearrow.ha.static.slave import HaSlave
from firearrow.namesrv.server import NameServer
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings
from tests.support.ports import reserve_port
from tests.support.waiting import until

SEGMENT = 1024 * 1024


@contextlib.asynccontextmanager
async def name_server() -> AsyncIterator[NameServer]:
    server = NameServer(NamesrvSettings(bind_address="127.0.0.1", listen_port=0, kv_config_path=""))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def make(
    directory: Path, names: NameServer, *, store: dict[str, Any] | None = None, ahead_ms: int = 0, **settings: Any
) -> Broker:
    """Create a broker whose clock is `ahead_ms` fast."""
    settings = {"listen_port": 0, "slave_sync_interval": 100, "ha_send_heartbeat_interval": 200} | settings
    broker_settings = BrokerSettings(broker_name="broker-a", bind_address="127.0.0.1", **settings)
    store_settings = StoreSettings(
        store_path_root_dir=str(directory),
        **{
            "flush_disk_type": "ASYNC_FLUSH", "mapped_file_size_commit_log": SEGMENT, "max_hash_slot_num": 1000,
            "max_index_num": 4000, **(store or {}),
        },
    )  # fmt: skip
    broker_settings.check()
    return Broker(
        broker_settings,
        store_settings,
        namesrv_addrs=[names.address],
        replication=create_replication,
        now_ms=lambda: time.time_ns() // 1_000_000 + ahead_ms,
    )


@contextlib.asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def master(directory: Path, names: NameServer, **settings: Any) -> contextlib.AbstractAsyncContextManager[Broker]:
    return running(make(directory, names, **settings))


def slave(directory: Path, names: NameServer, **settings: Any) -> contextlib.AbstractAsyncContextManager[Broker]:
    return running(make(directory, names, broker_role="SLAVE", broker_id=settings.pop("broker_id", 1), **settings))


def fixed_ports() -> dict[str, int]:
    """Return the ports of a broker that is started again at its addresses."""
    port = reserve_port(-2, 1)
    return {"listen_port": port, "ha_listen_port": port + 1}


def ha_of_master(broker: Broker) -> HaMaster:
    assert isinstance(broker.replication, HaMaster)
    return broker.replication


def ha_of_slave(broker: Broker) -> HaSlave:
    assert isinstance(broker.replication, HaSlave)
    return broker.replication


async def in_step(one: Broker, other: Broker) -> None:
    """Wait until the slave has, and shows, everything that its master has."""
    await until(lambda: other.context.store.confirm_offset == one.context.store.max_offset == one.context.store.confirm_offset)


def log_bytes(broker: Broker) -> bytes:
    store = broker.context.store
    pieces, offset = [], store.min_offset
    while offset < store.max_offset:
        data = store.read_log(offset, min(65536, store.max_offset - offset))
        pieces.append(data)
        offset += len(data)
    return b"".join(pieces)
