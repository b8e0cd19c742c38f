"""TLS contexts of clients and servers.

Clients: like Apache's clients, `True` encrypts without verifying the certificate. To verify the server, pass a context
(`ssl.create_default_context(cafile=...)`), with a client certificate loaded if the server requires one.

Servers: the settings have the names of Apache's tls.properties. A port with a certificate accepts plain and encrypted connections
(permissive) or only encrypted ones (enforcing); a port without one accepts only plain connections. A certificate that is replaced
on disk is used for new connections.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from firearrow.config.fields import SettingError, setting
from firearrow.config.secret import Secret

if TYPE_CHECKING:
    from ssl import SSLContext

_CERTIFICATE, _KEY, _TRUSTED = "tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"

log = logging.getLogger("firearrow.net")


def client_context(tls: bool | SSLContext) -> SSLContext | None:
    """Return the context to connect with, None for a plain connection."""
    if tls is False:
        return None
    if tls is True:
        return _unchecked_context()
    return tls


@cache
def _unchecked_context() -> SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
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
