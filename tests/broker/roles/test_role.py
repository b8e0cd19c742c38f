"""The role of a broker: its initial value, and the handlers of a slave and a follower."""

from __future__ import annotations

from pathlib import Path

from firearrow.broker.roles.role import NO_SENDS, RoleState
from firearrow.broker.settings import BrokerSettings
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.running import client
from tests.ha.pairs import make, name_server
from tests.support.waiting import run

PEERS = "n0-h0:1;n1-h1:2;n2-h2:3"


def test_initial_role_is_that_of_the_settings() -> None:
    role = RoleState(BrokerSettings(broker_role="SYNC_MASTER"))
    assert (role.role, role.broker_id, role.is_slave) == ("SYNC_MASTER", 0, False)
    role = RoleState(BrokerSettings(broker_role="SLAVE", broker_id=3))
    assert (role.role, role.broker_id, role.is_slave) == ("SLAVE", 3, True)


def test_member_of_an_elected_group_starts_as_slave() -> None:
    settings = BrokerSettings(enable_d_leger_commit_log=True, d_leger_peers=PEERS, d_leger_self_id="n1")
    role = RoleState(settings)
    assert (role.role, role.broker_id) == ("SLAVE", 2)
    role.change("SYNC_MASTER", 0)
    assert (role.is_slave, role.broker_id) == (False, 0)
    assert (settings.broker_role, settings.broker_id) == ("ASYNC_MASTER", 0)


def test_slave_rejects_requests_that_only_a_master_serves(tmp_path: Path) -> None:
    async def story() -> None:
        async with name_server() as names:
            slave = make(tmp_path, names, broker_role="SLAVE", broker_id=1)
            await slave.start()
            try:
                async with client(slave) as c:
                    send = await c.send("Orders", b"x")
                    assert (send.code, send.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, NO_SENDS)
                    end = await c.call(RequestCode.END_TRANSACTION)
                    assert end.code == ResponseCode.SLAVE_NOT_AVAILABLE
                    create = await c.call(RequestCode.UPDATE_AND_CREATE_TOPIC)
                    assert create.code == ResponseCode.SYSTEM_ERROR
                    read = await c.call(RequestCode.GET_MAX_OFFSET, {"topic": "Orders", "queueId": 0})
                    assert read.code == ResponseCode.SUCCESS
            finally:
                await slave.stop()

    run(story())
