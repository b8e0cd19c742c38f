"""TLS, the asking side: which context a connection is encrypted with.

Apache's clients encrypt and believe any certificate; `True` means that. Whoever wants to know whom they talk to brings a context
(`ssl.create_default_context(cafile=...)`), with a client certificate loaded into it if the server asks for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ssl import SSLContext

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
