"""`up`, `namesrv` and `broker` as processes: start, errors and stop."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from firearrow.wire import fastjson
from tests.cli.process import ANY_PORTS, Start, accepts, call, failed, read_json, route


def test_up_announces_its_addresses_and_stops_on_sigterm(start: Start, tmp_path: Path) -> None:
    ready_file = tmp_path / "ready.json"
    up = start("up", "--data", "data", *ANY_PORTS, "--ready-file", str(ready_file))
    line = up.line()
    ready = read_json(ready_file)
    namesrv, (broker,) = ready["namesrv"], ready["brokers"]
    assert line == (
        f"firearrow ready  namesrv {namesrv}  broker-a {broker}  data {tmp_path / 'data'}"
        "  flush SYNC_FLUSH (an acknowledged message is on the disk)"
    )
    assert ready["pid"] == up.process.pid
    host, _, port = broker.rpartition(":")
    assert all(accepts(address) for address in (namesrv, broker, f"{host}:{int(port) - 2}"))
    assert route(namesrv, "TBW102")["brokerDatas"][0]["brokerAddrs"] == {"0": broker}
    assert list(tmp_path.glob("*.tmp")) == []

    code, seconds = up.stop()
    assert (code, seconds < 10) == (0, True)
    assert not accepts(namesrv)
    assert "Traceback" not in up.log


def test_sigint_is_a_clean_stop(start: Start) -> None:
    up = start("up", "--data", "data", *ANY_PORTS)
    up.line()
    assert up.stop(signal.SIGINT)[0] == 0


def test_set_options_take_effect_and_are_shown(start: Start) -> None:
    up = start("up", "--data", "data", *ANY_PORTS, "--set", "flushDiskType=ASYNC_FLUSH", "--set", "flushIntervalCommitLog=200")
    assert "ASYNC_FLUSH (a power cut may lose the messages acknowledged in the last 200 ms" in up.line()


def test_host_name_is_resolved(start: Start) -> None:
    up = start("up", "--data", "data", "--host", "localhost", *ANY_PORTS)
    assert "broker-a 127.0.0.1:" in up.line()


def test_second_process_on_the_same_data_is_rejected(start: Start, tmp_path: Path) -> None:
    first = start("up", "--data", "data", *ANY_PORTS)
    first.line()
    code, error = failed(["up", "--data", "data", *ANY_PORTS], tmp_path)
    assert code == 1
    assert error == (
        f"firearrow up: data directory {tmp_path / 'data'} is in use by process {first.process.pid};"
        " stop that process or use another --data\n"
    )
    code, error = failed(["broker", "--set", f"storePathRootDir={tmp_path / 'data'}", "--set", "listenPort=0"], tmp_path)
    assert code == 1
    assert error.splitlines()[-1].startswith("firearrow broker: ")
    assert "Traceback" not in error
    assert first.process.poll() is None
    first.stop()
    start("up", "--data", "data", *ANY_PORTS).line()  # the lock is released


def test_killed_process_leaves_no_lock(start: Start) -> None:
    first = start("up", "--data", "data", *ANY_PORTS)
    first.line()
    first.stop(signal.SIGKILL)
    start("up", "--data", "data", *ANY_PORTS).line()


@pytest.mark.parametrize(
    ("words", "exit_code", "says"),
    [
        (["up", "--set", "flushDiskType=SOMETIMES"], 1, "flushDiskType=SOMETIMES: expected one of SYNC_FLUSH, ASYNC_FLUSH"),
        (["up", "--set", "fileReservedTime=minus"], 1, "fileReservedTime=minus: expected a whole number from"),
        (["up", "--set", "listenPort=10911"], 1, "use --broker-port and --namesrv-port"),
        (["up", "--set", "storePathRootDir=/x"], 1, "use --data"),
        (["up", "--set", "novalue"], 2, "'novalue' is not of the form KEY=VALUE"),
        (["up", "--broker", "2"], 2, "no such option --broker; did you mean --brokers?"),
        (["up", "--brokers", "27"], 2, "1 to 26"),
        (["up", "--broker-port", "65536"], 2, "0 to 65535"),
        (["up", "--broker-port", "2"], 2, "no room for the fast port"),
        (["up", "--broker-port", "65530", "--brokers", "2"], 1, "would use port 65540"),
        (["namesrv", "-c", "missing.conf"], 1, "missing.conf: No such file or directory"),
        (["namesrv", "--data", "x"], 2, "no such option --data"),
        (["broker", "-n", "nonsense"], 1, "'nonsense' is not of the form host:port"),
        (["launch"], 2, "no such command 'launch'"),
    ],
)
def test_invalid_options_are_rejected_and_nothing_starts(words: list[str], exit_code: int, says: str, tmp_path: Path) -> None:
    code, error = failed(words, tmp_path)
    assert (code, says in error) == (exit_code, True), error
    assert error.startswith("firearrow")
    assert "Traceback" not in error
    assert [path for path in tmp_path.rglob("*") if path.name == "commitlog"] == []


def test_port_in_use_names_the_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option, other in (("--namesrv-port", "--broker-port"), ("--broker-port", "--namesrv-port")):
            code, error = failed(["up", "--data", "data", option, port, other, "0"], tmp_path)
            assert code == 1
            assert f"firearrow up: cannot listen on 127.0.0.1:{port}: Address already in use" in error
            assert error.endswith(f"; choose another port with {option}\n")
        code, error = failed(["namesrv", "--set", f"listenPort={port}", "--set", "bindAddress=127.0.0.1"], tmp_path)
        assert (code, "choose another port with --set listenPort=PORT" in error) == (1, True)


def test_name_server_and_broker_read_apaches_files(start: Start, tmp_path: Path) -> None:
    (tmp_path / "namesrv.conf").write_text(f"listenPort = 0\nserverWorkerThreads = 8\nkvConfigPath={tmp_path}/kv.json\n")
    (tmp_path / "broker.conf").write_text(
        "# as Apache ships it\n"
        "brokerClusterName = MyCluster\n"
        "brokerName = my-broker\n"
        "brokerId = 0\n"
        "deleteWhen = 04\n"
        "fileReservedTime = 48\n"
        "brokerRole = ASYNC_MASTER\n"
        "flushDiskType = ASYNC_FLUSH\n"
        "sendMessageThreadPoolNums = 16\n"
        "autoCreateTopicEnabel = false\n"
        "bindAddress = 127.0.0.1\n"
        "listenPort = 0\n"
        f"storePathRootDir = {tmp_path}/store\n"
    )
    namesrv = start("namesrv", "-c", "namesrv.conf", "--ready-file", "ns.json")
    assert namesrv.line().startswith("firearrow ready  namesrv 127.0.0.1:")
    address = read_json(tmp_path / "ns.json")["namesrv"]
    broker = start("broker", "-c", "broker.conf", "-n", address)
    line = broker.line()
    assert "my-broker 127.0.0.1:" in line
    assert f"data {tmp_path}/store" in line
    assert (
        "firearrow: warning: setting autoCreateTopicEnabel is unknown and has no effect; did you mean autoCreateTopicEnable?"
        in broker.log
    )
    assert "sendMessageThreadPoolNums" not in broker.log
    info = fastjson.loads(call(address, 106).body)
    assert info["clusterAddrTable"] == {"MyCluster": ["my-broker"]}
    assert broker.stop()[0] == 0
    assert fastjson.loads(call(address, 106).body)["clusterAddrTable"] == {}  # it has unregistered
    assert namesrv.stop()[0] == 0


def test_broker_registers_with_all_name_servers_of_the_environment(start: Start, tmp_path: Path) -> None:
    for name in ("one", "two"):
        start("namesrv", "--set", "listenPort=0", "--ready-file", f"{name}.json").line()
    addresses = [read_json(tmp_path / f"{name}.json")["namesrv"] for name in ("one", "two")]
    words = ["--set", "listenPort=0", "--set", "bindAddress=127.0.0.1", "--set", f"storePathRootDir={tmp_path}/store"]
    start("broker", *words, NAMESRV_ADDR=";".join(addresses)).line()
    assert all(route(address, "TBW102") for address in addresses)


def test_start_up_needs_little_cpu_time_and_memory(start: Start) -> None:
    """Generous limits that a busy machine meets; the benchmark has the exact ones."""
    up = start("up", "--data", "data", *ANY_PORTS)
    up.line()
    process = Path(f"/proc/{up.process.pid}")
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    rss_kb = int(next(line.split()[1] for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS:")))
    assert cpu_s < 2.0
    assert rss_kb < 80 * 1024
