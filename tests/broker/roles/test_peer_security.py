"""Settings that would leave a replication port unprotected."""

from __future__ import annotations

from typing import Any

import pytest

from firearrow.broker.roles.peer_security import master_host
from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError

SLAVE: dict[str, Any] = {"broker_role": "SLAVE", "broker_id": 1}
SYNC: dict[str, Any] = {"broker_role": "SYNC_MASTER"}
MUTUAL_TLS: dict[str, Any] = {
    "use_tls": True,
    "peer_use_tls": True,
    "tls_server_cert_path": "cert.pem",
    "tls_server_key_path": "key.pem",
    "tls_server_need_client_auth": "require",
}
PROTECTIONS: list[dict[str, Any]] = [{"peer_secret_file": "secret"}, MUTUAL_TLS, {"allow_unauthenticated_peers": True}]


def elected(host: str) -> dict[str, Any]:
    return {"enable_d_leger_commit_log": True, "d_leger_self_id": "n0", "d_leger_peers": f"n0-{host}:40911;n1-10.0.0.2:40911"}


EXPOSED: list[dict[str, Any]] = [
    {"bind_address": "0.0.0.0", **SLAVE},
    {"bind_address": "::", **SYNC},
    {"bind_address": "10.0.0.1", **SYNC},
    {"bind_address": "0.0.0.0", **elected("127.0.0.1")},
    elected("10.0.0.1"),
    elected("broker-0"),
]


@pytest.mark.parametrize("values", EXPOSED)
def test_broker_with_peers_is_not_exposed_without_authentication(values: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"peerSecretFile.*allowUnauthenticatedPeers"):
        BrokerSettings(**values).check()


@pytest.mark.parametrize("protection", PROTECTIONS)
@pytest.mark.parametrize("values", EXPOSED)
def test_authentication_or_explicit_permission_lets_it_start(values: dict[str, Any], protection: dict[str, Any]) -> None:
    BrokerSettings(**values, **protection).check()


def test_unverified_servers_are_no_authentication() -> None:
    with pytest.raises(SettingError, match="peerSecretFile"):
        BrokerSettings(bind_address="0.0.0.0", **SYNC, **MUTUAL_TLS, tls_client_auth_server=False).check()


def test_tls_between_brokers_needs_tls_of_outgoing_connections() -> None:
    with pytest.raises(SettingError, match="useTLS=true with it"):
        BrokerSettings(peer_use_tls=True).check()


@pytest.mark.parametrize(
    "values",
    [
        {"bind_address": "0.0.0.0"},
        {"bind_address": "127.0.0.1", **SYNC},
        {"bind_address": "::1", **SLAVE},
        {"bind_address": "localhost", **SLAVE},
        elected("127.0.0.1"),
        {"bind_address": "0.0.0.0", **SYNC, "peer_secret_file": "secret"},
    ],
)
def test_loopback_and_single_brokers_need_no_authentication(values: dict[str, Any]) -> None:
    BrokerSettings(**values).check()


@pytest.mark.parametrize(
    ("values", "host"),
    [
        ({"bind_address": "0.0.0.0"}, "127.0.0.1"),
        ({"bind_address": "10.0.0.1"}, "127.0.0.1"),
        ({"bind_address": "::"}, "::1"),
        ({"bind_address": "127.0.0.2"}, "127.0.0.2"),
        ({"bind_address": "0.0.0.0", "peer_secret_file": "secret"}, "0.0.0.0"),
        ({"bind_address": "0.0.0.0", "allow_unauthenticated_peers": True}, "0.0.0.0"),
        ({"bind_address": "0.0.0.0", **MUTUAL_TLS}, "0.0.0.0"),
        ({"bind_address": "0.0.0.0", **MUTUAL_TLS, "tls_server_need_client_auth": "optional"}, "127.0.0.1"),
    ],
)
def test_replication_port_of_an_unprotected_master_is_on_loopback(values: dict[str, Any], host: str) -> None:
    assert master_host(BrokerSettings(**values)) == host
