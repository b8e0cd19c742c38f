from __future__ import annotations

import json

from tests.cli.operator.kit import Firearrow, rows


def test_brokers_settings_and_key_value_configuration(firearrow: Firearrow) -> None:
    (broker,) = rows(firearrow("broker", "list", "-o", "json")[1])
    assert (broker["broker"], broker["problem"]) == ("broker-a", None)
    assert json.loads(firearrow("broker", "status", "broker-a", "-o", "json")[1])["brokerVersionDesc"] == "V5_5_0"
    assert firearrow("broker", "stats", "broker-a", "NO_SUCH_NUMS", "x") == (0, "", "nothing found\n")
    assert firearrow("broker", "wipe", "broker-a", "--yes")[0] == 0
    assert firearrow("broker", "allow", "broker-a")[0] == 0
    assert firearrow("broker", "clean", "broker-a", "queues", "--yes")[0] == 0
    assert json.loads(firearrow("broker", "replication", "broker-a", "-o", "json")[1])["master"] is True
    assert firearrow("config", "set", "--broker", "broker-a", "fileReservedTime=48", "--yes")[0] == 0
    assert rows(firearrow("config", "get", "--broker", "broker-a", "filereserved", "-o", "json")[1])[0]["value"] == "48"
    code, _, err = firearrow("config", "set", "--broker", "broker-a", "storePathRootDir=/x", "--yes")
    assert (code, "storePathRootDir" in err) == (1, True)
    assert firearrow("config", "kv-put", "n", "k", "v", "--yes")[0] == 0
    assert firearrow("config", "kv-get", "n", "k") == (0, "v\n", "")
    assert rows(firearrow("config", "kv-list", "n", "-o", "json")[1]) == [{"namespace": "n", "key": "k", "value": "v"}]
    assert firearrow("config", "kv-delete", "n", "k", "--yes")[0] == 0
    assert firearrow("config", "kv-get", "n", "k")[0] == 1
    assert "listenPort" in firearrow("config", "get", "--name-servers")[1]
    (cluster,) = rows(firearrow("cluster", "list", "-o", "json")[1])
    assert (cluster["masters"], cluster["unreachable"]) == (1, [])
    assert rows(firearrow("cluster", "show", "-o", "json")[1])[0]["broker"] == "broker-a"
    assert firearrow("broker", "status", "nobody")[0] == 1
