"""`firearrow up --brokers N`: several processes that live and die together."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from pathlib import Path

from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from tests.cli.process import ANY_PORTS, Start, accepts, call, failed, read_json, route, shared_signer
from tests.support.ports import reserve_port
from tests.support.waiting import wait_until


def test_several_brokers_are_processes_that_are_kept_and_stopped_together(start: Start, tmp_path: Path) -> None:
    up = start("up", "--data", "data", *ANY_PORTS, "--brokers", "2", "--ready-file", "ready.json")
    line = up.line()
    ready = read_json(tmp_path / "ready.json")
    namesrv, brokers = ready["namesrv"], ready["brokers"]
    assert line.startswith(f"firearrow ready  namesrv {namesrv}  broker-a {brokers[0]}  broker-b {brokers[1]}")
    found = {data["brokerName"]: data["brokerAddrs"]["0"] for data in route(namesrv, "TBW102")["brokerDatas"]}
    assert found == {"broker-a": brokers[0], "broker-b": brokers[1]}
    assert (tmp_path / "data" / "broker-a" / "commitlog").is_dir()
    assert (tmp_path / "data" / "broker-b" / "commitlog").is_dir()

    children = child_pids(up.process.pid)
    assert len(children) == 2
    os.kill(children[0], signal.SIGKILL)
    wait_until(lambda: not all(accepts(b) for b in brokers) or children[0] not in child_pids(up.process.pid), "the broker dies")
    wait_until(lambda: all(accepts(broker) for broker in brokers), "it is started again, on its port")

    code, seconds = up.stop()
    assert (code, seconds < 10) == (0, True)
    assert not any(accepts(address) for address in (namesrv, *brokers))


def test_brokers_with_access_control_share_keys_that_only_the_owner_can_read(start: Start, tmp_path: Path) -> None:
    settings = ["--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true"]
    up = start("up", "--data", "data", *ANY_PORTS, "--brokers", "2", "--ready-file", "ready.json", *settings)
    up.line()
    ready = read_json(tmp_path / "ready.json")
    signer = shared_signer(tmp_path / "data")
    for broker in ready["brokers"]:
        assert call(broker, RequestCode.AUTH_LIST_USER).code == ResponseCode.NO_PERMISSION
        users = fastjson.loads(call(broker, RequestCode.AUTH_LIST_USER, signer=signer).body)
        assert [(user["username"], user["userType"]) for user in users] == [("admin", "Super")]
    listed = call(ready["namesrv"], RequestCode.GET_BROKER_CLUSTER_INFO, signer=signer)
    assert sorted(fastjson.loads(listed.body)["brokerAddrTable"]) == ["broker-a", "broker-b"]

    secret = read_json(tmp_path / "data" / "admin_credentials.json")["secretKey"]
    for child in child_pids(up.process.pid):
        assert secret not in Path(f"/proc/{child}/cmdline").read_text()
    for name in ("broker-a.conf", "broker-b.conf"):
        assert (tmp_path / "data" / name).stat().st_mode & 0o777 == 0o600
    assert up.stop()[0] == 0


def test_each_broker_has_a_metrics_port_of_its_own(start: Start, tmp_path: Path) -> None:
    port = reserve_port(1)
    metrics = ["--set", "metricsExporterType=PROM", "--set", f"metricsPromExporterPort={port}"]
    up = start("up", "--data", "data", *ANY_PORTS, "--brokers", "2", "--ready-file", "ready.json", *metrics)
    up.line()
    names = []
    for number in (port, port + 1):
        with urllib.request.urlopen(f"http://127.0.0.1:{number}/metrics", timeout=60) as page:
            names += re.findall(r'rocketmq_broker_permission\{.*node_id="([^"]+)"', page.read().decode())
    assert names == ["broker-a", "broker-b"]
    assert up.stop()[0] == 0


def test_brokers_do_not_outlive_the_process_that_started_them(start: Start, tmp_path: Path) -> None:
    up = start("up", "--data", "data", *ANY_PORTS, "--brokers", "2", "--ready-file", "ready.json")
    up.line()
    brokers = read_json(tmp_path / "ready.json")["brokers"]
    up.stop(signal.SIGKILL)
    wait_until(lambda: not any(accepts(broker) for broker in brokers), "the brokers stop")


def test_a_broker_that_cannot_start_ends_the_start_of_all(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-b").write_text("a file where a directory should be")
    code, error = failed(["up", "--data", "data", *ANY_PORTS, "--brokers", "2"], tmp_path)
    assert code == 1
    assert "broker-b exited with code 1 before it was ready" in error
    assert "Traceback" not in error


def test_one_and_several_brokers_do_not_mistake_each_others_directories(start: Start, tmp_path: Path) -> None:
    alone = start("up", "--data", "one", *ANY_PORTS)
    alone.line()
    alone.stop()
    code, error = failed(["up", "--data", "one", *ANY_PORTS, "--brokers", "2"], tmp_path)
    assert (code, "is the store of a single broker" in error) == (1, True)
    (tmp_path / "two" / "broker-a" / "commitlog").mkdir(parents=True)
    (tmp_path / "two" / "broker-b" / "commitlog").mkdir(parents=True)
    code, error = failed(["up", "--data", "two", *ANY_PORTS], tmp_path)
    assert (code, "start it with --brokers 2" in error) == (1, True)


def child_pids(parent: int) -> list[int]:
    children = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            children.append(int(entry.name))
    return sorted(children)
