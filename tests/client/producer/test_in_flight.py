"""Sends to brokers that reject, are slow, or are down."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from firearrow.aio import Producer
from firearrow.client.errors import BrokerError, ClientError, ConnectionLost, InvalidMessageError, NoRouteError, RequestTimeout
from firearrow.client.message import Message, MessageQueue, SendStatus
from firearrow.net.server import Connection
from firearrow.wire.frame import Command
from firearrow.wire.properties import parse
from tests.client.fake_broker import FakeBroker, cut, nothing, route_to
from tests.support.ports import reserve_port
from tests.support.waiting import run


@contextlib.asynccontextmanager
async def brokers(count: int = 2, **producer: Any) -> AsyncIterator[tuple[Producer, list[FakeBroker]]]:
    """The first broker is the name server, too."""
    all_of_them = [await FakeBroker(f"broker-{letter}").start(reserve_port()) for letter in "abc"[:count]]
    all_of_them[0].route = route_to(*all_of_them)
    try:
        async with Producer(all_of_them[0].address, **producer) as client:
            yield client, all_of_them
    finally:
        for broker in all_of_them:
            await broker.stop()


def queue_of(broker: FakeBroker) -> MessageQueue:
    return MessageQueue("T", broker.name, 0)


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_retryable_codes_move_to_another_broker(code: int) -> None:
    async def story() -> None:
        async with brokers() as (producer, (a, b)):
            a.answers.append(code)
            b.answers.append(code)  # whichever is first refuses; the third attempt is the first one's second
            result = await producer.send(Message("T", b"x"))
            assert result.status is SendStatus.OK
            assert sorted((len(a.sends), len(b.sends))) == [1, 2]
            assert len({parse(c.ext["i"])["UNIQ_KEY"] for c in a.sends + b.sends}) == 1  # the same message all the time

    run(story())


@pytest.mark.parametrize("code", [13, 29, 604])
def test_other_codes_fail_the_send(code: int) -> None:
    async def story() -> None:
        async with brokers() as (producer, (a, b)):
            a.answers.append(code)
            b.answers.append(code)
            with pytest.raises(BrokerError, match="as the test says") as caught:
                await producer.send(Message("T", b"x"))
            assert caught.value.code == code
            assert caught.value.address in (a.address, b.address)
            assert len(a.sends + b.sends) == 1

    run(story())


def test_the_number_of_attempts_is_limited() -> None:
    async def story() -> None:
        async with brokers(1, retries=3) as (producer, (a,)):
            a.answers.extend([2] * 10)
            with pytest.raises(BrokerError) as caught:
                await producer.send(Message("T", b"x"))
            assert len(a.sends) == 4
            assert caught.value.__notes__ == ["attempt 4 of this send; see `retries`"]

    run(story())


@pytest.mark.parametrize(
    ("code", "status"), [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")]
)
def test_less_durable_status_is_a_result_unless_retry_unless_ok(code: int, status: str) -> None:
    async def story() -> None:
        async with brokers(1) as (producer, (a,)):
            a.answers.append(code)
            assert (await producer.send(Message("T", b"x"))).status.value == status
        async with brokers(1, retry_unless_ok=True) as (producer, (a,)):
            a.answers.append(code)
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
            assert len(a.sends) == 2

    run(story())


def test_dead_broker_is_avoided_and_its_error_raised_for_a_fixed_queue() -> None:
    async def story() -> None:
        async with brokers() as (producer, (a, b)):
            await b.stop()
            for _ in range(4):
                assert (await producer.send(Message("T", b"x"))).queue == queue_of(a)
            with pytest.raises(ConnectionLost, match=b.address):
                await producer.send(Message("T", b"x"), queue=queue_of(b))

    run(story())


@pytest.mark.parametrize("count", [1, 2])
def test_send_backs_off_and_retries_while_all_brokers_are_down(count: int) -> None:
    async def story() -> None:
        async with brokers(count, retries=0) as (producer, all_of_them):
            await producer.send(Message("T", b"x"))
            ports = [int(broker.address.rpartition(":")[2]) for broker in all_of_them]
            for broker in all_of_them:
                await broker.stop()
            sending = asyncio.ensure_future(producer.send(Message("T", b"after the restart"), timeout=30))
            await asyncio.sleep(0.3)  # several attempts fail
            assert not sending.done()
            for broker, port in zip(all_of_them, ports, strict=True):
                await broker.start(port)
            assert (await sending).status is SendStatus.OK

    run(story())


def test_send_fails_with_the_connection_error_when_the_timeout_ends_before_a_broker_returns() -> None:
    async def story() -> None:
        async with brokers(1) as (producer, (a,)):
            await producer.send(Message("T", b"x"))
            await a.stop()
            began = asyncio.get_running_loop().time()
            with pytest.raises(ConnectionLost, match=a.address):
                await producer.send(Message("T", b"x"), timeout=0.4)
            assert asyncio.get_running_loop().time() - began >= 0.39

    run(story())


def test_a_connection_cut_before_the_answer_is_made_again() -> None:
    async def story() -> None:
        async with brokers(1) as (producer, (a,)):
            a.answers.append(cut)
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
            assert len(a.sends) == 2

    run(story())


def test_a_chosen_queue_is_not_tried_twice() -> None:
    async def story() -> None:
        async with brokers() as (producer, (a, b)):
            a.answers.append(2)
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"), queue=queue_of(a))
            assert len(a.sends) == 1
            assert b.sends == []

    run(story())


def test_the_time_is_for_all_attempts_and_the_error_says_that_it_may_be_stored() -> None:
    async def story() -> None:
        async with brokers(1) as (producer, (a,)):
            a.answers.extend([nothing] * 3)
            with pytest.raises(RequestTimeout, match="may have been stored"):
                await producer.send(Message("T", b"x"), timeout=1)
            assert len(a.sends) == 1

    run(story())


def test_with_a_time_for_each_attempt_a_mute_broker_costs_only_that() -> None:
    async def story() -> None:
        async with brokers(2, attempt_timeout=0.5) as (producer, (a, b)):
            a.answers.append(nothing)
            b.answers.append(nothing)
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
            assert len(a.sends + b.sends) == 3

    run(story())


def test_go_away_means_a_new_connection_and_once_more() -> None:
    async def story() -> None:
        async with brokers(1, retries=0) as (producer, (a,)):
            await producer.send(Message("T", b"x"))
            before = list(a.conns)
            a.answers.append(1500)
            assert (await producer.send(Message("T", b"y"))).status is SendStatus.OK
            assert [c.body for c in a.sends] == [b"x", b"y", b"y"]
            assert any(conn not in before for conn in a.conns)
            a.answers.extend([1500, 1500])
            with pytest.raises(BrokerError) as caught:
                await producer.send(Message("T", b"z"))
            assert caught.value.code == 1500

    run(story())


def test_slow_brokers_are_avoided() -> None:
    async def story() -> None:
        async with brokers(2, latency_fault=True) as (producer, (_, b)):

            def slowly(conn: Connection, command: Command) -> None:
                asyncio.get_running_loop().call_later(0.6, b.store, conn, command)

            b.answers.append(slowly)
            for _ in range(6):
                await producer.send(Message("T", b"x"))
            assert len(b.sends) == 1

    run(story())


def test_sends_beyond_the_limit_wait_in_order() -> None:
    async def story() -> None:
        async with brokers(1, max_in_flight=10) as (producer, (a,)):
            most = 0

            def count(conn: Connection, command: Command) -> None:
                nonlocal most
                most = max(most, waiting := len(held) + 1)
                held.append(command)
                if waiting == 1:
                    asyncio.get_running_loop().call_later(0.005, release, conn)

            def release(conn: Connection) -> None:
                for command in held:
                    a.store(conn, command)
                held.clear()

            held: list[Command] = []
            a.answers.extend([count] * 100)
            futures = [producer.send_nowait(Message("T", b"%d" % n)) for n in range(100)]
            results = await asyncio.gather(*futures)
            assert most == 10
            assert [c.body for c in a.sends] == [b"%d" % n for n in range(100)]
            assert [r.queue_offset for r in results] == list(range(100))

    run(story())


def test_wait_for_capacity_bounds_the_sends_in_flight() -> None:
    async def story() -> None:
        async with brokers(1, max_in_flight=8) as (producer, (a,)):
            for n in range(200):
                await producer.wait_for_capacity()
                producer.send_nowait(Message("T", b"%d" % n)).add_done_callback(lambda _: None)
                assert n - a.stored <= 16
        assert a.stored == 200  # closing waits for what is under way

    run(story())


def test_cancelled_send_frees_capacity() -> None:
    async def story() -> None:
        async with brokers(1, max_in_flight=1) as (producer, (a,)):
            await producer.send(Message("T", b"first"))
            a.answers.append(nothing)
            mute = producer.send_nowait(Message("T", b"mute"), timeout=0.2)
            behind = producer.send_nowait(Message("T", b"behind"))
            mute.cancel()
            assert (await behind).status is SendStatus.OK

    run(story())


def test_waiting_sends_fail_after_their_timeout() -> None:
    async def story() -> None:
        async with brokers(1, max_in_flight=1) as (producer, (a,)):
            await producer.send(Message("T", b"x"))
            a.answers.append(nothing)
            mute = producer.send_nowait(Message("T", b"mute"), timeout=0.5)
            sends = [producer.send_nowait(Message("T", b"x"), timeout=0.001) for _ in range(1_000)]
            results = await asyncio.gather(*sends, mute, return_exceptions=True)
            results.pop()
            assert {type(result) for result in results} == {RequestTimeout}

    run(story())


def test_an_unknown_topic_goes_by_the_route_of_the_template() -> None:
    async def story() -> None:
        async with brokers(1) as (producer, (a,)):
            result = await producer.send(Message("missing-topic", b"x"))
            assert result.queue == MessageQueue("missing-topic", "broker-a", 0)
            asked = [c.ext["topic"] for c in a.seen if c.code == 105]
            assert asked == ["missing-topic", "TBW102"]
            assert [(c.ext["b"], c.ext["c"], c.ext["d"]) for c in a.sends] == [("missing-topic", "TBW102", "4")]

    run(story())


def test_missing_name_server_and_missing_broker_have_different_errors() -> None:
    async def story() -> None:
        gone = await FakeBroker().start()
        address = gone.address
        await gone.stop()
        async with Producer(address) as producer:
            with pytest.raises(NoRouteError, match=f"no name server of {address} answers"):
                await producer.send(Message("T", b"x"))
        async with brokers(1) as (producer, (a,)):
            a.route = route_to(a, perm=4)
            with pytest.raises(ClientError, match="the topic 'T' has no writable queue"):
                await producer.send(Message("T", b"x"))

    run(story())


def test_a_second_name_server_is_asked_when_the_first_is_gone() -> None:
    async def story() -> None:
        gone = await FakeBroker().start()
        address = gone.address
        await gone.stop()
        here = await FakeBroker().start()
        for servers in (f"{address};{here.address}", [here.address, address]):
            async with Producer(servers) as producer:
                assert (await producer.send(Message("T", b"x"))).status is SendStatus.OK
        await here.stop()

    run(story())


def test_when_a_broker_moves_its_messages_follow() -> None:
    async def story() -> None:
        async with brokers(1, retries=10) as (producer, (a,)):
            await producer.send(Message("T", b"before"))
            moved = await FakeBroker("broker-a").start()
            a.route = route_to(moved)
            a.answers.extend([14] * 20)  # the old one is no longer a master
            assert (await producer.send(Message("T", b"after"))).status is SendStatus.OK
            assert [c.body for c in moved.sends] == [b"after"]
            await moved.stop()

    run(story())


def test_the_queues_of_an_ordered_topic_are_those_of_its_configuration() -> None:
    async def story() -> None:
        async with brokers(2) as (producer, (a, b)):
            a.route = route_to(a, b, order="broker-b:3")
            assert await producer.queues("T") == [MessageQueue("T", "broker-b", n) for n in range(3)]
            with pytest.raises(InvalidMessageError, match="is not a writable queue of the topic"):
                await producer.send(Message("T", b"x"), queue=queue_of(a))

    run(story())


def test_malformed_responses_are_errors() -> None:
    async def story() -> None:
        async with brokers(1, retries=0) as (producer, (a,)):
            from firearrow.wire.frame import encode_response

            a.answers.append(lambda conn, command: conn.write(encode_response(command, 0, None, {"msgId": "1"})))
            with pytest.raises(ClientError, match="unknown position"):
                await producer.send(Message("T", b"x"))

    run(story())


def test_message_that_cannot_be_encoded_fails_alone() -> None:
    async def story() -> None:
        async with brokers(1, max_in_flight=1) as (producer, (a,)):
            await producer.send(Message("T", b"x"))
            for bad in (Message("T", b"x", tags="\ud800"), Message("T", b"x", flag="seven")):  # type: ignore[arg-type]
                with pytest.raises(InvalidMessageError, match="cannot be encoded"):
                    await producer.send(bad)
            assert (await producer.send(Message("T", b"y"))).status is SendStatus.OK
            assert len(a.sends) == 2

    run(story())


def test_the_time_counts_while_dialling_and_asking_for_routes() -> None:
    async def story() -> None:
        with socket.socket() as full:  # its backlog is full: nobody is refused, nobody is accepted
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            address = f"127.0.0.1:{full.getsockname()[1]}"
            fillers = [await asyncio.open_connection("127.0.0.1", full.getsockname()[1])]
            loop = asyncio.get_running_loop()
            async with Producer(address, send_timeout=0.1) as producer:
                began = loop.time()
                with pytest.raises(RequestTimeout, match=r"no route to the topic 'T' from .* in time"):
                    await producer.send(Message("T", b"x"))
                assert loop.time() - began < 2.5  # the timeout of a connection is 3 s
            async with brokers(1) as (producer, (a,)):
                a.route = route_to(a)
                a.route["brokerDatas"][0]["brokerAddrs"]["0"] = address
                began = loop.time()
                with pytest.raises(RequestTimeout, match="was not sent"):
                    await producer.send(Message("T", b"x"), timeout=0.1)
                assert loop.time() - began < 2.5
            for _, writer in fillers:
                writer.close()

    run(story())
