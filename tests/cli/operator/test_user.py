"""`firearrow user`, `firearrow acl` and the subcommands of mqadmin for users."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firearrow.cli.main import run as run_command
from tests.cli.operator.kit import rows
from tests.support.auth_server import AuthCluster

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster() -> Iterator[AuthCluster]:
    with AuthCluster() as cluster:
        yield cluster


@pytest.fixture
def run(cluster: AuthCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))

    def call(*words: str) -> tuple[int, str, str]:
        code = run_command(words)
        return code, *capsys.readouterr()

    return call


def test_user_with_a_generated_password(run: Run, cluster: AuthCluster) -> None:
    code, out, _ = run("user", "create", "alice", "--generate")

    password = cluster.master.users["alice"]["password"]
    assert code == 0
    assert len(password) >= 32
    assert out == f"created user alice on 1 server\npassword: {password}\n"


def test_password_comes_from_a_file_and_is_not_printed(run: Run, cluster: AuthCluster, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hidden\n")

    code, out, err = run("user", "create", "alice", "--type", "super", "--password-file", str(tmp_path / "password"))

    assert (code, out, err) == (0, "created user alice on 1 server\n", "")
    assert cluster.master.users["alice"]["password"] == "hidden"
    assert cluster.master.users["alice"]["userType"] == "Super"
    for words in (["user", "get", "alice"], ["user", "list"], ["user", "list", "-o", "json"]):
        assert "hidden" not in run(*words)[1]


def test_users_are_updated_shown_and_deleted(run: Run, cluster: AuthCluster) -> None:
    run("user", "create", "alice", "--generate")
    assert run("user", "update", "alice", "--status", "disable") == (0, "changed user alice on 1 server\n", "")
    assert rows(run("user", "get", "alice", "-o", "json")[1]) == [
        {"username": "alice", "user_type": "Normal", "user_status": "disable", "servers": [cluster.master.address]}
    ]
    assert run("user", "delete", "alice")[0] == 2
    assert run("user", "delete", "alice", "--yes") == (0, "deleted user alice on 1 server\n", "")
    assert run("user", "get", "alice")[0] == 1


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("user create alice", "no password; without a terminal, pass --password-file or --generate"),
        ("user update alice", "nothing to change"),
        ("user list --broker b --name-servers", "--broker and --name-servers exclude each other"),
        ("acl create alice --action Pub", "missing option '--resource'"),
        ("acl create alice --resource Topic:T --action Any", "'Any' is not one of"),
    ],
)
def test_incomplete_commands_are_usage_errors(run: Run, words: str, error: str) -> None:
    code, _, err = run(*words.split())
    assert code == 2
    assert error in err


def test_permissions_are_added_shown_and_deleted(run: Run, cluster: AuthCluster) -> None:
    words = "acl create alice --resource Topic:T --resource Group:G --action sub --action Get --source-ip 10.0.0.0/8"
    assert run(*words.split()) == (0, "added the permissions of alice on Topic:T, Group:G on 1 server\n", "")
    assert cluster.master.acls["User:alice"][0] == {
        "actions": ["Sub", "Get"], "decision": "Allow", "resource": "Topic:T", "sourceIps": ["10.0.0.0/8"]
    }  # fmt: skip
    assert run("acl", "update", "alice", "--resource", "Topic:T", "--action", "Pub", "--decision", "deny")[0] == 0
    found = {one["resource"]: one for one in rows(run("acl", "get", "alice", "-o", "json")[1])}
    assert (found["Topic:T"]["decision"], found["Topic:T"]["actions"]) == ("Deny", ["Pub"])
    assert "Group:G" in run("acl", "list", "--user", "ali")[1]
    assert run("acl", "delete", "alice", "--resource", "Topic:T", "--yes")[0] == 0
    assert [one["resource"] for one in json.loads(run("acl", "list", "-o", "json")[1])] == ["Group:G"]


def test_mqadmin_manages_users_as_apaches_tool(run: Run, cluster: AuthCluster) -> None:
    master, slave = cluster.master.address, cluster.slave.address
    assert run("mqadmin", "createUser", "-c", "C", "-u", "alice", "-p", "secret", "-t", "Super")[1] == (
        f"create user to {master} success.\ncreate user to {slave} success.\n"
    )
    assert run("mqadmin", "updateUser", "-b", master, "-u", "alice", "-s", "disable")[1] == f"update user to {master} success.\n"
    title, row, done = run("mqadmin", "getUser", "-c", "C", "-u", "alice")[1].splitlines()
    assert title.split() == ["#UserName", "#Password", "#UserType", "#UserStatus"]
    assert row.split() == ["alice", "secret", "Super", "disable"]
    assert done == f"get user from {master} success."
    assert run("mqadmin", "listUser", "-b", master, "-f", "ali")[1].splitlines()[1].split()[0] == "alice"
    assert run("mqadmin", "copyUser", "-f", master, "-t", slave)[1] == f"copy user of alice from {master} to {slave} success.\n"
    assert cluster.slave.users["alice"]["userStatus"] == "disable"
    assert run("mqadmin", "deleteUser", "-b", slave, "-u", "alice", "--yes")[1] == f"delete user to {slave} success.\n"
    assert run("mqadmin", "createUser", "-b", master, "-u", "alice", "-p", "x")[0] == 1


def test_mqadmin_manages_permissions_as_apaches_tool(run: Run, cluster: AuthCluster) -> None:
    master, slave = cluster.master.address, cluster.slave.address
    entry = ["-s", "User:alice", "-r", "Topic:T,Group:G", "-a", "Pub, Sub", "-d", "Allow"]
    assert run("mqadmin", "createAcl", "-b", master, *entry)[1] == f"create acl to {master} success.\n"
    assert run("mqadmin", "updateAcl", "-b", master, *entry, "-i", "10.0.0.1")[1] == f"update acl to {master} success.\n"
    title, row, _ = run("mqadmin", "getAcl", "-b", master, "-s", "User:alice")[1].splitlines()
    assert title.split() == ["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"]
    assert row.split() == ["User:alice", "Custom", "Topic:T", "[Pub,", "Sub]", "[10.0.0.1]", "Allow"]
    assert run("mqadmin", "listAcl", "-c", "C")[1].splitlines()[-1] == f"list acls from {master} success."
    assert run("mqadmin", "copyAcl", "-f", master, "-t", slave)[1] == (
        f"copy acl of User:alice from {master} to {slave} success.\n"
    )
    assert run("mqadmin", "deleteAcl", "-b", slave, "-s", "User:alice", "-r", "Topic:T", "--yes")[0] == 0
    assert [one["resource"] for one in cluster.slave.acls["User:alice"]] == ["Group:G"]
    assert run("mqadmin", "listAcl", "-b", slave, "-s", "nobody")[1] == "there is no acl found.\n"
