"""TLS contexts of clients and servers.

Outgoing connections (`ClientTls`): the server's certificate is verified, including its host name or IP address, against the given
CA certificates or those of the system. `insecure` turns this off and logs a warning. Files that are replaced on disk are used for
new connections.

Servers: the settings have the names of Apache's tls.properties. A port with a certificate accepts plain and encrypted connections
(permissive) or only encrypted ones (enforcing); a port without one accepts only plain connections. A certificate that is replaced
on disk is used for new connections.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from firearrow.config.fields import SettingError, setting
from firearrow.config.secret import Secret

if TYPE_CHECKING:
    from ssl import SSLContext

_CERTIFICATE, _KEY, _TRUSTED = "tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"
_CLIENT_KEYS = {"ca": "tls.client.trustCertPath", "cert": "tls.client.certPath"}

log = logging.getLogger("firearrow.net")


class TlsFileError(ValueError):
    """A file of `ClientTls` is unusable; `part` is the name of its field."""

    def __init__(self, part: str, path: str | None, expected: str) -> None:
        super().__init__(f"tls_{part} is {path!r}, expected {expected}")
        self.part = part
        self.path = path
        self.expected = expected


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS of outgoing connections: the CA certificates to trust and the certificate to present (PEM files).

    `ca` is a file or a directory; without it the CA certificates of the system are trusted. `key` may be part of `cert`.
    """

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.insecure and self.ca is not None:
            raise ValueError(f"tls_ca is {self.ca!r}, but the insecure mode verifies nothing: give one of them")
        if self.key is not None and self.cert is None:
            raise ValueError(f"tls_key is {self.key!r}, but there is no certificate: give tls_cert too")

    def stamps(self) -> list[tuple[int, int] | None]:
        """Return values that change when a file is replaced."""
        return [_stamp(path) for path in (self.ca, self.cert, self.key)]


_client_contexts: dict[ClientTls, tuple[list[tuple[int, int] | None], SSLContext]] = {}


def client_context(tls: ClientTls | None) -> SSLContext | None:
    """Return the context to connect with, None for a plain connection. TlsFileError for an unusable file at the first call.

    Later calls load replaced files, and keep the previous ones while the new ones are unusable.
    """
    if tls is None:
        return None
    known = _client_contexts.get(tls)
    stamps = tls.stamps()
    if known is not None and known[0] == stamps:
        return known[1]
    try:
        context = _create_client_context(tls)
    except TlsFileError as error:
        if known is None:
            raise
        log.error("keeping the previous TLS files: %s", error)
        context = known[1]
    _client_contexts[tls] = stamps, context
    return context


def _create_client_context(tls: ClientTls) -> SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the chain and the host name
    if tls.insecure:
        log.warning("TLS connections are insecure: the certificates of servers are not verified")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.ca is None:
        context.load_default_certs()
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the file may contain the server's own certificate
        try:
            context.load_verify_locations(**{"capath" if os.path.isdir(tls.ca) else "cafile": tls.ca})
        except (OSError, ValueError) as error:
            raise TlsFileError("ca", tls.ca, f"a PEM file with CA certificates: {error}") from error
    if tls.cert is not None:
        password = tls.key_password or ""  # without a callback, an encrypted key would prompt on the terminal
        try:
            context.load_cert_chain(tls.cert, tls.key, password=lambda: password)
        except (OSError, ValueError) as error:
            raise TlsFileError("cert", tls.cert, f"a PEM certificate that matches its key: {error}") from error
    return context


@dataclass(slots=True)
class TlsSettings:
    """TLS settings, part of the settings of every server."""

    tls_server_mode: str = setting(
        "permissive",
        "accepted connections if there is a certificate: plain and encrypted, only encrypted, or only plain",
        key="tls.server.mode",
        choices=("permissive", "enforcing", "disabled"),
    )
    tls_server_cert_path: str | None = setting(
        None, "file with the certificate and its chain (PEM); without it the ports do not encrypt", key=_CERTIFICATE
    )
    tls_server_key_path: str | None = setting(None, "file with the private key of the certificate (PEM)", key=_KEY)
    tls_server_key_password: Secret | None = setting(
        None, "password of the private key, if it has one", key="tls.server.keyPassword"
    )
    tls_server_trust_cert_path: str | None = setting(
        None, "file with the CA certificates (PEM) that sign client certificates", key=_TRUSTED
    )
    tls_server_need_client_auth: str = setting(
        "none",
        "client certificates: not requested, optional, or required",
        key="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
    )


