"""`firearrow up --cluster FORM`: the forms, and one cluster as real processes that is broken and mended."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.cli.local_cluster.topology import FORMS, Endpoint, plan
from firearrow.cli.main import main
from firearrow.cli.words import FORM_NAMES
from firearrow.config.fields import apply
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings
from tests.cli.process import ANY_PORTS, Start, Started, accepts, failed, read_json, route
from tests.support.waiting import wait_until


def places(form: str) -> list[Endpoint]:
    return [Endpoint("127.0.0.1", 10911 + 10 * index) for index in range(len(FORMS[form]))]


def test_every_form_that_the_command_line_knows_is_made() -> None:
    assert tuple(FORMS) == FORM_NAMES


@pytest.mark.parametrize("form", FORM_NAMES)
def test_what_is_configured_is_what_the_settings_take(form: str, tmp_path: Path) -> None:
    namesrv, *brokers = plan(form, tmp_path, Endpoint("127.0.0.1", 9876), places(form))
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


def test_a_slave_is_told_where_its_own_master_is(tmp_path: Path) -> None:
    members = {one.name: one.settings for one in plan("2m-2s-sync", tmp_path, Endpoint("127.0.0.1", 9876), places("2m-2s-sync"))}
    assert members["broker-b"]["haListenPort"] == "10922"
    assert members["broker-b-slave"]["haMasterAddress"] == "127.0.0.1:10922"
    assert {key: members["broker-b-slave"][key] for key in ("brokerName", "brokerRole", "brokerId")} == {
        "brokerName": "broker-b",
        "brokerRole": "SLAVE",
        "brokerId": "1",
    }


def test_members_of_an_elected_group_know_each_other(tmp_path: Path) -> None:
    members = {
        one.name: one.settings for one in plan("2xdledger-3", tmp_path, Endpoint("127.0.0.1", 9876), places("2xdledger-3"))
    }
    assert members["broker-b-n1"]["dLegerSelfId"] == "n1"
    assert members["broker-b-n1"]["dLegerGroup"] == members["broker-b-n1"]["brokerName"] == "broker-b"
    assert members["broker-b-n1"]["dLegerPeers"] == "n0-127.0.0.1:10944;n1-127.0.0.1:10954;n2-127.0.0.1:10964"
    assert members["broker-a-n2"]["dLegerPeers"] == "n0-127.0.0.1:10914;n1-127.0.0.1:10924;n2-127.0.0.1:10934"


def up(start: Start, form: str, *more: str) -> tuple[Started, dict[str, str]]:
    """A cluster that is ready, and the addresses of its members."""
    process = start("up", "--cluster", form, "--data", "data", *ANY_PORTS, "--ready-file", "ready.json", *more)
    line = process.line()
    ready = read_json(process.log_path.parent / "ready.json")
    assert line.startswith(f"firearrow ready  cluster {form}  namesrv {ready['namesrv']}  {ready['names'][0]} ")
    return process, {"namesrv": ready["namesrv"], **dict(zip(ready["names"], ready["brokers"], strict=True))}


def test_a_cluster_is_broken_and_mended(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "2m-2s-async", "--set", "flushDiskType=ASYNC_FLUSH")
    assert list(members) == ["namesrv", "broker-a", "broker-b", "broker-a-slave", "broker-b-slave"]

    def cluster(*words: str) -> tuple[int, str, str]:
        one = start("cluster", *words, "--data", "data")
        out, _ = one.process.communicate(timeout=30)
        return one.process.returncode, out.decode(), one.log

    def status() -> dict[str, dict[str, str]]:
        return {row["name"]: row for row in json.loads(cluster("status", "-o", "json")[1])}

    before = status()
    assert {row["state"] for row in before.values()} == {"running"}
    assert {name: row["broker_id"] for name, row in before.items() if name != "namesrv"} == {
        "broker-a": 0, "broker-b": 0, "broker-a-slave": 1, "broker-b-slave": 1,
    }  # fmt: skip
    assert {data["brokerName"] for data in route(members["namesrv"], "TBW102")["brokerDatas"]} == {"broker-a", "broker-b"}
    assert (tmp_path / "data" / "broker-a-slave" / "store" / "commitlog").is_dir()

    pid = before["broker-a"]["pid"]
    assert cluster("kill", "broker-a") == (0, f"killed broker-a (process {pid})\n", "")
    assert not accepts(members["broker-a"])
    code, out, error = cluster("kill", "broker-a")
    assert (code, out) == (1, "")
    assert error == "firearrow cluster kill: broker-a is not running (killed); `firearrow cluster start broker-a` starts it\n"
    code, _, error = cluster("stop", "broker-c")
    assert code == 1
    assert error.startswith("firearrow cluster stop: there is no member 'broker-c'; did you mean broker-")
    assert cluster("stop", "broker-b-slave")[0] == 0
    assert {name: row["state"] for name, row in status().items() if row["state"] != "running"} == {
        "broker-a": "killed", "broker-b-slave": "stopped",
    }  # fmt: skip
    assert cluster("start", "broker-a", "broker-b-slave")[0] == 0
    assert accepts(members["broker-a"])
    code, _, error = cluster("start", "broker-a")
    assert (code, "broker-a is running already" in error) == (1, True)

    os.kill(int(before["broker-b"]["pid"]), signal.SIGKILL)
    wait_until(lambda: "broker-b, process" in process.log, "it is said that one died")
    line = next(line for line in process.log.splitlines() if "died by itself" in line)
    assert line.endswith("died by itself (signal SIGKILL); `firearrow cluster start broker-b` starts it again")
    assert status()["broker-b"]["state"] == "died: signal SIGKILL"

    assert process.stop()[0] == 0
    assert not any(accepts(address) for address in members.values())
    code, _, error = cluster("status")
    assert (code, "is not running: start it with `firearrow up --cluster 2m-2s-async --data" in error) == (1, True)
    code, error = failed(["up", "--cluster", "2m", "--data", "data"], tmp_path)
    assert (code, "holds a cluster of the form 2m-2s-async; start it with --cluster 2m-2s-async" in error) == (1, True)
    code, error = failed(["up", "--data", "data"], tmp_path)
    assert (code, "holds a cluster of the form 2m-2s-async" in error) == (1, True)


def test_members_do_not_outlive_the_process_that_started_them(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "2m")
    process.stop(signal.SIGKILL)
    wait_until(lambda: not any(accepts(address) for address in members.values()), "the members stop")


def test_a_member_that_cannot_start_ends_the_start_of_all(tmp_path: Path) -> None:
    (tmp_path / "data" / "broker-b").mkdir(parents=True)
    (tmp_path / "data" / "broker-b" / "store").write_text("a file where a directory should be")
    code, error = failed(["up", "--cluster", "2m", "--data", "data", *ANY_PORTS], tmp_path)
    assert code == 1
    assert "broker-b ended with exit code 1 before it was ready: firearrow: " in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["up", "--cluster", "2m-2s"], 2, "'2m-2s' is no form of a cluster; did you mean 2m-2s-sync? expected one of 2m, "),
        (["up", "--cluster", "dleger3"], 2, "did you mean dledger-3?"),
        (["up", "--cluster", "2m", "--brokers", "2"], 2, "argument --brokers: not allowed with argument --cluster"),
        (["up", "--cluster", "2m", "--set", "brokerRole=SLAVE"], 1, "no --set of this key with --cluster 2m, which decides it"),
        (["up", "--cluster", "2m", "--broker-port", "65525"], 1, "the last of 2 brokers would be on port 65535, without room"),
        (["cluster", "status", "--data", "/nonexistent"], 1, "there is no cluster in /nonexistent: start one with `firearrow up"),
        (["cluster", "kill"], 2, "the following arguments are required: NAME"),
    ],
)
def test_wrong_words(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == code
    assert said in capsys.readouterr().err


def test_a_state_file_that_is_none_is_said_to_be_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"form": 3}')
    with pytest.raises(SystemExit) as end:
        main(["cluster", "status", "--data", str(tmp_path)])
    assert end.value.code == 1
    assert "cluster.json is not the state of a cluster" in capsys.readouterr().err


def test_a_group_elects_another_leader_when_its_own_is_killed(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "dledger-3")
    assert list(members) == ["namesrv", "n0", "n1", "n2"]

    def roles() -> dict[str, str]:
        one = start("cluster", "status", "--data", "data", "-o", "json")
        out, _ = one.process.communicate(timeout=30)
        return {row["name"]: row["role"] for row in json.loads(out) if row["state"] == "running"}

    before = roles()
    assert sorted(before.values()) == ["follower", "follower", "leader", "name server"]
    leader = next(name for name, role in before.items() if role == "leader")
    assert start("cluster", "kill", leader, "--data", "data").process.wait(30) == 0
    wait_until(lambda: "leader" in roles().values(), "another one leads")
    assert start("cluster", "start", leader, "--data", "data").process.wait(30) == 0
    wait_until(lambda: sorted(roles().values()) == ["follower", "follower", "leader", "name server"], "the old one follows")
    assert process.stop()[0] == 0
    assert not any(accepts(address) for address in members.values())
