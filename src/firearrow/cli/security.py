"""Options for credentials and TLS, common to all commands that connect to a cluster.

Keys are taken from the first of: `--access-key` with `--secret-key` or $FIREARROW_SECRET_KEY; `--credentials-file`;
$FIREARROW_ACCESS_KEY with $FIREARROW_SECRET_KEY; $FIREARROW_CREDENTIALS_FILE. `firearrow mqadmin` reads Apache's
$ROCKETMQ_HOME/conf/tools.yml after these.

Only click and the standard library are imported here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from firearrow.client.options import ClientKeywords, Credentials

ACCESS_KEY_VARIABLE: Final = "FIREARROW_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "FIREARROW_SECRET_KEY"
CREDENTIALS_FILE_VARIABLE: Final = "FIREARROW_CREDENTIALS_FILE"

SECURITY_OPTIONS: Final[tuple[Callable[[Callable[..., Any]], Callable[..., Any]], ...]] = (
    click.option("--access-key", metavar="KEY", help=f"Access key (user name). Default: ${ACCESS_KEY_VARIABLE}."),
    click.option(
        "--secret-key",
        metavar="KEY",
        help=f"Secret key. Other users of this machine can see it; prefer ${SECRET_KEY_VARIABLE} or a file.",
    ),
    click.option(
        "--credentials-file",
        metavar="FILE",
        help=f"JSON file or tools.yml with accessKey and secretKey. Default: ${CREDENTIALS_FILE_VARIABLE}.",
    ),
    click.option("--tls", is_flag=True, envvar="FIREARROW_TLS", help="Encrypt connections and verify the servers."),
    click.option(
        "--tls-ca",
        metavar="FILE",
        envvar="FIREARROW_TLS_CA",
        help="CA certificates to trust instead of the system's; implies --tls.",
    ),
    click.option("--tls-cert", metavar="FILE", envvar="FIREARROW_TLS_CERT", help="Certificate to present; implies --tls."),
    click.option("--tls-key", metavar="FILE", envvar="FIREARROW_TLS_KEY", help="Private key of the certificate."),
    click.option(
        "--tls-key-password-file",
        metavar="FILE",
        envvar="FIREARROW_TLS_KEY_PASSWORD_FILE",
        help="File with the password of the private key.",
    ),
    click.option("--tls-insecure", is_flag=True, help="Encrypt connections, but accept any certificate."),
)


class SecurityArguments(NamedTuple):
    """The values of the options for credentials and TLS. `default_file` is read if nothing else gives keys and it exists."""

    access_key: str | None = None
    secret_key: str | None = None
    credentials_file: str | None = None
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_key_password_file: str | None = None
    tls_insecure: bool = False
    default_file: str | None = None

    @classmethod
    def take(cls, parameters: dict[str, Any], default_file: str | None = None) -> SecurityArguments:
        """Remove these options from the parameters of a command."""
        names = cls._fields[:-1]
        return cls(**{name: parameters.pop(name) for name in names if name in parameters}, default_file=default_file)

    def keywords(self) -> ClientKeywords:
        """Return the keywords of a client."""
        from firearrow.client.options import ClientKeywords

        return ClientKeywords(
            credentials=self.credentials(),
            tls=self.tls,
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            tls_key_password=self._key_password(),
            tls_insecure=self.tls_insecure,
        )

    def data_source_options(self) -> dict[str, str]:
        """Return the same as options of the Spark data source."""
        keys = self.credentials() if self.file() is None else None
        secrets = {} if keys is None else {"accessKey": keys.access_key, "secretKey": keys.secret_key}
        given = {
            **secrets, "credentialsFile": self.file(),
            "tls": "true" if self.tls else None, "tlsCa": self.tls_ca, "tlsCert": self.tls_cert,
            "tlsKey": self.tls_key, "tlsKeyPasswordFile": self.tls_key_password_file,
            "tlsInsecure": "true" if self.tls_insecure else None,
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}

    def credentials(self) -> Credentials | None:
        from firearrow.client.options import Credentials

        file = self.file()
        if file is not None:
            try:
                return Credentials.from_file(file)
            except ValueError as error:
                raise click.UsageError(str(error)) from None
        access_key = self.access_key or os.environ.get(ACCESS_KEY_VARIABLE)
        if not access_key:
            if self.secret_key:
                raise click.UsageError("--secret-key is given without --access-key")
            return None
        secret_key = self.secret_key or os.environ.get(SECRET_KEY_VARIABLE, "")
        if not secret_key:
            given = f"${ACCESS_KEY_VARIABLE}" if self.access_key is None else "--access-key"
            raise click.UsageError(f"{given} is given, but the environment variable {SECRET_KEY_VARIABLE} is not set")
        return Credentials(access_key, secret_key)

    def file(self) -> str | None:
        """Return the credentials file in use, None if the keys come from elsewhere."""
        if self.credentials_file is not None:
            if self.access_key is not None or self.secret_key is not None:
                raise click.UsageError("--access-key and --credentials-file exclude each other")
            return self.credentials_file
        if self.access_key is not None or os.environ.get(ACCESS_KEY_VARIABLE):
            return None
        named = os.environ.get(CREDENTIALS_FILE_VARIABLE)
        if named:
            return named
        return self.default_file if self.default_file is not None and os.path.exists(self.default_file) else None

    def _key_password(self) -> str | None:
        if self.tls_key_password_file is None:
            return None
        with open(self.tls_key_password_file, encoding="utf-8") as file:
            return file.read().rstrip("\r\n")
