"""The commands as processes: what they say, what they refuse, how they stop."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from firearrow.wire import fastjson
from tests.cli.process import ANY_PORTS, Start, accepts, call, failed, read_json, route


def test_up_says_that_it_is_ready_and_stops_when_told(start: Start, tmp_path: Path) -> None:
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
    assert (code, seconds < 2.0) == (0, True)
    assert not accepts(namesrv)
    assert "Traceback" not in up.log


def test_ctrl_c_is_a_clean_stop_too(start: Start) -> None:
    up = start("up", "--data", "data", *ANY_PORTS)
    up.line()
    assert up.stop(signal.SIGINT)[0] == 0


def test_what_was_set_is_in_force_and_shown(start: Start) -> None:
    up = start("up", "--data", "data", *ANY_PORTS, "--set", "flushDiskType=ASYNC_FLUSH", "--set", "flushIntervalCommitLog=200")
    assert "ASYNC_FLUSH (a power cut may lose the messages acknowledged in the last 200 ms" in up.line()


def test_it_listens_on_a_host_that_is_named(start: Start) -> None:
    up = start("up", "--data", "data", "--host", "localhost", *ANY_PORTS)
    assert "broker-a 127.0.0.1:" in up.line()


def test_a_second_process_on_the_same_data_is_refused(start: Start, tmp_path: Path) -> None:
    first = start("up", "--data", "data", *ANY_PORTS)
    first.line()
    code, error = failed(["up", "--data", "data", *ANY_PORTS], tmp_path)
    assert code == 1
    assert error == (
        f"firearrow: data directory {tmp_path / 'data'} is in use by process {first.process.pid};"
        " stop that process or give another --data\n"
    )
    code, error = failed(["broker", "--set", f"storePathRootDir={tmp_path / 'data'}", "--set", "listenPort=0"], tmp_path)
    assert code == 1
    assert error.splitlines()[-1].startswith("firearrow: ")
    assert "Traceback" not in error
    assert first.process.poll() is None
    first.stop()
    start("up", "--data", "data", *ANY_PORTS).line()  # and now it is free


def test_a_killed_process_does_not_leave_the_directory_locked(start: Start) -> None:
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
        (["up", "--set", "novalue"], 2, "'novalue' is not of the form key=value"),
        (["up", "--broker", "2"], 2, "unknown argument --broker; did you mean --brokers?"),
        (["up", "--brokers", "27"], 2, "expected 1 to 26"),
        (["up", "--broker-port", "65536"], 2, "expected 0 to 65535"),
        (["up", "--broker-port", "2"], 2, "no room for the fast port"),
        (["up", "--broker-port", "65530", "--brokers", "2"], 1, "would be on port 65540"),
        (["namesrv", "-c", "missing.conf"], 1, "missing.conf: No such file or directory"),
        (["namesrv", "--data", "x"], 2, "unknown argument --data"),
        (["broker", "-n", "nonsense"], 1, "'nonsense' is not of the form host:port"),
        (["start"], 2, "invalid choice: 'start'"),
        ([], 2, "required: COMMAND"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_starts(words: list[str], exit_code: int, says: str, tmp_path: Path) -> None:
    code, error = failed(words, tmp_path)
    assert (code, says in error) == (exit_code, True), error
    assert error.startswith("firearrow: ")
    assert "Traceback" not in error
    assert [path for path in tmp_path.rglob("*") if path.name == "commitlog"] == []


def test_a_taken_port_is_named_and_nothing_stays_open(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for words in (["--namesrv-port", port, "--broker-port", "0"], ["--namesrv-port", "0", "--broker-port", port]):
            code, error = failed(["up", "--data", "data", *words], tmp_path)
            assert code == 1
            assert f"firearrow: cannot listen on 127.0.0.1:{port}" in error


def test_name_server_and_broker_from_apaches_files(start: Start, tmp_path: Path) -> None:
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
    assert fastjson.loads(call(address, 106).body)["clusterAddrTable"] == {}  # it said goodbye
    assert namesrv.stop()[0] == 0


def test_a_broker_registers_at_all_name_servers_of_the_environment(start: Start, tmp_path: Path) -> None:
    for name in ("one", "two"):
        start("namesrv", "--set", "listenPort=0", "--ready-file", f"{name}.json").line()
    addresses = [read_json(tmp_path / f"{name}.json")["namesrv"] for name in ("one", "two")]
    words = ["--set", "listenPort=0", "--set", "bindAddress=127.0.0.1", "--set", f"storePathRootDir={tmp_path}/store"]
    start("broker", *words, NAMESRV_ADDR=";".join(addresses)).line()
    assert all(route(address, "TBW102") for address in addresses)


# Start-up.


def test_ports_are_open_soon_and_memory_is_small(start: Start) -> None:
    """Generous bounds: the machine that runs the tests is busy. The benchmark has the sharp ones."""
    began = time.monotonic()
    up = start("up", "--data", "data", *ANY_PORTS)
    up.line()
    assert time.monotonic() - began < 5.0
    status = Path(f"/proc/{up.process.pid}/status").read_text()
    rss_kb = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
    assert rss_kb < 80 * 1024
