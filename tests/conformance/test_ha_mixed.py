"""Mixed replication: Apache's slave with our master, and our slave with Apache's master."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.conformance import rawcall, servers
from tests.conformance.servers import TARGET, Process
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(TARGET == "apache", reason="both sides are chosen by the test")

SETTINGS = {
    "mappedFileSizeCommitLog": "1048576",
    "slaveReadEnable": "true",
    "flushDiskType": "ASYNC_FLUSH",
}
TOPIC, QUEUES = "Mixed", 4
TIMERS = 3
BUSY = 2
PATIENCE_S = 100  # Apache's slave copies topics half a minute after its start


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    running: list[Process] = []
    yield running
    for process in running:
        process.kill()


def is_stored(broker: str, ext: dict[str, str], body: bytes) -> bool:
    """Return False if the broker rejected the message because it was busy."""
    answer, _ = rawcall.call(broker, 310, ext, body)
    assert answer["code"] in (0, BUSY), answer
    return bool(answer["code"] == 0)


def send(broker: str, numbers: range, more: str = "") -> None:
    for number in numbers:
        ext = {"a": "P", "b": TOPIC, "c": "TBW102", "d": str(QUEUES), "e": str(number % QUEUES), "f": "0", "g": "1700000000000"}
        ext |= {"h": "0", "i": f"TAGS\x01t{number % 3}\x02KEYS\x01k{number}\x02{more}", "j": "0", "k": "false", "m": "false"}
        wait_until(partial(is_stored, broker, ext, f"{number} ".encode() * 500), "it is stored", PATIENCE_S)


def send_timers(broker: str) -> None:
    send(broker, range(1000, 1000 + TIMERS), "TIMER_DELAY_SEC\x013600\x02")


def timers_entered(broker: str) -> int:
    """Return the number of timer messages that the broker, or its master, has processed."""
    answer, body = rawcall.call(broker, 60)
    return int.from_bytes(body[24:32], "big") if answer["code"] == 0 else -1


def end_of_log(broker: str) -> int:
    answer, body = rawcall.call(broker, 28)
    assert answer["code"] == 0, answer
    return int(json.loads(body)["table"]["commitLogMaxOffset"])


def max_offset(broker: str, queue_id: int) -> int:
    answer, _ = rawcall.call(broker, 30, {"topic": TOPIC, "queueId": str(queue_id)})
    return int(answer["extFields"]["offset"]) if answer["code"] == 0 else -1


def pull_all(broker: str, queue_id: int) -> bytes:
    """The stored records of a queue, in order."""
    records, offset, end = b"", 0, max_offset(broker, queue_id)
    while offset < end:
        ext = {"consumerGroup": "G", "topic": TOPIC, "queueId": str(queue_id), "queueOffset": str(offset), "maxMsgNums": "32"}
        ext |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1"}
        answer, body = rawcall.call(broker, 11, ext | {"expressionType": "TAG"})
        assert answer["code"] == 0, answer
        records += body
        offset = int(answer["extFields"]["nextBeginOffset"])
    return records


def log_bytes(directory: Path, end: int) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / "store" / "commitlog").iterdir()))[:end]


def topic_is_known(broker: str) -> bool:
    return bool(rawcall.call(broker, 351, {"topic": TOPIC})[0]["code"] == 0)


def compare(master: tuple[str, Path], slave: tuple[str, Path], note: Callable[[], str]) -> None:
    """Assert equal bytes in the log and equal messages in every queue."""
    end = end_of_log(master[0])
    # Apache's broker answers with errors shortly after its ports open.
    wait_until(lambda: rawcall.call(slave[0], 28)[0]["code"] == 0, "the slave tells its state", PATIENCE_S)
    wait_until(lambda: end_of_log(slave[0]) == end, f"the slave has the log up to {end}", PATIENCE_S)
    assert log_bytes(master[1], end) == log_bytes(slave[1], end), note()
    wait_until(lambda: topic_is_known(slave[0]), "the slave knows the topic", PATIENCE_S)

    def is_complete(queue_id: int) -> bool:
        return max_offset(slave[0], queue_id) == max_offset(master[0], queue_id)

    for queue_id in range(QUEUES):
        wait_until(partial(is_complete, queue_id), "the slave has the queue", PATIENCE_S)
        records = pull_all(master[0], queue_id)
        assert records
        assert pull_all(slave[0], queue_id) == records, note()


def settings_of_ours(directory: Path, *, authenticates: bool) -> dict[str, str]:
    """Return settings of a broker that authenticates its peers, but accepts Apache's, or that does not."""
    if not authenticates:
        return SETTINGS
    secret = directory / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    return {**SETTINGS, "peerSecretFile": str(secret), "haAllowUnauthenticated": "true"}


@pytest.mark.parametrize("authenticates", [False, True])
def test_apaches_slave_follows_our_master(tmp_path: Path, processes: list[Process], authenticates: bool) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    namesrv_process, namesrv = servers.start_firearrow_namesrv(tmp_path)
    processes.append(namesrv_process)
    process, master = servers.start_firearrow_broker(ours, namesrv, settings_of_ours(tmp_path, authenticates=authenticates))
    processes.append(process)
    send(master, range(400))
    slave_process, slave = servers.start_apache_broker(theirs, namesrv, {**SETTINGS, "brokerRole": "SLAVE", "brokerId": "1"})
    processes.append(slave_process)
    send(master, range(400, 800))
    send_timers(master)
    compare((master, ours), (slave, theirs), process.output)
    wait_until(lambda: timers_entered(slave) == TIMERS, "the slave knows how far its master's timers are", PATIENCE_S)
    answer, body = rawcall.call(master, 907)
    assert answer["code"] == 0
    (connection,) = json.loads(body)["haConnectionInfo"]
    assert connection["slaveAckOffset"] == end_of_log(master)


@pytest.mark.parametrize("authenticates", [False, True])
def test_our_slave_follows_apaches_master(tmp_path: Path, processes: list[Process], authenticates: bool) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    namesrv_process, namesrv = servers.start_firearrow_namesrv(tmp_path)
    processes.append(namesrv_process)
    process, master = servers.start_apache_broker(theirs, namesrv, {**SETTINGS, "brokerRole": "ASYNC_MASTER"})
    processes.append(process)
    own = settings_of_ours(tmp_path, authenticates=authenticates)
    slave_process, slave = servers.start_firearrow_broker(
        ours, namesrv, {**own, "brokerRole": "SLAVE", "brokerId": "1", "slaveSyncInterval": "500"}
    )
    processes.append(slave_process)
    # Apache's master sends an empty slave only its newest segment, so the slave must follow before there are several.
    wait_until(lambda: "following the master" in slave_process.output(), "the slave follows", PATIENCE_S)
    send(master, range(800))
    send_timers(master)
    compare((master, theirs), (slave, ours), slave_process.output)
    wait_until(lambda: timers_entered(slave) == TIMERS, "the slave knows how far its master's timers are", PATIENCE_S)
    before = [pull_all(slave, queue_id) for queue_id in range(QUEUES)]
    process.kill()
    assert [pull_all(slave, queue_id) for queue_id in range(QUEUES)] == before
    answer, _ = rawcall.call(slave, 310, {"a": "P", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"})
    assert answer["code"] == 14
