"""Options of all clients: name servers, durations, validation."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import firearrow as fa
from firearrow.client.options import ClientKeywords, Credentials, client_options, milliseconds, seconds
from tests.support.certificates import CERTIFICATE


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


def test_tls_options_imply_encryption_and_verification(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(CERTIFICATE)

    assert client_options("a:1").tls_context() is None
    given: list[dict[str, Any]] = [{"tls": True}, {"tls_ca": str(ca)}]
    for keywords in given:
        context = client_options("a:1", **keywords).tls_context()
        assert context is not None
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
    insecure = client_options("a:1", tls_insecure=True).tls_context()
    assert insecure is not None
    assert insecure.verify_mode is ssl.CERT_NONE
    own = ssl.create_default_context()
    assert client_options("a:1", tls=own).tls_context() is own


def test_unusable_tls_options_are_named() -> None:
    with pytest.raises(ValueError, match="tls_ca is '/does/not/exist'"):
        client_options("a:1", tls_ca="/does/not/exist")
    with pytest.raises(ValueError, match="tls is an SSLContext"):
        client_options("a:1", tls=ssl.create_default_context(), tls_insecure=True)


@pytest.mark.parametrize(
    "text",
    [
        '{"accessKey": "me", "secretKey": "hidden", "securityToken": null}',
        "# comment\naccessKey: me\nsecretKey: 'hidden'\n",
        "AccessKey=me\nSecretKey=hidden\n",
    ],
)
def test_credentials_are_read_from_a_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    path.chmod(0o600)

    assert Credentials.from_file(str(path)) == Credentials("me", "hidden")


def test_readable_credentials_file_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "keys"
    path.write_text("accessKey: me\nsecretKey: hidden\n")
    path.chmod(0o644)

    Credentials.from_file(str(path))

    assert "can be read by other users" in caplog.text


def test_credentials_file_without_keys_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("accessKey: me\n")
    with pytest.raises(ValueError, match="secretkey is missing"):
        Credentials.from_file(str(path))
    with pytest.raises(ValueError, match="No such file"):
        Credentials.from_file(str(tmp_path / "none"))
