"""Pulls in bulk: more messages in one answer than a usual consumer gets, for whoever asks for them."""

from __future__ import annotations

from pathlib import Path

from firearrow.wire.codes import ResponseCode
from firearrow.wire.record import decode_all
from tests.broker.running import broker, client
from tests.support.waiting import run


def test_a_pull_in_bulk_gets_as_many_as_it_asks_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running, client(running) as one:
            await one.send_batch("Orders", [(0, b"%d" % number, b"") for number in range(300)])
            usual = await one.pull("Orders", 0, maxMsgNums=1000)
            bulk = await one.pull("Orders", 0, maxMsgNums=1000, bulk="true")
            some = await one.pull("Orders", 10, maxMsgNums=50, bulk="true")
        for answer in (usual, bulk, some):
            assert answer.code == ResponseCode.SUCCESS
        assert len(decode_all(usual.body)) == 32
        assert [record.body for record in decode_all(bulk.body)] == [b"%d" % number for number in range(300)]
        assert bulk.ext["nextBeginOffset"] == "300"
        assert [record.queue_offset for record in decode_all(some.body)] == list(range(10, 60))

    run(scenario())
