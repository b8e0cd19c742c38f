"""The name server with its socket, its clock and the file of its key-value configuration."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from firearrow.auth.acl_v1 import read_accounts
from firearrow.auth.bootstrap import open_table
from firearrow.auth.guarded_service import guarded
from firearrow.clock import monotonic_ms, wall_ms
from firearrow.config.fields import SettingError
from firearrow.namesrv.access import namesrv_rules
from firearrow.namesrv.handlers import NamesrvService
from firearrow.namesrv.kv_config import KvConfig
from firearrow.namesrv.kv_config_file import KvConfigFile
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.address import format_address
from firearrow.net.limits import limits_of
from firearrow.net.server import serve
from firearrow.net.tls import server_tls
from firearrow.store import atomic_file
from firearrow.store.filesystem import RealDisk

_CONNECTION_SHARE = 0.25  # of the file descriptors: a broker may run in the same process

log = logging.getLogger("firearrow.namesrv")


class Served(Protocol):
    port: int

    async def close(self) -> None: ...


class NameServer:
    """`start` opens the port with `listen`, `stop` closes it. `port` is the bound port after `start`, also if 0 is configured."""

    def __init__(self, settings: NamesrvSettings, *, listen: Callable[..., Awaitable[Served]] = serve) -> None:
        self.settings = settings
        self.port = settings.listen_port
        self._listen = listen
        self._listener: Served | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self._service: NamesrvService | None = None
        self._kv_config_file = KvConfigFile(self._save_kv_config)

    @property
    def address(self) -> str:
        """Return the address for clients on this machine: loopback instead of a wildcard address."""
        host = self.settings.bind_address
        return format_address({"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host), self.port)

    async def start(self) -> None:
        settings = self.settings
        table = open_table(settings, RealDisk(), self._auth_directory(), wall_ms, lambda: read_accounts(settings))
        self._service = NamesrvService(
            settings,
            now_ms=monotonic_ms,
            kv_config=self._load_kv_config(),
            save_kv_config=self._kv_config_file.save,
            port=lambda: self.port,
            auth=table,
        )
        self._listener = await self._listen(
            self._service if table is None else guarded(self._service, settings, table, namesrv_rules(), monotonic_ms),
            self.settings.bind_address,
            self.port,
            idle_timeout_ms=self.settings.server_channel_max_idle_time_seconds * 1000,
            tls=server_tls(self.settings),
            limits=limits_of(self.settings, _CONNECTION_SHARE),
        )
        self.port = self._listener.port
        self._tick_later()
        log.info("name server listens on %s", format_address(self.settings.bind_address, self.port))

    async def stop(self) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._listener is not None:
            listener, self._listener = self._listener, None
            await self._kv_config_file.finish()
            await listener.close()

    def _tick_later(self) -> None:
        delay_s = self.settings.scan_not_active_broker_interval / 1000
        self._ticker = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._tick_later()
        if self._service is not None:
            self._service.tick()

    def _auth_directory(self) -> str:
        """Return the directory of users and policies."""
        configured = self.settings.auth_config_path or os.path.dirname(self.settings.kv_config_path)
        if self.settings.authentication_enabled and not configured:
            raise SettingError("authConfigPath", "", "a directory for users and policies: authenticationEnabled is true")
        return configured

    def _load_kv_config(self) -> KvConfig:
        path = self.settings.kv_config_path
        try:
            table = atomic_file.load_table(RealDisk(), path, log.warning) if path else None
            return KvConfig() if table is None else KvConfig.from_json(table)
        except ValueError as error:
            # Starting without it would drop the configuration at the next change.
            raise ValueError(f"the key-value configuration {path} cannot be read: {error}; repair it or move it away") from error

    def _save_kv_config(self, table: dict[str, Any]) -> None:
        path = self.settings.kv_config_path
        if path:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
            atomic_file.save_table(RealDisk(), path, table)
