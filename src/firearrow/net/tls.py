"""TLS: which context a connection is encrypted with, on the asking side and on the answering one.

Asking: Apache's clients encrypt and believe any certificate; `True` means that. Whoever wants to know whom they talk to brings a
context (`ssl.create_default_context(cafile=...)`), with a client certificate loaded into it if the server asks for one.

Answering: the settings have the names of Apache's tls.properties. A port with a certificate takes plain and encrypted connections
alike (permissive) or encrypted ones only (enforcing); one without takes plain ones only. A certificate that is replaced on the
disk is used for the connections that come after.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firearrow.config.fields import SettingError, setting

if TYPE_CHECKING:
    from ssl import SSLContext

_CERTIFICATE, _KEY, _TRUSTED = "tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"

log = logging.getLogger("firearrow.net")

_unchecked: SSLContext | None = None


def client_context(tls: bool | SSLContext) -> SSLContext | None:
    """The context to connect with; None for a plain connection."""
    if tls is False:
        return None
    if tls is True:
        return _unchecked_context()
    return tls


def _unchecked_context() -> SSLContext:
    global _unchecked
    if _unchecked is None:
        import ssl

        _unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _unchecked.check_hostname = False
        _unchecked.verify_mode = ssl.CERT_NONE
    return _unchecked


@dataclass(slots=True)
class TlsSettings:
    """Part of the settings of every server."""

    tls_server_mode: str = setting(
        "permissive",
        "which connections a port with a certificate takes: plain and encrypted, only encrypted, or only plain ones",
        key="tls.server.mode",
        choices=("permissive", "enforcing", "disabled"),
    )
    tls_server_cert_path: str | None = setting(
        None, "file of the certificate and its chain (PEM); without one the ports do not encrypt", key=_CERTIFICATE
    )
    tls_server_key_path: str | None = setting(None, "file of the certificate's private key (PEM)", key=_KEY)
    tls_server_key_password: str | None = setting(
        None, "the password of the private key, if it has one", key="tls.server.keyPassword", secret=True
    )
    tls_server_trust_cert_path: str | None = setting(
        None, "file of the certificates (PEM) that sign those of clients", key=_TRUSTED
    )
    tls_server_need_client_auth: str = setting(
        "none",
        "whether clients must show a certificate, may, or are not asked for one",
        key="tls.server.need.client.auth",
        choices=("none", "optional", "require"),
    )


class ServerTls:
    """What a port with a certificate needs to know."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self.enforced = settings.tls_server_mode == "enforcing"
        self._stamps = self._file_stamps()
        self._context = _server_context(settings)

    def context(self) -> SSLContext:
        """For one handshake. New files are used from now on, once they fit each other; until then the old ones are."""
        stamps = self._file_stamps()
        if stamps != self._stamps:
            try:
                self._context = _server_context(self._settings)
                log.info("%s: the certificate was replaced", self._settings.tls_server_cert_path)
            except SettingError as error:
                log.error("the old certificate stays in use: %s", error)
            self._stamps = stamps
        return self._context

    def _file_stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._settings.tls_server_cert_path, self._settings.tls_server_key_path)]


def _stamp(path: str | None) -> tuple[int, int] | None:
    """What is different when a file is replaced; None when there is none."""
    try:
        status = os.stat(path or "")
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


def server_tls(settings: TlsSettings) -> ServerTls | None:
    """None: plain connections only. SettingError names the file that cannot be used."""
    certificate, key, mode = settings.tls_server_cert_path, settings.tls_server_key_path, settings.tls_server_mode
    if mode == "disabled" or (mode == "permissive" and certificate is None and key is None):
        return None
    if certificate is None or key is None:
        missing = _CERTIFICATE if certificate is None else _KEY
        raise SettingError(missing, "", "the path of a PEM file: a port that encrypts has a certificate and its key")
    return ServerTls(settings)


def _server_context(settings: TlsSettings) -> SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key = settings.tls_server_cert_path, settings.tls_server_key_path
    password = settings.tls_server_key_password or ""  # without one here, a locked key would ask for it on the terminal
    try:
        context.load_cert_chain(certificate or "", key, password=lambda: password)
    except (OSError, ValueError) as error:
        raise SettingError(_CERTIFICATE, certificate, f"a PEM certificate that fits the key in {key}: {error}") from error
    context.verify_mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}[
        settings.tls_server_need_client_auth
    ]
    if context.verify_mode != ssl.CERT_NONE:
        trusted = settings.tls_server_trust_cert_path
        try:
            context.load_verify_locations(trusted or "")
        except (OSError, ValueError) as error:
            expected = f"the path of a PEM file with the certificates that sign those of clients: {error}"
            raise SettingError(_TRUSTED, trusted, expected) from error
    return context
