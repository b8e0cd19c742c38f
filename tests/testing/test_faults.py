"""Injected network faults."""

from __future__ import annotations

import time

import pytest

import firearrow as fa
from firearrow.testing import Cluster
from firearrow.wire.codes import RequestCode
from tests.testing.kit import bodies

SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


def test_client_reconnects_after_a_cut(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        producer.send(fa.Message("Orders", b"1"))
        assert firearrow_broker.faults.cut("broker-a") >= 1
        producer.send(fa.Message("Orders", b"2"))
        assert firearrow_broker.faults.cut() >= 1
        producer.send(fa.Message("Orders", b"3"))
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"2", b"3"]


def test_half_a_request_is_not_served(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        producer.send(fa.Message("Orders", b"1"))
        firearrow_broker.faults.half_frame(codes=SENDS)
        producer.send(fa.Message("Orders", b"2"))
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"2"]


def test_half_a_response_leads_to_a_repeated_message(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        producer.send(fa.Message("Orders", b"1"))
        firearrow_broker.faults.half_frame("broker-a", towards="client")
        producer.send(fa.Message("Orders", b"2"))
    messages = firearrow_broker.messages("Orders")
    assert bodies(messages) == [b"1", b"2", b"2"]
    assert messages[1].msg_id == messages[2].msg_id


def test_duplicated_requests_are_stored_twice(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        firearrow_broker.faults.duplicate(2, codes=SENDS)
        for number in range(3):
            producer.send(fa.Message("Orders", b"%d" % number))
    assert sorted(bodies(firearrow_broker.messages("Orders"))) == [b"0", b"0", b"1", b"1", b"2"]


def test_lost_request_times_out(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer(retries=0, send_timeout=0.1) as producer:
        producer.send(fa.Message("Orders", b"1"), timeout=30)
        firearrow_broker.faults.lose(codes=SENDS)
        with pytest.raises(fa.RequestTimeout):
            producer.send(fa.Message("Orders", b"2"))
        producer.send(fa.Message("Orders", b"3"), timeout=30)
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"3"]


def test_delayed_responses(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer(retries=0) as producer:
        producer.send(fa.Message("Orders", b"1"))
        firearrow_broker.faults.delay(80, "broker-a", towards="client")
        begun = time.perf_counter()
        producer.send(fa.Message("Orders", b"2"))
        assert time.perf_counter() - begun >= 0.075
        with pytest.raises(fa.RequestTimeout):
            producer.send(fa.Message("Orders", b"3"), timeout=0.02)
        firearrow_broker.faults.clear()
        producer.send(fa.Message("Orders", b"4"))
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"2", b"3", b"4"]


def test_refused_connections(firearrow_broker: Cluster) -> None:
    firearrow_broker.faults.refuse("broker-a")
    with firearrow_broker.producer(send_timeout=0.3) as producer:
        with pytest.raises(fa.FirearrowError):
            producer.send(fa.Message("Orders", b"1"))
        firearrow_broker.faults.clear()
        producer.send(fa.Message("Orders", b"2"), timeout=30)
    assert bodies(firearrow_broker.messages("Orders")) == [b"2"]


def test_faults_survive_a_restart(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer() as producer:
        producer.send(fa.Message("Orders", b"1"))
        firearrow_broker.faults.duplicate(codes=SENDS)
        firearrow_broker.brokers[0].kill()
        firearrow_broker.brokers[0].start()
        producer.send(fa.Message("Orders", b"2"))
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"2", b"2"]


def test_full_disk_is_noticed_within_ten_seconds(firearrow_broker: Cluster) -> None:
    with firearrow_broker.producer(send_timeout=0.5) as producer:
        producer.send(fa.Message("Orders", b"1"), timeout=30)
        firearrow_broker.brokers[0].disk.used_percent = 95
        firearrow_broker.clock.advance(seconds=10)
        with pytest.raises(fa.FirearrowError, match="full"):
            producer.send(fa.Message("Orders", b"2"))
        firearrow_broker.brokers[0].disk.used_percent = 10
        firearrow_broker.clock.advance(seconds=10)
        producer.send(fa.Message("Orders", b"3"), timeout=30)
    assert bodies(firearrow_broker.messages("Orders")) == [b"1", b"3"]


def test_faults_before_the_start_are_rejected() -> None:
    with pytest.raises(RuntimeError, match="not running"):
        Cluster().faults.cut()
