"""Authentication on the replication port of a master."""

from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.ha.peers.handshake import LinkIdentity
from firearrow.ha.static.protocol import PURPOSE, encode_report
from firearrow.wire.codes import ResponseCode
from tests.broker.running import client
from tests.ha.pairs import ha_of_master, ha_of_slave, in_step, log_bytes, master, name_server, slave
from tests.ha.peers.forgery import send_after_failed_handshake, send_raw, write_secret
from tests.support.waiting import run, until


def test_authenticated_slave_copies_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        secret = write_secret(tmp_path)
        async with (
            name_server() as names,
            master(tmp_path / "m", names, broker_role="SYNC_MASTER", peer_secret_file=secret) as one,
            slave(tmp_path / "s", names, peer_secret_file=secret) as other,
            client(one) as sender,
        ):
            await until(lambda: ha_of_slave(other).master_alive)
            for size in (1, 1000, 500_000):
                assert (await sender.send("T", bytes(size))).code == ResponseCode.SUCCESS
            await in_step(one, other)
            assert log_bytes(one) == log_bytes(other)

    run(scenario())


def test_forged_slave_reads_nothing_and_acknowledges_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        secret = write_secret(tmp_path)
        async with (
            name_server() as names,
            master(tmp_path / "m", names, broker_role="SYNC_MASTER", peer_secret_file=secret) as one,
            client(one) as sender,
        ):
            assert (await sender.send("T", b"private")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            address = f"127.0.0.1:{ha_of_master(one).port}"
            assert await send_raw(address, encode_report(0) + encode_report(0)) == b""
            identity = LinkIdentity(PURPOSE, "DefaultCluster", "broker-a", "1", "0")
            await send_after_failed_handshake(address, identity, b"a guess of the secret", encode_report(0))
            assert (await sender.send("T", b"private")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert ha_of_master(one).links == set()

    run(scenario())
    assert "it does not authenticate" in caplog.text
    assert "it does not know the secret of this group" in caplog.text


def test_slave_does_not_follow_a_forged_master(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        (tmp_path / "theirs").mkdir()
        theirs = write_secret(tmp_path / "theirs", "fedcba9876543210fedcba9876543210")
        async with (
            name_server() as names,
            master(tmp_path / "m", names, peer_secret_file=theirs) as one,
            client(one) as sender,
            slave(
                tmp_path / "s",
                names,
                peer_secret_file=write_secret(tmp_path),
                ha_master_address=f"127.0.0.1:{ha_of_master(one).port}",
            ) as other,
        ):
            await sender.send("T", b"forged")
            await until(lambda: "authentication failed" in caplog.text)
            assert other.context.store.max_offset == 0
            assert not ha_of_slave(other).master_alive

    run(scenario())


@pytest.mark.parametrize("authenticated", ["master", "slave"])
def test_pair_with_one_authenticating_side_works_only_if_allowed(
    tmp_path: Path, authenticated: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(allowed: bool) -> None:
        secret = {"peer_secret_file": write_secret(tmp_path), "ha_allow_unauthenticated": allowed}
        on_master, on_slave = (secret, {}) if authenticated == "master" else ({}, secret)
        directory = tmp_path / str(allowed)
        async with (
            name_server() as names,
            master(directory / "m", names, **on_master) as one,
            client(one) as sender,
            slave(directory / "s", names, **on_slave) as other,
        ):
            await sender.send("T", b"message")
            if allowed:
                await in_step(one, other)
                assert log_bytes(one) == log_bytes(other)
            else:
                await until(lambda: "rejected a connection" in caplog.text)
                assert other.context.store.max_offset == 0

    run(scenario(False))
    reasons = {"master": "it does not authenticate", "slave": "it authenticates, but this master does not"}
    assert reasons[authenticated] in caplog.text
    run(scenario(True))
    assert "is accepted because haAllowUnauthenticated=true" in caplog.text
