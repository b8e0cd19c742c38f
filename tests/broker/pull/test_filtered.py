"""SQL92 subscriptions over sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.broker.running import SUSPEND, WITH_EXPRESSION, Client, bodies, broker, client
from tests.support.waiting import run, until


async def fill(c: Client, count: int) -> None:
    for number in range(count):
        await c.send("Orders", b"%d" % number, price=str(number), colour="red" if number % 10 == 0 else "blue")


def sql(expression: str, **more: Any) -> dict[str, Any]:
    return {"expression": expression, "expressionType": "SQL92"} | more


def test_pull_returns_selected_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await fill(c, 50)
            answer = await c.pull("Orders", 0, **sql("price BETWEEN 5 AND 7 OR colour = 'red'"))
            assert bodies(answer) == [b"0", b"5", b"6", b"7", b"10", b"20", b"30", b"40"]
            assert answer.ext["nextBeginOffset"] == "50"

    run(story())


def test_full_response_continues_behind_its_last_message(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await fill(c, 100)
            seen: list[bytes] = []
            offset = 0
            for _ in range(20):
                answer = await c.pull("Orders", offset, maxMsgNums=7, **sql("price > 9"))
                offset = int(answer.ext["nextBeginOffset"])
                if answer.code != ResponseCode.SUCCESS:
                    break
                assert len(bodies(answer)) <= 7
                seen += bodies(answer)
            assert seen == [b"%d" % number for number in range(10, 100)]

    run(story())


def test_filter_that_selects_nothing_skips_all_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await fill(c, 40)
            answer = await c.pull("Orders", 0, **sql("price > 1000"))
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "40")
            end = await c.pull("Orders", 40, **sql("price > 1000"))
            assert end.code == ResponseCode.PULL_NOT_FOUND

    run(story())


def test_parked_pull_skips_messages_it_does_not_select(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as consumer, client(running) as producer:
            await fill(producer, 1)
            wish = sql("price = 7", flags=WITH_EXPRESSION | SUSPEND, hold_ms=15_000)
            waiting = asyncio.ensure_future(consumer.pull("Orders", 1, **wish))
            await asyncio.sleep(0)
            await consumer.call(9999)  # answered after the pull was served
            for price in (1, 2, 3):
                await producer.send("Orders", b"x", price=str(price))
            assert not waiting.done()
            await producer.send("Orders", b"seven", price="7")
            answer = await asyncio.wait_for(waiting, 10)
            assert (answer.code, bodies(answer), answer.ext["nextBeginOffset"]) == (ResponseCode.SUCCESS, [b"seven"], "5")

    run(story())


def test_expired_pull_returns_the_offset_behind_the_inspected_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as consumer, client(running) as producer:
            await fill(producer, 1)
            wish = sql("price = 7", flags=WITH_EXPRESSION | SUSPEND, hold_ms=400)
            waiting = asyncio.ensure_future(consumer.pull("Orders", 1, **wish))
            await asyncio.sleep(0)
            await consumer.call(9999)
            await producer.send("Orders", b"x", price="1")
            answer = await waiting
            assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_NOT_FOUND, "2")

    run(story())


def test_invalid_expression_is_rejected_with_its_position(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            await fill(c, 1)
            answer = await c.pull("Orders", 0, **sql("price >"))
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert "character 8" in (answer.remark or "")
            assert await check(c, "price >") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert await check(c, "price > 1") == ResponseCode.SUCCESS

    run(story())


def test_sql_is_rejected_if_property_filters_are_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, enable_property_filter=False) as running, client(running) as c:
            await fill(c, 1)
            answer = await c.pull("Orders", 0, **sql("price > 1"))
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "enablePropertyFilter" in (answer.remark or "")
            assert await check(c, "price > 1") == ResponseCode.SYSTEM_ERROR

    run(story())


async def check(c: Client, expression: str) -> int:
    wanted = {"topic": "Orders", "subString": expression, "expressionType": "SQL92"}
    body = fastjson.dumps({"clientId": "c", "group": "G", "subscriptionData": wanted})
    return (await c.call(RequestCode.CHECK_CLIENT_CONFIG, {}, body)).code


def test_pull_with_an_expensive_filter_inspects_fewer_messages_at_once(tmp_path: Path) -> None:
    """The cost of a pull is bounded: the consumer asks again behind the messages that were inspected."""

    async def story() -> None:
        async with broker(tmp_path) as running, client(running) as c:
            digits = "1" * 10_000
            for _ in range(20):
                await c.send("Orders", b"x", price=digits)
            await c.send("Orders", b"cheap", price="1")
            condition = " OR ".join(["price < 5.5"] + [f"price = {number}.5" for number in range(10, 100)])
            offset, pulls = 0, 0
            while (answer := await c.pull("Orders", offset, **sql(condition))).code == ResponseCode.PULL_RETRY_IMMEDIATELY:
                assert int(answer.ext["nextBeginOffset"]) > offset
                offset, pulls = int(answer.ext["nextBeginOffset"]), pulls + 1
            assert bodies(answer) == [b"cheap"]
            assert pulls > 5

    run(story())


def test_resumed_pull_that_has_not_inspected_all_messages_is_answered(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, store={"max_filter_message_size": 20}) as running, client(running) as c:
            await c.send("Orders", b"x", price="1")
            wish = sql("price = 7", flags=WITH_EXPRESSION | SUSPEND, hold_ms=15_000)
            waiting = asyncio.ensure_future(c.pull("Orders", 1, **wish))
            await until(lambda: running.long_polling.count == 1)
            many = [(0, b"x", b"price\x011\x02")] * 100
            await c.send_batch("Orders", many)
            answer = await asyncio.wait_for(waiting, 10)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert 1 < int(answer.ext["nextBeginOffset"]) < 101

    run(story())
