"""Options for credentials and TLS of the commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from firearrow.cli.command import explain
from firearrow.cli.main import run as run_command
from firearrow.cli.security import (
    ACCESS_KEY_VARIABLE,
    CREDENTIALS_FILE_VARIABLE,
    SECRET_KEY_VARIABLE,
    SecurityArguments,
)
from firearrow.client.errors import BrokerError
from firearrow.client.options import Credentials
from tests.cli.process import ANY_PORTS, Start, read_json
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE, CREDENTIALS_FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def keys_in(path: Path, access_key: str) -> str:
    path.write_text(f"accessKey: {access_key}\nsecretKey: secret\n")
    path.chmod(0o600)
    return str(path)


def test_keys_come_from_options_then_the_environment_then_the_default_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = keys_in(tmp_path / "tools.yml", "default")
    assert SecurityArguments().credentials() is None
    assert SecurityArguments(default_file=str(tmp_path / "none")).credentials() is None
    assert SecurityArguments(default_file=default).credentials() == Credentials("default", "secret")
    monkeypatch.setenv(CREDENTIALS_FILE_VARIABLE, keys_in(tmp_path / "env", "of_the_file"))
    assert SecurityArguments(default_file=default).credentials() == Credentials("of_the_file", "secret")
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, "of_the_environment")
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "hidden")
    assert SecurityArguments().credentials() == Credentials("of_the_environment", "hidden")
    given = keys_in(tmp_path / "given", "given")
    assert SecurityArguments(credentials_file=given).credentials() == Credentials("given", "secret")
    assert SecurityArguments(access_key="a").credentials() == Credentials("a", "hidden")
    assert SecurityArguments(access_key="a", secret_key="s").credentials() == Credentials("a", "s")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (SecurityArguments(access_key="a"), SECRET_KEY_VARIABLE),
        (SecurityArguments(secret_key="s"), "--secret-key is given without --access-key"),
        (SecurityArguments(access_key="a", credentials_file="f"), "exclude each other"),
        (SecurityArguments(credentials_file="/does/not/exist"), "credentials file '/does/not/exist'"),
    ],
)
def test_incomplete_keys_are_usage_errors(given: SecurityArguments, problem: str) -> None:
    with pytest.raises(click.UsageError, match=problem):
        given.credentials()


def test_refusal_of_an_unsigned_request_says_how_to_give_credentials() -> None:
    refused = BrokerError(16, "username cannot be null.", "127.0.0.1:1")
    assert explain(refused, "").endswith(
        "; give credentials with --credentials-file, or $FIREARROW_ACCESS_KEY and $FIREARROW_SECRET_KEY"
    )
    assert explain(BrokerError(16, "check signature failed.", "127.0.0.1:1"), "").endswith("check signature failed.")


def test_data_source_receives_the_path_of_a_credentials_file_instead_of_the_keys(tmp_path: Path) -> None:
    path = keys_in(tmp_path / "keys", "me")

    assert SecurityArguments(credentials_file=path, tls_ca="ca").data_source_options() == {"credentialsFile": path, "tlsCa": "ca"}
    assert SecurityArguments(access_key="a", secret_key="s", tls=True).data_source_options() == {
        "accessKey": "a", "secretKey": "s", "tls": "true"
    }  # fmt: skip


def test_commands_verify_an_encrypted_cluster(start: Start, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    ready = tmp_path / "ready.json"
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(tmp_path / "cert.pem"),
        "tls.server.keyPath": str(tmp_path / "key.pem"),
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    start("up", "--data", str(tmp_path / "data"), *ANY_PORTS, "--ready-file", str(ready), *words)
    wait_until(ready.exists, "the ready file")
    at = ("-n", str(read_json(ready)["namesrv"]))

    assert run_command(["topic", "create", "Encrypted", "--tls-ca", str(tmp_path / "cert.pem"), *at]) == 0
    assert run_command(["mqadmin", "topicList", "--tls-insecure", *at]) == 0
    assert "Encrypted" in capfd.readouterr().out
    assert run_command(["topic", "list", "--tls", *at]) == 1
    assert "certificate verify failed" in capfd.readouterr().err
    assert run_command(["topic", "list", "--tls-ca", str(tmp_path / "none.pem"), *at]) == 2
    assert "tls_ca is" in capfd.readouterr().err
