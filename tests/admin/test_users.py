from __future__ import annotations

from collections.abc import Iterator

import pytest

from firearrow.admin.errors import AdminError, NotFoundError
from firearrow.admin.sync import Admin
from firearrow.client.errors import BrokerError
from firearrow.client.options import Credentials
from tests.support.auth_server import AuthCluster


@pytest.fixture
def cluster() -> Iterator[AuthCluster]:
    with AuthCluster() as cluster:
        yield cluster


def test_users_are_created_changed_listed_and_deleted(cluster: AuthCluster) -> None:
    with Admin(cluster.name_server) as admin:
        assert admin.create_user("alice", "hidden") == [cluster.master.address]
        assert cluster.master.users["alice"]["password"] == "hidden"
        assert cluster.slave.users == {}
        admin.update_user("alice", user_status="disable")
        assert cluster.master.users["alice"] == {
            "username": "alice", "password": "hidden", "userType": "Normal", "userStatus": "disable"
        }  # fmt: skip
        (user,) = admin.get_user("alice")
        assert (user.user_type, user.user_status, user.servers) == ("Normal", "disable", (cluster.master.address,))
        assert "hidden" not in repr(admin.list_users())
        admin.delete_user("alice")
        with pytest.raises(NotFoundError, match="user 'alice' does not exist"):
            admin.get_user("alice")


def test_replicas_and_name_servers_are_chosen_explicitly(cluster: AuthCluster) -> None:
    with Admin(cluster.name_server) as admin:
        assert admin.create_user("alice", "x", replicas=True) == [cluster.master.address, cluster.slave.address]
        assert admin.create_user("bob", "x", name_servers=True) == [cluster.name_server]
        assert admin.create_user("carol", "x", broker=cluster.slave.address) == [cluster.slave.address]
        assert admin.create_user("dave", "x", user_type="Super", cluster="C") == [cluster.master.address]
        with pytest.raises(BrokerError, match="The user is existed"):
            admin.create_user("alice", "y")


def test_servers_that_know_a_user_differently_are_listed_apart(cluster: AuthCluster) -> None:
    with Admin(cluster.name_server) as admin:
        admin.create_user("alice", "x", replicas=True)
        admin.update_user("alice", user_type="Super", broker=cluster.slave.address)
        found = admin.get_user("alice", replicas=True)
        assert [(user.user_type, user.servers) for user in found] == [
            ("Normal", (cluster.master.address,)),
            ("Super", (cluster.slave.address,)),
        ]


def test_users_are_copied_with_their_passwords(cluster: AuthCluster) -> None:
    source, target = cluster.master.address, cluster.slave.address
    with Admin(cluster.name_server) as admin:
        admin.create_user("alice", "secret")
        admin.copy_user("alice", source, target)
        admin.copy_user("alice", source, target)
        assert cluster.slave.users["alice"]["password"] == "secret"
        cluster.master.users["alice"]["password"] = "******"
        with pytest.raises(AdminError, match="does not reveal the password"):
            admin.copy_user("alice", source, target)
        with pytest.raises(NotFoundError):
            admin.copy_user("bob", source, target)


def test_permissions_are_added_replaced_listed_and_deleted(cluster: AuthCluster) -> None:
    with Admin(cluster.name_server) as admin:
        admin.create_acl("alice", ["Topic:T", "Group:G"], ["Sub"])
        admin.update_acl("User:alice", ["Topic:T"], ["Pub", "Sub"], source_ips=["10.0.0.0/8"], decision="Deny")
        group, topic = admin.get_acl("alice")
        assert (group.resource, group.actions, group.source_ips, group.decision) == ("Group:G", ("Sub",), (), "Allow")
        assert (topic.resource, topic.actions, topic.source_ips, topic.decision) == (
            "Topic:T", ("Pub", "Sub"), ("10.0.0.0/8",), "Deny"
        )  # fmt: skip
        assert topic.policy_type == "Custom"
        assert topic.servers == (cluster.master.address,)
        admin.copy_acl("alice", cluster.master.address, cluster.slave.address)
        assert cluster.slave.acls == cluster.master.acls
        admin.delete_acl("alice", resource="Topic:T")
        assert [one.resource for one in admin.list_acls(subject="ali")] == ["Group:G"]
        admin.delete_acl("alice")
        with pytest.raises(NotFoundError, match="User:alice has no access control list"):
            admin.get_acl("alice")


def test_requests_are_signed(cluster: AuthCluster) -> None:
    with Admin(cluster.name_server, credentials=Credentials("admin", "secret")) as admin:
        admin.create_user("alice", "x")
    assert all(command.ext["AccessKey"] == "admin" and command.ext["Signature"] for command in cluster.master.seen)
