from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.cli.arguments import CLUSTER_FORMS
from firearrow.cli.local_cluster.topology import FORMS, Endpoint, plan
from firearrow.config.fields import apply
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings


def endpoints(form: str) -> list[Endpoint]:
    return [Endpoint("127.0.0.1", 10911 + 10 * index) for index in range(len(FORMS[form]))]


def test_every_form_of_the_command_line_exists() -> None:
    assert tuple(FORMS) == CLUSTER_FORMS


@pytest.mark.parametrize("form", CLUSTER_FORMS)
def test_configuration_of_members_is_valid(form: str, tmp_path: Path) -> None:
    namesrv, *brokers = plan(form, tmp_path, Endpoint("127.0.0.1", 9876), endpoints(form))
    assert apply([NamesrvSettings()], namesrv.settings) == []
    for member in brokers:
        broker, store = BrokerSettings(), StoreSettings()
        assert apply([broker, store], member.settings) == []
        assert broker.namesrv_addr == "127.0.0.1:9876"
        assert store.store_path_root_dir == str(tmp_path / member.name / "store")
    names = [member.name for member in brokers]
    assert len(set(names)) == len(names)
    ports = [int(member.settings["listenPort"]) + gap for member in brokers for gap in (-2, 0, 1, 3)]
    assert len(set(ports)) == len(ports)


def test_slave_is_configured_with_the_address_of_its_master(tmp_path: Path) -> None:
    members = {
        one.name: one.settings for one in plan("2m-2s-sync", tmp_path, Endpoint("127.0.0.1", 9876), endpoints("2m-2s-sync"))
    }
    assert members["broker-b"]["haListenPort"] == "10922"
    assert members["broker-b-slave"]["haMasterAddress"] == "127.0.0.1:10922"
    assert {key: members["broker-b-slave"][key] for key in ("brokerName", "brokerRole", "brokerId")} == {
        "brokerName": "broker-b",
        "brokerRole": "SLAVE",
        "brokerId": "1",
    }


def test_elected_members_are_configured_with_each_other(tmp_path: Path) -> None:
    members = {
        one.name: one.settings for one in plan("2xdledger-3", tmp_path, Endpoint("127.0.0.1", 9876), endpoints("2xdledger-3"))
    }
    assert members["broker-b-n1"]["dLegerSelfId"] == "n1"
    assert members["broker-b-n1"]["dLegerGroup"] == members["broker-b-n1"]["brokerName"] == "broker-b"
    assert members["broker-b-n1"]["dLegerPeers"] == "n0-127.0.0.1:10944;n1-127.0.0.1:10954;n2-127.0.0.1:10964"
    assert members["broker-a-n2"]["dLegerPeers"] == "n0-127.0.0.1:10914;n1-127.0.0.1:10924;n2-127.0.0.1:10934"
