"""Requirements of the replication ports, from the settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ssl import SSLContext

from firearrow.broker.roles.peer_security import authenticates_peers, check_exposure
from firearrow.broker.settings import BrokerSettings
from firearrow.ha.peers.secret import FixedSecret, GroupSecrets, SecretFile
from firearrow.net.tls import ServerTls, outgoing_context, server_tls


@dataclass(frozen=True, slots=True)
class LinkSecurity:
    """Requirements of a port towards its peers. Without `secrets`, a required authentication is that of mutual TLS."""

    required: bool = False
    secrets: GroupSecrets | None = None
    allow_unauthenticated: bool = False
    server_tls: ServerTls | None = None
    client_tls: Callable[[], SSLContext | None] = lambda: None  # of the next connection


def link_security(settings: BrokerSettings) -> LinkSecurity:
    """Return the requirements. Raises SettingError for a file that cannot be used, or a port that would be unprotected."""
    check_exposure(settings)
    return LinkSecurity(
        required=authenticates_peers(settings),
        secrets=_secrets(settings),
        allow_unauthenticated=settings.ha_allow_unauthenticated,
        server_tls=server_tls(settings),
        client_tls=lambda: outgoing_context(settings) if settings.peer_use_tls else None,
    )


def _secrets(settings: BrokerSettings) -> GroupSecrets | None:
    """Return the secret of peerSecretFile. Without it, the credentials of the brokers' own requests are the secret."""
    if settings.peer_secret_file is not None:
        return SecretFile(settings.peer_secret_file)
    credentials = settings.inner_credentials() if settings.authentication_enabled else None
    return FixedSecret(f"{credentials.username}\n{credentials.password.reveal()}".encode()) if credentials is not None else None
