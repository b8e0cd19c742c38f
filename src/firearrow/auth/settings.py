"""Settings of access control, common to brokers and name servers, under Apache's names.

Apache's providers and strategies are named by Java class. There is one implementation of each here; a name that Apache does not
know is rejected, because its author expects something else to protect the server. Both strategies check every request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from firearrow.config.fields import SettingError, setting
from firearrow.config.secret import MASK, Secret
from firearrow.net.limits import ListenerSettings

_AUTHENTICATION: Final = "org.apache.rocketmq.auth.authentication"
_AUTHORIZATION: Final = "org.apache.rocketmq.auth.authorization"
_GRPC_MESSAGES: Final = "apache.rocketmq.v2."  # entries of a whitelist that concern Apache's gRPC proxy


class UserSecret(NamedTuple):
    """The name and the password of a user, as read from a setting."""

    username: str
    password: Secret


@dataclass(slots=True)
class AuthSettings(ListenerSettings):
    """Settings that protect a server: limits, TLS and access control."""

    authentication_enabled: bool = setting(False, "accept only requests that are signed by a known user")
    authentication_provider: str | None = setting(None, "Apache's class name; accepted and not needed")
    authentication_metadata_provider: str | None = setting(None, "Apache's class name; accepted and not needed")
    authentication_strategy: str | None = setting(None, "Apache's class name; every request is checked with either")
    authentication_whitelist: str = setting("", "request codes that need no signature, joined by commas")
    init_authentication_user: Secret | None = setting(
        None, 'user to create at the start if it does not exist, as Super: {"username":"...","password":"..."}'
    )
    inner_client_authentication_credentials: Secret | None = setting(
        None,
        'keys that sign this server\'s own requests to other servers: {"accessKey":"...","secretKey":"..."}; the user is created'
        " as Super if it does not exist",
    )
    authorization_enabled: bool = setting(False, "check the policies of the user; needs authenticationEnabled")
    authorization_provider: str | None = setting(None, "Apache's class name; accepted and not needed")
    authorization_metadata_provider: str | None = setting(None, "Apache's class name; accepted and not needed")
    authorization_strategy: str | None = setting(None, "Apache's class name; every request is checked with either")
    authorization_whitelist: str = setting("", "request codes that any user may send, joined by commas")
    migrate_auth_from_v1_enabled: bool = setting(
        False, "create users and policies from plain_acl.yml of ACL 1.0 at the start; white addresses are not taken over"
    )
    acl_enable: bool = setting(
        False, "switch of ACL 1.0; needs authenticationEnabled, authorizationEnabled and migrateAuthFromV1Enabled"
    )
    rocketmq_home: str | None = setting(
        None, "directory with conf/plain_acl.yml and conf/acl of ACL 1.0; $ROCKETMQ_HOME if not given"
    )
    auth_config_path: str | None = setting(
        None, "directory of auth.json with users and policies; a broker's default is config below storePathRootDir"
    )

    def check(self) -> None:
        """Raise SettingError for a setting that would protect nothing, or that cannot be read."""
        if self.authorization_enabled and not self.authentication_enabled:
            raise SettingError("authorizationEnabled", "true", "authenticationEnabled=true with it: permissions belong to users")
        if self.acl_enable and not (self.migrate_auth_from_v1_enabled and self.authorization_enabled):
            raise SettingError(
                "aclEnable",
                "true",
                "authenticationEnabled=true, authorizationEnabled=true and migrateAuthFromV1Enabled=true with it: ACL 1.0 has no"
                " effect by itself, its accounts in plain_acl.yml become users and policies",
            )
        if self.migrate_auth_from_v1_enabled and not self.authentication_enabled:
            raise SettingError("migrateAuthFromV1Enabled", "true", "authenticationEnabled=true with it")
        for key, name, known in self._class_names():
            if name is not None and name not in known:
                raise SettingError(key, name, "one of " + ", ".join(known))
        whitelisted_codes("authenticationWhitelist", self.authentication_whitelist)
        whitelisted_codes("authorizationWhitelist", self.authorization_whitelist)
        self.initial_user()
        self.inner_credentials()

    def initial_user(self) -> UserSecret | None:
        """Return the user of initAuthenticationUser."""
        return _user("initAuthenticationUser", self.init_authentication_user, "username", "password")

    def inner_credentials(self) -> UserSecret | None:
        """Return the user of innerClientAuthenticationCredentials."""
        return _user(
            "innerClientAuthenticationCredentials", self.inner_client_authentication_credentials, "accessKey", "secretKey"
        )

    def _class_names(self) -> list[tuple[str, str | None, list[str]]]:
        """Return key, value and Apache's class names of each provider and strategy."""
        names: list[tuple[str, str | None, list[str]]] = []
        for package, provider, metadata, strategy, kind, key in (
            (
                _AUTHENTICATION,
                self.authentication_provider,
                self.authentication_metadata_provider,
                self.authentication_strategy,
                "Authentication",
                "authentication",
            ),
            (
                _AUTHORIZATION,
                self.authorization_provider,
                self.authorization_metadata_provider,
                self.authorization_strategy,
                "Authorization",
                "authorization",
            ),
        ):
            names.append((f"{key}Provider", provider, [f"{package}.provider.Default{kind}Provider"]))
            names.append((f"{key}MetadataProvider", metadata, [f"{package}.provider.Local{kind}MetadataProvider"]))
            strategies = [f"{package}.strategy.{which}{kind}Strategy" for which in ("Stateless", "Stateful")]
            names.append((f"{key}Strategy", strategy, strategies))
        return names


def whitelisted_codes(key: str, text: str) -> frozenset[int]:
    """Return the request codes of a whitelist."""
    codes = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part.isascii() and part.isdigit():
            codes.add(int(part))
        elif not part.startswith(_GRPC_MESSAGES):
            raise SettingError(key, text, f"request codes joined by commas, unlike {part}")
    return frozenset(codes)


def _user(key: str, secret: Secret | None, name_field: str, password_field: str) -> UserSecret | None:
    if secret is None:
        return None
    try:
        found: Any = orjson.loads(secret.reveal())
    except orjson.JSONDecodeError:
        found = None
    name, password = (found.get(name_field), found.get(password_field)) if isinstance(found, dict) else (None, None)
    if not (isinstance(name, str) and name.strip() and isinstance(password, str) and password.strip()):
        raise SettingError(key, MASK, f'{{"{name_field}":"...","{password_field}":"..."}}, neither of them blank')
    return UserSecret(name, Secret(password))
