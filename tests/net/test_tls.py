from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firearrow.config.fields import SettingError
from firearrow.config.secret import Secret
from firearrow.net.channel import Channel
from firearrow.net.errors import ConnectError
from firearrow.net.server import Connection
from firearrow.net.tls import ClientTls, TlsFileError, check_outgoing_tls, client_context, outgoing_context
from tests.net.peer import Echo
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run


@dataclass
class OutgoingTls:
    use_tls: bool = False
    tls_client_trust_cert_path: str | None = None
    tls_client_auth_server: bool = True
    tls_client_cert_path: str | None = None
    tls_client_key_path: str | None = None
    tls_client_key_password: Secret | None = None


@contextlib.asynccontextmanager
async def encrypted(directory: Path, *, host: str = "127.0.0.1", client_certificates: bool = False) -> AsyncIterator[int]:
    (directory / "cert.pem").write_text(CERTIFICATE)
    (directory / "key.pem").write_text(KEY)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(directory / "cert.pem")
    service = Echo()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(service), host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for conn in service.conns:
            conn.abort()


async def exchange(port: int, tls: ClientTls, host: str = "127.0.0.1") -> bytes:
    channel = await Channel.connect(f"{host}:{port}", tls=client_context(tls))
    try:
        return (await channel.request(34, body=b"x" * 100_000)).body
    finally:
        await channel.close()


def test_unknown_certificate_is_rejected_by_default(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path) as port:
            with pytest.raises(ConnectError, match=r"no connection to 127.0.0.1:\d+: .*certificate verify failed"):
                await exchange(port, ClientTls())

    run(scenario())


def test_certificate_of_a_given_authority_is_accepted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path) as port:
            ca = str(tmp_path / "cert.pem")
            assert len(await exchange(port, ClientTls(ca=ca))) == 100_000
            assert len(await exchange(port, ClientTls(ca=ca), host="localhost")) == 100_000

    run(scenario())


def test_certificate_of_another_host_is_rejected(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path, host="127.0.0.2") as port:
            with pytest.raises(ConnectError, match=r"certificate is not valid for '127\.0\.0\.2'"):
                await exchange(port, ClientTls(ca=str(tmp_path / "cert.pem")), host="127.0.0.2")

    run(scenario())


def test_insecure_mode_accepts_any_certificate_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path) as port:
            insecure = ClientTls(cert=str(tmp_path / "cert.pem"), key=str(tmp_path / "key.pem"), insecure=True)
            assert len(await exchange(port, insecure)) == 100_000

    run(scenario())
    assert "the certificates of servers are not verified" in caplog.text


def test_server_with_required_client_certificates_accepts_only_their_holders(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with encrypted(tmp_path, client_certificates=True) as port:
            ca = str(tmp_path / "cert.pem")
            assert await exchange(port, ClientTls(ca=ca, cert=ca, key=str(tmp_path / "key.pem")))
            with pytest.raises(OSError, match=r"."):
                await exchange(port, ClientTls(ca=ca))

    run(scenario())


def test_plain_server_is_distinguished_from_an_encrypted_one() -> None:
    async def scenario() -> None:
        from firearrow.net.server import serve

        listener = await serve(Echo())
        with pytest.raises(ConnectError):
            await Channel.connect(f"127.0.0.1:{listener.port}", tls=client_context(ClientTls(insecure=True)), timeout_ms=1000)
        await listener.close()

    run(scenario())


def test_context_is_shared_until_a_file_is_replaced(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text(CERTIFICATE)
    first = client_context(ClientTls(ca=str(ca)))

    assert client_context(None) is None
    assert client_context(ClientTls(ca=str(ca))) is first
    replace_file(ca, CERTIFICATE)
    second = client_context(ClientTls(ca=str(ca)))
    assert second is not first
    replace_file(ca, "damaged")
    assert client_context(ClientTls(ca=str(ca))) is second


def replace_file(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(TlsFileError, match="tls_ca is '/does/not/exist', expected a PEM file"):
        client_context(ClientTls(ca="/does/not/exist"))
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    with pytest.raises(TlsFileError, match=r"tls_cert is .*cert\.pem', expected a PEM certificate that matches its key"):
        client_context(ClientTls(cert=str(tmp_path / "cert.pem")))
    settings = OutgoingTls(use_tls=True, tls_client_trust_cert_path="/does/not/exist")
    with pytest.raises(SettingError, match=r"tls\.client\.trustCertPath=/does/not/exist"):
        outgoing_context(settings)


def test_contradictions_are_rejected() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        ClientTls(ca="x", insecure=True)
    with pytest.raises(ValueError, match="give tls_cert too"):
        ClientTls(key="x")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        (OutgoingTls(tls_client_trust_cert_path="x"), "tls.client.trustCertPath"),
        (OutgoingTls(tls_client_cert_path="x"), "tls.client.certPath"),
        (OutgoingTls(use_tls=True, tls_client_key_path="x"), "tls.client.keyPath"),
        (
            OutgoingTls(use_tls=True, tls_client_trust_cert_path="x", tls_client_auth_server=False),
            "tls.client.authServer",
        ),
    ],
)
def test_settings_without_effect_are_rejected(settings: OutgoingTls, key: str) -> None:
    with pytest.raises(SettingError) as raised:
        check_outgoing_tls(settings)
    assert raised.value.key == key


def test_passwords_are_not_shown() -> None:
    assert "hidden" not in repr(ClientTls(cert="c", key_password="hidden"))
