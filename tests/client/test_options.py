from __future__ import annotations

import pytest

from firearrow.client.options import client_options


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
