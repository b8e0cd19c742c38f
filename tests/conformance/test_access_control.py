"""Users and policies: our tools on Apache's broker and on ours, and clients with right, wrong and missing credentials."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import firearrow as fa
from firearrow.admin.sync import Admin
from firearrow.cli.main import run as run_command
from firearrow.client.errors import BrokerError
from firearrow.client.options import Credentials
from tests.conformance import builds, servers
from tests.conformance.conftest import fresh
from tests.conformance.servers import Cluster
from tests.conformance.test_other_clients import COUNT, go_command, node_command

ADMIN = Credentials("admin", "a long secret of the administrator")
_AUTH = "org.apache.rocketmq.auth"
SETTINGS = {
    "waitTimeMillsInSendQueue": "10000",  # Apache rejects sends on an overloaded machine
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": ADMIN.access_key, "password": ADMIN.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "broker", "secretKey": "a long secret of the broker"}),
}


@pytest.fixture(scope="module", params=["apache", "firearrow"])
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose broker checks signatures and permissions."""
    running = servers.start(tmp_path_factory.mktemp("protected"), SETTINGS, kind=request.param)
    yield running
    running.dispose()


@pytest.fixture
def keys(tmp_path: Path) -> str:
    """The path of a file with the keys of the administrator, in the format of Apache's tools.yml."""
    path = tmp_path / "tools.yml"
    path.write_text(f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n")
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def tool(protected: Cluster, keys: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run one of our commands as the administrator and return its output."""

    def run(*words: str) -> str:
        code = run_command([*words, "-n", protected.namesrv, "--credentials-file", keys])
        out, err = capsys.readouterr()
        assert code == 0, err
        return out

    return run


def create_client_user(protected: Cluster, topic: str, group: str) -> Credentials:
    """Return the credentials of a new user that may send to a topic and consume it."""
    user = Credentials(fresh("user"), "a long secret of a client")
    with Admin(protected.namesrv, credentials=ADMIN) as admin:
        admin.create_topic(topic, queues=2)
        admin.create_user(user.access_key, user.secret_key)
        admin.create_acl(user.access_key, [f"Topic:{topic}"], ["Pub", "Sub", "Get"])
        admin.create_acl(user.access_key, [f"Group:{group}"], ["Sub"])
    return user


def test_our_tools_manage_users_and_policies(tool: Callable[..., str], protected: Cluster) -> None:
    name, at = fresh("alice"), protected.broker
    assert tool("mqadmin", "createUser", "-b", at, "-u", name, "-p", "secret-1") == f"create user to {at} success.\n"
    assert tool("mqadmin", "updateUser", "-b", at, "-u", name, "-s", "disable") == f"update user to {at} success.\n"
    assert tool("mqadmin", "getUser", "-b", at, "-u", name).splitlines()[1].split()[2:] == ["Normal", "disable"]
    assert json.loads(tool("user", "get", name, "-o", "json"))[0]["user_status"] == "disable"
    entry = ["-s", f"User:{name}", "-r", "Topic:T,Group:G", "-a", "Pub,Sub", "-i", "10.0.0.0/8", "-d", "Deny"]
    assert tool("mqadmin", "createAcl", "-b", at, *entry) == f"create acl to {at} success.\n"
    tool("acl", "update", name, "--resource", "Topic:T", "--action", "Get", "--broker", at)
    found = {one["resource"]: one for one in json.loads(tool("acl", "get", name, "-o", "json"))}
    assert found["Topic:T"]["actions"] == ["Get"]
    assert (found["Group:G"]["decision"], found["Group:G"]["source_ips"]) == ("Deny", ["10.0.0.0/8"])
    tool("acl", "delete", name, "--resource", "Topic:T", "--broker", at, "--yes")
    assert [one["resource"] for one in json.loads(tool("acl", "get", name, "-o", "json"))] == ["Group:G"]
    tool("user", "delete", name, "--yes")
    assert name not in tool("mqadmin", "listUser", "-b", at)


def test_python_client_needs_the_right_credentials(protected: Cluster) -> None:
    topic, group = fresh("Topic"), fresh("group")
    right = create_client_user(protected, topic, group)

    with fa.Producer(protected.namesrv, credentials=right) as producer:
        producer.send(fa.Message(topic, b"hello"))
        with pytest.raises(BrokerError, match=r"has no permission|No permission"):
            producer.send(fa.Message(f"{topic}-other", b"x"))
    with fa.PullConsumer(protected.namesrv, group=group, topics=[topic], credentials=right, start_from="earliest") as consumer:
        assert [message.body for message in consumer.poll(60)] == [b"hello"]
    wrong = Credentials(right.access_key, "not the secret")
    for credentials in (wrong, Credentials("unknown", "secret"), None):
        with fa.Producer(protected.namesrv, credentials=credentials) as producer, pytest.raises(BrokerError) as raised:
            producer.send(fa.Message(topic, b"x"))
        assert raised.value.code == 16


@pytest.mark.parametrize(("tools", "command"), [(["go"], go_command), (["node", "npm"], node_command)], ids=["go", "node"])
def test_other_clients_need_the_right_credentials(
    protected: Cluster, tmp_path: Path, tools: list[str], command: Callable[[], list[str]]
) -> None:
    reason = builds.missing_tools(*tools)
    if reason is not None:
        pytest.skip(reason)
    topic, group = fresh("Topic"), fresh("group")
    right = create_client_user(protected, topic, group)

    def run(credentials: Credentials | None) -> subprocess.CompletedProcess[str]:
        keys = {} if credentials is None else {"ACCESS_KEY": credentials.access_key, "SECRET_KEY": credentials.secret_key}
        return subprocess.run(
            [*command(), protected.namesrv, topic, group, str(COUNT)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=150,
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **keys},
        )

    for credentials in (Credentials(right.access_key, "not the secret"), None):
        refused = run(credentials)
        assert refused.returncode != 0
        assert '"sent"' not in refused.stdout
    done = run(right)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    result = json.loads(done.stdout.splitlines()[-1])
    assert sorted(one["body"] for one in result["received"]) == sorted(one["body"] for one in result["sent"])


@pytest.fixture
def java_mqadmin(protected: Cluster, keys: str, tmp_path: Path) -> Callable[..., str]:
    """Run a command of Apache's mqadmin as the administrator, with its tools.yml, and return its output."""
    (tmp_path / "conf").mkdir()
    Path(keys).rename(tmp_path / "conf" / "tools.yml")

    def run(*words: str) -> str:
        home = [f"-Drocketmq.home.dir={tmp_path}", f"-Duser.home={tmp_path}"]
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        done = subprocess.run(
            ["java", *servers.SMALL_JVM, *home, "-cp", builds.java_server(), main, *words, "-n", protected.namesrv],
            capture_output=True,
            check=False,
            text=True,
            timeout=120,
            cwd=tmp_path,
        )
        return done.stdout + done.stderr

    return run


def test_apaches_mqadmin_manages_users_and_policies(java_mqadmin: Callable[..., str], protected: Cluster) -> None:
    name, at = fresh("bob"), protected.broker
    assert f"create user to {at} success." in java_mqadmin("createUser", "-b", at, "-u", name, "-p", "secret-1", "-t", "Normal")
    assert "The user is existed" in java_mqadmin("createUser", "-b", at, "-u", name, "-p", "secret-1", "-t", "Normal")
    assert f"update user to {at} success." in java_mqadmin("updateUser", "-b", at, "-u", name, "-s", "disable")
    shown = java_mqadmin("getUser", "-b", at, "-u", name)
    assert [line.split() for line in shown.splitlines() if line.startswith(name)] == [[name, "secret-1", "Normal", "disable"]]
    entry = ["-s", f"User:{name}", "-r", "Topic:T,Group:G", "-a", "Pub,Sub", "-d", "Allow"]
    assert f"create acl to {at} success." in java_mqadmin("createAcl", "-c", protected.cluster_name, *entry)
    assert f"update acl to {at} success." in java_mqadmin("updateAcl", "-b", at, *entry, "-i", "10.0.0.0/8")
    shown = java_mqadmin("getAcl", "-b", at, "-s", f"User:{name}")
    assert [line.split()[2:] for line in shown.splitlines() if line.startswith(f"User:{name}")] == [
        ["Topic:T", "[Pub,", "Sub]", "[10.0.0.0/8]", "Allow"],
        ["Group:G", "[Pub,", "Sub]", "[10.0.0.0/8]", "Allow"],
    ]
    assert name in java_mqadmin("listUser", "-b", at, "-f", "bob")
    assert f"User:{name}" in java_mqadmin("listAcl", "-b", at, "-s", name)
    assert f"delete acl to {at} success." in java_mqadmin("deleteAcl", "-b", at, "-s", f"User:{name}")
    assert f"delete user to {at} success." in java_mqadmin("deleteUser", "-b", at, "-u", name)
    with Admin(protected.namesrv, credentials=ADMIN) as admin:
        assert admin.find_user(at, name) is None
