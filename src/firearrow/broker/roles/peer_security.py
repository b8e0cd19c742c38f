"""Protection of the replication ports: what the settings require of other brokers, and which settings leave a port unprotected.

A broker authenticates its peers if there is a secret for it (`peerSecretFile`), if clients are authenticated
(`authenticationEnabled`), or if peers must have a certificate (`peerUseTLS` with `tls.server.need.client.auth=require`).

A replication port that does not authenticate is open only on loopback:
- a member of an elected group, a slave and a SYNC_MASTER do not start on another address,
- an ASYNC_MASTER may have no slaves. It starts, and opens its replication port on loopback only.
`allowUnauthenticatedPeers=true` lifts both rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from firearrow.config.fields import SettingError
from firearrow.net.address import WILDCARDS, is_loopback, parse_address

if TYPE_CHECKING:
    from firearrow.broker.settings import BrokerSettings

REMEDY = (
    "set peerSecretFile to a file with the same secret on every broker of the group, or authenticationEnabled=true with "
    "innerClientAuthenticationCredentials, or useTLS=true and peerUseTLS=true with tls.server.need.client.auth=require; "
    "allowUnauthenticatedPeers=true accepts every peer"
)


def has_mutual_tls(settings: BrokerSettings) -> bool:
    """Return whether the certificates of TLS authenticate both sides of every connection between brokers."""
    return (
        settings.peer_use_tls
        and settings.tls_client_auth_server
        and settings.tls_server_mode != "disabled"
        and settings.tls_server_cert_path is not None
        and settings.tls_server_need_client_auth == "require"
    )


def authenticates_peers(settings: BrokerSettings) -> bool:
    """Return whether other brokers must prove that they belong to this broker's group."""
    return settings.peer_secret_file is not None or settings.authentication_enabled or has_mutual_tls(settings)


def elected_host(settings: BrokerSettings) -> str:
    """Return the address on which a member of an elected group listens for the others."""
    peers = settings.peers()
    host, _ = parse_address(peers.addresses[peers.me])
    return settings.bind_address if settings.bind_address in WILDCARDS else host


def master_host(settings: BrokerSettings) -> str:
    """Return the address on which a master listens for slaves."""
    if authenticates_peers(settings) or settings.allow_unauthenticated_peers or is_loopback(settings.bind_address):
        return settings.bind_address
    return "::1" if ":" in settings.bind_address else "127.0.0.1"


def check_exposure(settings: BrokerSettings) -> None:
    """Raise SettingError if strangers could replicate, vote or read the log through a replication port."""
    if settings.peer_use_tls and not settings.use_tls:
        raise SettingError(
            "peerUseTLS", "true", "useTLS=true with it: the certificates are those of the broker's other connections"
        )
    if authenticates_peers(settings) or settings.allow_unauthenticated_peers:
        return
    host = elected_host(settings) if settings.enable_d_leger_commit_log else settings.bind_address
    has_peers = settings.enable_d_leger_commit_log or settings.broker_role in ("SLAVE", "SYNC_MASTER")
    if has_peers and not is_loopback(host):
        key = "bindAddress" if host == settings.bind_address else "dLegerPeers"
        raise SettingError(
            key,
            host,
            "a loopback address while brokers do not authenticate each other: anyone who reaches the replication port could "
            f"read and change the messages. To listen on other addresses, {REMEDY}",
        )
