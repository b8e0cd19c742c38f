"""Accounts of ACL 1.0, read from plain_acl.yml and conf/acl to become users and policies.

An account keeps its keys and its permissions. `admin: true` makes it a Super user. White addresses are not taken over: an address
alone must not replace a signature.

    topicPerms, groupPerms              Custom entries with literal names
    defaultTopicPerm, defaultGroupPerm  Default entries Topic:* and Group:*
    PUB, SUB, PUB|SUB, SUB|PUB          Allow; anything else denies all actions
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final

from firearrow.auth.policies import (
    CUSTOM,
    DEFAULT,
    GROUP,
    TOPIC,
    AccessControlList,
    PolicyEntry,
    PolicyError,
    ResourcePattern,
)
from firearrow.auth.settings import AuthSettings
from firearrow.auth.users import StoredUser, UserType
from firearrow.config.fields import SettingError
from firearrow.config.secret import Secret

HOME_VARIABLE: Final = "ROCKETMQ_HOME"
_MIN_CHARS: Final = 7
_ALLOWED: Final = {"PUB": ("Pub",), "SUB": ("Sub",), "PUB|SUB": ("Pub", "Sub"), "SUB|PUB": ("Pub", "Sub")}


def read_accounts(settings: AuthSettings) -> list[tuple[StoredUser, AccessControlList | None]]:
    """Return the accounts of all files. Raise SettingError if a file is missing or cannot be read."""
    home = settings.rocketmq_home or os.environ.get(HOME_VARIABLE)
    if not home:
        expected = f"the directory that contains conf/plain_acl.yml (or ${HOME_VARIABLE}): migrateAuthFromV1Enabled is true"
        raise SettingError("rocketmqHome", "", expected)
    files = _files(home)
    if not files:
        raise SettingError("rocketmqHome", home, "a directory with conf/plain_acl.yml or conf/acl/*.yml")
    found: dict[str, tuple[StoredUser, AccessControlList | None]] = {}
    for path in files:
        for account in accounts_in(_parse(path), path):
            found.setdefault(account[0].name, account)
    return list(found.values())


def accounts_in(content: Any, path: str) -> list[tuple[StoredUser, AccessControlList | None]]:
    """Return the accounts of a parsed file."""
    accounts = (content.get("accounts") if isinstance(content, dict) else None) or []
    if not isinstance(accounts, list) or not all(isinstance(account, dict) for account in accounts):
        raise _invalid(path, "`accounts` is not a list of objects")
    return [_account(account, path) for account in accounts]


def _account(account: Mapping[str, Any], path: str) -> tuple[StoredUser, AccessControlList | None]:
    name, secret = str(account.get("accessKey") or ""), str(account.get("secretKey") or "")
    if len(name) < _MIN_CHARS or len(secret) < _MIN_CHARS:
        raise _invalid(path, f"accessKey {name!r} or its secretKey has fewer than {_MIN_CHARS} characters")
    is_admin = account.get("admin") is True or str(account.get("admin")).lower() == "true"
    user = StoredUser(name, Secret(secret), UserType.SUPER if is_admin else UserType.NORMAL)
    acl = AccessControlList(user.subject)
    try:
        for kind, key in ((TOPIC, "topicPerms"), (GROUP, "groupPerms")):
            acl = acl.merged(CUSTOM, _entries(kind, account.get(key) or [], path))
        for kind, key in ((TOPIC, "defaultTopicPerm"), (GROUP, "defaultGroupPerm")):
            if account.get(key) is not None:
                acl = acl.merged(DEFAULT, [_entry(ResourcePattern(kind, None), str(account[key]))])
    except PolicyError as error:
        raise _invalid(path, f"account {name!r}: {error}") from error
    return user, acl


def _entries(kind: str, permissions: Any, path: str) -> Iterable[PolicyEntry]:
    if not isinstance(permissions, list):
        raise _invalid(path, "topicPerms and groupPerms are lists of name=permission")
    for permission in permissions:
        name, separator, words = str(permission).partition("=")
        if not separator or not name.strip():
            raise _invalid(path, f"{permission!r} is not name=permission")
        yield _entry(ResourcePattern(kind, name.strip()), words)


def _entry(resource: ResourcePattern, words: str) -> PolicyEntry:
    allowed = _ALLOWED.get(words.replace(" ", "").upper())
    return PolicyEntry(resource, allowed or ("All",), (), allowed is not None)


def _files(home: str) -> list[str]:
    conf = os.path.join(home, "conf")
    found = [path for path in [os.path.join(conf, "plain_acl.yml")] if os.path.exists(path)]
    for directory, folders, names in os.walk(os.path.join(conf, "acl")):
        folders.sort()
        found += [os.path.join(directory, name) for name in sorted(names) if name.endswith((".yml", ".yaml"))]
    return found


def _parse(path: str) -> Any:
    try:
        import yaml
    except ImportError:
        expected = "false, or the package PyYAML, which reads plain_acl.yml: pip install 'firearrow[acl1]'"
        raise SettingError("migrateAuthFromV1Enabled", "true", expected) from None
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise _invalid(path, f"cannot be read: {error}") from error


def _invalid(path: str, problem: str) -> SettingError:
    return SettingError("migrateAuthFromV1Enabled", "true", f"valid accounts in {path}: {problem}")
