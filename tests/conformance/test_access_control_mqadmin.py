"""Apache's tools and their signatures against servers with access control."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance import servers
from tests.conformance.agent import Agent

ROOT = '{"username":"rootuser","password":"12345678"}'
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": ROOT,
    "innerClientAuthenticationCredentials": '{"accessKey":"inneruser","secretKey":"12345678"}',
}
pytestmark = pytest.mark.skipif(servers.TARGET != "firearrow", reason="the settings are ours")


def tool(version: str, directory: Path, keys: tuple[str, str] | None) -> Agent:
    conf = directory / "conf"
    conf.mkdir(parents=True)
    if keys is not None:
        (conf / "tools.yml").write_text(f"accessKey: {keys[0]}\nsecretKey: {keys[1]}\n")
    return Agent(version, directory, with_tools=True)


@pytest.mark.parametrize("version", ["4.9.8", "5.5.0"])
def test_mqadmin_with_right_wrong_and_missing_credentials(version: str, tmp_path: Path) -> None:
    cluster = servers.start(tmp_path / "servers", SETTINGS)
    try:
        command = ["updateTopic", "-n", cluster.namesrv, "-b", cluster.broker, "-t", "Orders"]
        outcomes = {}
        for name, keys in (("right", ("rootuser", "12345678")), ("wrong", ("rootuser", "12345679")), ("missing", None)):
            agent = tool(version, tmp_path / name, keys)
            try:
                (outcomes[name],) = agent.mqadmin([command])
            finally:
                agent.close()
        assert "create topic to" in outcomes["right"]
        assert "check signature failed." in outcomes["wrong"]
        assert "username cannot be null." in outcomes["missing"]
    finally:
        cluster.dispose()


def test_users_and_policies_of_the_administration_tool(tmp_path: Path) -> None:
    cluster = servers.start(tmp_path / "servers", SETTINGS)
    broker, namesrv = ["-b", cluster.broker], ["-n", cluster.namesrv]
    root = tool("5.5.0", tmp_path / "root", ("rootuser", "12345678"))
    try:
        for command, expected in (
            (["updateTopic", *namesrv, *broker, "-t", "Orders"], "create topic to"),
            (["createUser", *broker, "-u", "alice", "-p", "12345678", "-t", "Normal"], "create user to"),
            # Name servers have users of their own; the tool reaches them as it reaches a broker.
            (["createUser", "-b", cluster.namesrv, "-u", "alice", "-p", "12345678", "-t", "Normal"], "create user to"),
            (["createAcl", *broker, "-s", "User:alice", "-r", "Topic:Orders", "-a", "Pub", "-d", "Allow"], "create acl to"),
            (["getUser", *broker, "-u", "alice"], "Normal"),
            (["listUser", *broker], "******"),
            (["getAcl", *broker, "-s", "User:alice"], "Topic:Orders"),
            (["listAcl", *broker], "User:alice"),
            (["createUser", *broker, "-u", "bob", "-p", "12345678", "-t", "Normal"], "create user to"),
            (["createAcl", *broker, "-s", "User:bob", "-r", "Topic:Orders", "-a", "Sub", "-d", "Allow"], "create acl to"),
            (["copyUser", "-f", cluster.broker, "-t", cluster.namesrv, "-u", "bob"], "copy user of bob from"),
            (["copyAcl", "-f", cluster.broker, "-t", cluster.namesrv, "-s", "User:bob"], "copy acl of User:bob from"),
            (["getAcl", "-b", cluster.namesrv, "-s", "User:bob"], "Topic:Orders"),
        ):
            (text,) = root.mqadmin([command])
            assert expected in text, (command, text)
        alice = tool("5.5.0", tmp_path / "alice", ("alice", "12345678"))
        try:
            (sent,) = alice.mqadmin([["sendMessage", *namesrv, "-t", "Orders", "-p", "hello"]])
            assert "SEND_OK" in sent
            (refused,) = alice.mqadmin([["getUser", *broker, "-u", "rootuser"]])
            assert "User:alice has no permission to access Cluster:DefaultCluster" in refused
        finally:
            alice.close()
    finally:
        root.close()
        cluster.dispose()
