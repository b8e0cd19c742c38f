"""The users that exist when a server starts."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from firearrow.auth.bootstrap import inner_signer, open_table
from firearrow.auth.table import AuthTable
from firearrow.auth.users import UserType
from firearrow.config.fields import apply
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.atomic_file import TableError
from firearrow.store.filesystem import RealDisk
from tests.auth.kit import Users

ON = {"authenticationEnabled": "true"}
USER = '{"username":"root","password":"p1"}'
INNER = '{"accessKey":"inner","secretKey":"p2"}'


def opened(directory: Path, values: dict[str, str], accounts: Any = lambda: []) -> AuthTable | None:
    settings = NamesrvSettings()
    apply([settings], values)
    return open_table(settings, RealDisk(), str(directory), lambda: 1, accounts)


def test_without_authentication_there_is_no_table(tmp_path: Path) -> None:
    assert opened(tmp_path, {"initAuthenticationUser": USER}) is None
    assert list(tmp_path.iterdir()) == []


def test_first_start_creates_a_super_user_with_a_random_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tmp_path / "config"
    with caplog.at_level(logging.DEBUG):
        table = opened(config, ON)
    assert table is not None
    file = config / "admin_credentials.json"
    written = json.loads(file.read_text())
    user = table.find(written["accessKey"])
    assert user is not None
    assert user.is_super
    assert user.password.reveal() == written["secretKey"]
    assert len(written["secretKey"]) >= 32
    assert str(file) in caplog.text
    assert written["secretKey"] not in caplog.text
    assert [oct(path.stat().st_mode & 0o777) for path in (file, config / "auth.json")] == ["0o600", "0o600"]
    file.unlink()
    again = opened(config, ON)
    assert again is not None
    assert again.to_json() == table.to_json()
    assert not file.exists()


def test_users_of_the_settings_are_created_once(tmp_path: Path) -> None:
    values = ON | {"initAuthenticationUser": USER, "innerClientAuthenticationCredentials": INNER}
    table = opened(tmp_path, values)
    assert table is not None
    assert [(user.name, user.type) for user in table.users()] == [("root", UserType.SUPER), ("inner", UserType.SUPER)]
    again = opened(tmp_path, values | {"initAuthenticationUser": USER.replace("p1", "p3")})
    assert again is not None
    root = again.find("root")
    assert root is not None
    assert root.password.reveal() == "p1"


def test_accounts_are_read_only_for_a_migration(tmp_path: Path) -> None:
    def accounts() -> Any:
        table = Users("alice").table
        return [(user, None) for user in table.users()]

    assert opened(tmp_path / "a", ON | {"initAuthenticationUser": USER}, lambda: pytest.fail("not asked for")) is not None
    table = opened(tmp_path / "b", ON | {"migrateAuthFromV1Enabled": "true"}, accounts)
    assert table is not None
    assert [user.name for user in table.users()] == ["root", "alice"]


def test_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("{")
    with pytest.raises(TableError, match=r"auth\.json"):
        opened(tmp_path, ON)


def test_inner_credentials_sign_requests() -> None:
    settings = NamesrvSettings()
    assert inner_signer(settings) is None
    apply([settings], {"innerClientAuthenticationCredentials": INNER})
    signer = inner_signer(settings)
    assert signer is not None
    assert signer.signed({}, b"")["AccessKey"] == "inner"
