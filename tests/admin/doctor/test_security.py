from __future__ import annotations

import asyncio

import pytest

from firearrow.admin.aio import Admin
from firearrow.admin.doctor.findings import ERROR, WARNING, Report
from firearrow.admin.doctor.security import check_credentials, check_settings
from firearrow.client.connection.signing import Signer
from firearrow.client.options import Credentials
from firearrow.net.server import Connection
from firearrow.wire.frame import Command, encode_response
from tests.client.fake_broker import FakeBroker

LOOPBACK = {
    "bindAddress": "127.0.0.1",
    "authenticationEnabled": "false",
    "tls.server.mode": "permissive",
    "tls.server.certPath": "",
}
OPEN = LOOPBACK | {"bindAddress": "0.0.0.0"}
SIGNED = OPEN | {"authenticationEnabled": "true", "authorizationEnabled": "true"}
ENCRYPTED = {"tls.server.mode": "enforcing", "tls.server.certPath": "/cert.pem"}


@pytest.mark.parametrize(
    ("config", "causes"),
    [
        (LOOPBACK, []),
        (OPEN, ["listens on 0.0.0.0 without access control", "not encrypted"]),
        (OPEN | ENCRYPTED, ["listens on 0.0.0.0 without access control"]),
        (SIGNED, ["not encrypted"]),
        (SIGNED | ENCRYPTED, []),
        (SIGNED | ENCRYPTED | {"authorizationEnabled": "false"}, ["every user may do everything"]),
        (LOOPBACK | {"authenticationEnabled": "true"}, ["every user may do everything"]),
        ({"bindAddress": "0.0.0.0", "aclEnable": "true"}, []),  # Apache 4.9
        ({"bindAddress": "10.0.0.1"}, ["listens on 10.0.0.1 without access control"]),
        ({}, []),
    ],
)
def test_exposed_servers_are_reported(config: dict[str, str], causes: list[str]) -> None:
    report = Report()
    check_settings(report, "broker-a", config)
    assert len(report.findings) == len(causes)
    for finding, cause in zip(report.findings, causes, strict=True):
        assert finding.severity == WARNING
        assert cause in finding.cause
        assert finding.fix


def test_well_known_credentials_are_reported() -> None:
    """The server accepts one of them."""
    known = Credentials("rocketmq2", "12345678")

    def answer(conn: Connection, command: Command) -> None:
        ext = {key: value for key, value in command.ext.items() if key not in ("AccessKey", "Signature")}
        good = Signer(known).signed(ext, b"")["Signature"] == command.ext["Signature"]
        conn.write(encode_response(command, 0 if good else 16, None, {}))

    async def story() -> Report:
        broker = await FakeBroker().start()
        broker.other[28] = answer
        report = Report()
        try:
            async with Admin(broker.address) as admin:
                await check_credentials(admin.client, report, "broker-a", broker.address)
        finally:
            await broker.stop()
        return report

    (finding,) = asyncio.run(story()).findings
    assert finding.severity == ERROR
    assert "well-known credentials of the user rocketmq2" in finding.cause
