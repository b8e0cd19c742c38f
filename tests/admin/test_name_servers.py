from __future__ import annotations

import asyncio

import pytest

from firearrow.admin import aio
from firearrow.admin.errors import AdminError
from tests.admin.kit import running


def test_change_is_made_on_all_name_servers() -> None:
    async def story() -> None:
        async with running(name_servers=2) as (_, admin):
            configs = await admin.name_server_config()
            assert len(configs) == 2
            await admin.kv_put("n", "k", "wert-ü")
            for address in admin.options.name_servers:
                async with aio.Admin(address) as one:
                    assert await one.kv_get("n", "k") == "wert-ü"
            assert await admin.kv_list("n") == {"k": "wert-ü"}
            await admin.kv_delete("n", "k")
            assert await admin.kv_get("n", "k") is None
            assert await admin.kv_list("nothing") == {}
            await admin.create_topic("T")
            wiped = await admin.wipe_write_permission("broker-a")
            assert all(count > 0 for count in wiped.values())
            assert len(wiped) == 2
            assert [one.perm for one in (await admin.topic_route("T")).queue_counts] == [4]
            await admin.add_write_permission("broker-a")
            assert [one.perm for one in (await admin.topic_route("T")).queue_counts] == [6]

    asyncio.run(story())


def test_order_configuration_is_set_and_deleted() -> None:
    async def story() -> None:
        async with running() as (_, admin):
            await admin.create_topic("T")
            assert await admin.order_config("T") is None
            await admin.set_order_config("T", {"broker-a": 4, "broker:b": 2})
            assert await admin.kv_list("ORDER_TOPIC_CONFIG") == {"T": "broker-a:4;broker:b:2"}
            assert await admin.order_config("T") == {"broker-a": 4, "broker:b": 2}
            for wrong in ({}, {"broker-a": 0}):
                with pytest.raises(AdminError, match="expected brokers"):
                    await admin.set_order_config("T", wrong)
            await admin.kv_put("ORDER_TOPIC_CONFIG", "U", "broker-a")
            with pytest.raises(AdminError, match="'broker-a' is not of the form broker:queues"):
                await admin.order_config("U")
            await admin.delete_order_config("T")
            assert await admin.order_config("T") is None

    asyncio.run(story())
