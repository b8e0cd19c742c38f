"""The admin functions for programs without an event loop: the methods of aio.Admin, each blocking until it is done.

with Admin("127.0.0.1:9876") as admin:
    admin.create_topic("Orders", queues=4)
"""

from __future__ import annotations

from collections.abc import Callable

from firearrow.admin import aio
from firearrow.client.sync.derive import SyncClient, same_constructor


class Admin(aio.AdminMethods, SyncClient[aio.Admin]):
    """Blocking administration client. `name_server` is `host:port;host:port`; the default is NAMESRV_ADDR."""

    @same_constructor(aio.Admin)
    def __init__(self, make: Callable[[], aio.Admin]) -> None:
        super().__init__(make)
