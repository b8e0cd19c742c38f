"""Requirements of the replication ports from the settings, and brokers that replicate over mutual TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError
from firearrow.config.secret import Secret
from firearrow.ha.peers.security import link_security
from tests.broker.running import client
from tests.ha.elected.test_member_in_process import group, leader_of, member_of
from tests.ha.pairs import ha_of_master, ha_of_slave, in_step, log_bytes, make, name_server, running
from tests.ha.peers.forgery import forged_messages, frame, send_raw, write_secret
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import run, until

INNER = Secret('{"accessKey":"inner","secretKey":"0123456789abcdef"}')


def mutual_tls(directory: Path) -> dict[str, Any]:
    directory.mkdir(exist_ok=True)
    certificate, key = directory / "cert.pem", directory / "key.pem"
    certificate.write_text(CERTIFICATE)
    key.write_text(KEY)
    return {
        "use_tls": True,
        "peer_use_tls": True,
        "tls_server_cert_path": str(certificate),
        "tls_server_key_path": str(key),
        "tls_server_trust_cert_path": str(certificate),
        "tls_server_need_client_auth": "require",
        "tls_client_trust_cert_path": str(certificate),
        "tls_client_cert_path": str(certificate),
        "tls_client_key_path": str(key),
    }


def test_nothing_is_required_by_default() -> None:
    security = link_security(BrokerSettings())
    assert (security.required, security.secrets, security.server_tls, security.client_tls()) == (False, None, None, None)


def test_credentials_of_access_control_are_the_secret_with_authentication() -> None:
    without = link_security(BrokerSettings(inner_client_authentication_credentials=INNER))
    assert (without.required, without.secrets) == (False, None)  # Apache's peers continue to work
    security = link_security(BrokerSettings(authentication_enabled=True, inner_client_authentication_credentials=INNER))
    assert security.required
    assert security.secrets is not None
    assert security.secrets.current() == [b"inner\n0123456789abcdef"]


def test_secret_file_takes_precedence_over_credentials(tmp_path: Path) -> None:
    settings = BrokerSettings(
        authentication_enabled=True,
        inner_client_authentication_credentials=INNER,
        peer_secret_file=write_secret(tmp_path, "the secret of a file"),
    )
    security = link_security(settings)
    assert security.secrets is not None
    assert security.secrets.current() == [b"the secret of a file"]


def test_unprotected_port_is_refused_for_every_creator_of_a_broker() -> None:
    with pytest.raises(SettingError, match="allowUnauthenticatedPeers"):
        link_security(BrokerSettings(bind_address="0.0.0.0", broker_role="SYNC_MASTER"))


def test_slave_copies_over_mutual_tls(tmp_path: Path) -> None:
    async def scenario() -> None:
        tls = mutual_tls(tmp_path / "tls")
        async with name_server() as names, running(make(tmp_path / "m", names, **tls)) as one, client(one) as sender:
            address = f"127.0.0.1:{ha_of_master(one).port}"
            copying = make(tmp_path / "s", names, broker_role="SLAVE", broker_id=1, ha_master_address=address, **tls)
            async with running(copying) as other:
                await until(lambda: ha_of_slave(other).master_alive)
                await sender.send("T", bytes(300_000))
                await in_step(one, other)
                assert log_bytes(one) == log_bytes(other)

    run(scenario())


def test_elected_group_refuses_members_without_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with group(tmp_path, **mutual_tls(tmp_path / "tls")) as brokers:
            leader = leader_of(brokers)
            assert leader is not None
            victim = member_of(leader)
            term, me = victim.raft.term, victim.peers.me
            stranger = next(iter(victim.peers.others))
            for message in forged_messages(term, leader.context.store.max_offset):
                assert await send_raw(victim.peers.addresses[me], frame(stranger, me, message)) == b""
            assert (victim.raft.term, leader_of(brokers)) == (term, leader)
            async with client(leader) as sender:
                assert (await sender.send("T", b"after")).code == 0

    run(scenario())
    assert "it has no certificate" in caplog.text


def test_credentials_of_access_control_authenticate_members_and_slaves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values: dict[str, Any] = {"authentication_enabled": True, "inner_client_authentication_credentials": INNER}

    async def scenario() -> None:
        async with group(tmp_path, **values) as brokers:
            leader = leader_of(brokers)
            assert leader is not None
            victim = member_of(leader)
            hello = frame(next(iter(victim.peers.others)), victim.peers.me, forged_messages(1, 0)[0])
            assert await send_raw(victim.peers.addresses[victim.peers.me], hello) == b""
        async with (
            name_server() as names,
            running(make(tmp_path / "m", names, **values)) as one,
            running(make(tmp_path / "s", names, broker_role="SLAVE", broker_id=1, **values)) as other,
        ):
            await until(lambda: ha_of_slave(other).master_alive and ha_of_slave(other).copied.is_set())
            assert await send_raw(f"127.0.0.1:{ha_of_master(one).port}", bytes(8)) == b""

    run(scenario())
    assert caplog.text.count("it does not authenticate") == 2
