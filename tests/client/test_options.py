"""Options of all clients: name servers, durations, validation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import firearrow as fa
from firearrow.client.options import ClientKeywords, client_options, milliseconds, seconds


def test_name_servers_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("a:1", "b:2")
    assert client_options("a:1;b:2").name_servers == wanted
    assert client_options(" a:1 ; b:2;").name_servers == wanted
    assert client_options(["a:1", "b:2", "a:1"]).name_servers == wanted
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b:2")
    assert client_options().name_servers == wanted
    assert client_options("c:3").name_servers == ("c:3",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ValueError, match=r"no name server.*NAMESRV_ADDR"):
        client_options()
    with pytest.raises(ValueError, match="host:port"):
        client_options("localhost")


def test_unknown_options_are_named() -> None:
    with pytest.raises(TypeError, match="unknown option 'namspace', expected one of instance_name"):
        client_options("a:1", namspace="x")


def test_equal_options_are_equal() -> None:
    assert client_options("a:1", namespace="n") == client_options(["a:1"], namespace="n")
    assert hash(client_options("a:1")) == hash(client_options("a:1"))
    assert client_options("a:1", trace=True) != client_options("a:1")


@pytest.mark.parametrize(("value", "expected_ms"), [(2, 2_000), (0.25, 250), (timedelta(minutes=1), 60_000), (0.0001, 1)])
def test_durations_are_seconds_or_timedeltas(value: Any, expected_ms: int) -> None:
    assert client_options("a:1", request_timeout=value).request_timeout_ms == expected_ms
    assert milliseconds("x", value) == expected_ms


@pytest.mark.parametrize("value", [0, -1, True, "3s", float("inf"), float("nan"), timedelta(0)])
def test_a_duration_must_be_above_zero(value: Any) -> None:
    with pytest.raises(ValueError, match=r"connect_timeout is .*, expected seconds above 0 or a timedelta"):
        client_options("a:1", connect_timeout=value)


def test_zero_is_accepted_where_it_means_something() -> None:
    assert seconds("timeout", 0, or_zero=True) == 0
    with pytest.raises(ValueError, match="timeout is -1, expected seconds from 0 on"):
        seconds("timeout", -1, or_zero=True)


def test_options_can_be_made_again_from_their_keywords() -> None:
    options = client_options("a:1", namespace="n", route_interval=0.5, trace=True)
    assert client_options("a:1", **options.keywords()) == options


@pytest.mark.parametrize("cls", [fa.Producer, fa.TransactionProducer, fa.PushConsumer, fa.PullConsumer])
def test_help_describes_every_keyword(cls: type) -> None:
    text = cls.__init__.__doc__ or ""  # type: ignore[misc]
    for name in ClientKeywords.__annotations__:
        assert name in text