class OutgoingTlsSettings(Protocol):
    """The settings of a server that connects to other servers, as `BrokerSettings` has them."""

    use_tls: bool
    tls_client_trust_cert_path: str | None
    tls_client_auth_server: bool
    tls_client_cert_path: str | None
    tls_client_key_path: str | None
    tls_client_key_password: Secret | None


def check_outgoing_tls(settings: OutgoingTlsSettings) -> None:
    """Raise SettingError for settings of outgoing connections that contradict each other or have no effect."""
    trusted, certificate, key = settings.tls_client_trust_cert_path, settings.tls_client_cert_path, settings.tls_client_key_path
    if not settings.use_tls:
        for name, path in ((_CLIENT_KEYS["ca"], trusted), (_CLIENT_KEYS["cert"], certificate)):
            if path is not None:
                raise SettingError(name, path, "useTLS=true with it: the broker's own connections are not encrypted")
    if trusted is not None and not settings.tls_client_auth_server:
        raise SettingError("tls.client.authServer", "false", f"true with {_CLIENT_KEYS['ca']}")
    if key is not None and certificate is None:
        raise SettingError("tls.client.keyPath", key, f"{_CLIENT_KEYS['cert']} with it")


def outgoing_context(settings: OutgoingTlsSettings) -> SSLContext | None:
    """Return the context of a server's own connections, None if they are plain. The SettingError names an unusable file."""
    if not settings.use_tls:
        return None
    secret = settings.tls_client_key_password
    tls = ClientTls(
        settings.tls_client_trust_cert_path,
        settings.tls_client_cert_path,
        settings.tls_client_key_path,
        None if secret is None else secret.reveal(),
        insecure=not settings.tls_client_auth_server,
    )
    try:
        return client_context(tls)
    except TlsFileError as error:
        raise SettingError(_CLIENT_KEYS[error.part], error.path, error.expected) from error


class ServerTls:
    """TLS configuration of a port with a certificate."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.enforced = settings.tls_server_mode == "enforcing"
        self._stamps = self._file_stamps()
        self._context = _server_context(settings)

    def context(self) -> SSLContext:
        """Return the context for a handshake, reloading replaced files once certificate and key match."""
        stamps = self._file_stamps()
        if stamps != self._stamps:
            try:
                self._context = _server_context(self._settings)
                log.info("%s: the certificate was replaced", self._settings.tls_server_cert_path)
            except SettingError as error:
                log.error("keeping the previous certificate: %s", error)
            self._stamps = stamps
        return self._context

    def _file_stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._settings.tls_server_cert_path, self._settings.tls_server_key_path)]


def _stamp(path: str | None) -> tuple[int, int] | None:
    """Return a value that changes when the file is replaced, None if the file does not exist."""
    try:
        status = os.stat(path or "")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def server_tls(settings: TlsSettings) -> ServerTls | None:
    """Return the TLS configuration, None for plain connections only. The SettingError names an unusable file."""
    certificate, key, mode = settings.tls_server_cert_path, settings.tls_server_key_path, settings.tls_server_mode
    if mode == "disabled" or (mode == "permissive" and certificate is None and key is None):
        return None
    if certificate is None or key is None:
        missing = _CERTIFICATE if certificate is None else _KEY
        raise SettingError(missing, "", "the path of a PEM file: encryption requires a certificate and its key")
    return ServerTls(settings)


def _server_context(settings: TlsSettings) -> SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = settings.tls_server_cert_path, settings.tls_server_key_path
    secret = settings.tls_server_key_password
    password = "" if secret is None else secret.reveal()
    try:
        # Without a callback, an encrypted key would prompt on the terminal.
        context.load_cert_chain(certificate or "", key, password=lambda: password)
    except (OSError, ValueError) as error:
        raise SettingError(_CERTIFICATE, certificate, f"a PEM certificate that matches the key in {key}: {error}") from error
    context.verify_mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}[
        settings.tls_server_need_client_auth
    ]
    if context.verify_mode != ssl.CERT_NONE:
        trusted = settings.tls_server_trust_cert_path
        try:
            context.load_verify_locations(trusted or "")
        except (OSError, ValueError) as error:
            expected = f"the path of a PEM file with the CA certificates of clients: {error}"
            raise SettingError(_TRUSTED, trusted, expected) from error
    return context
