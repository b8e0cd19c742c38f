"""Errors of the client."""

from __future__ import annotations

from firearrow.client.errors import BrokerError, NoRouteError, RequestTimeout, code_name


def test_broker_error_names_address_code_and_remark() -> None:
    assert str(BrokerError(17, "no topic", "1:1")) == "1:1 refused with 17 TOPIC_NOT_EXIST: no topic"
    assert str(BrokerError(9999, None, "1:1")) == "1:1 refused with 9999: no reason given"
    assert code_name(0) == "0 SUCCESS"


def test_no_route_error_suggests_a_remedy() -> None:
    assert "autoCreateTopicEnable" in str(NoRouteError("T"))
    assert "check the addresses" in str(NoRouteError("T", "down", asked=False))


def test_request_timeout_is_a_timeout_error() -> None:
    assert issubclass(RequestTimeout, TimeoutError)
