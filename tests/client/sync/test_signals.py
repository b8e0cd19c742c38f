"""SIGTERM sent to real worker processes."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from firearrow.client.sync.signals import return_on_sigterm
from tests.client.cluster import ThreadedServers, servers_in_a_thread

PUSH_WORKER = """
import signal, sys, threading, time
import firearrow as fa

consumed = threading.Event()

def handle(message):
    consumed.set()

def report():
    consumed.wait()
    while signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        time.sleep(0.01)  # `run` has not begun
    print("consumed", flush=True)

threading.Thread(target=report).start()

with fa.PushConsumer(sys.argv[1], group="g", subscribe="T", listener=handle, start_from="earliest") as consumer:
    consumer.run()
print("closed", flush=True)
"""

PULL_WORKER = """
import signal, sys
import firearrow as fa

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with fa.PullConsumer(sys.argv[1], group="g", topics=["T"], start_from="earliest", persist_offset_interval=3600) as consumer:
    for message in consumer:
        consumer.commit()
        print("consumed", flush=True)
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreadedServers]:
    with servers_in_a_thread(tmp_path) as found:
        yield found


@pytest.mark.parametrize(("worker", "last_line"), [(PUSH_WORKER, "closed"), (PULL_WORKER, "")])
def test_sigterm_ends_a_worker_in_order(cluster: ThreadedServers, worker: str, last_line: str) -> None:
    cluster.create("T")
    cluster.put("T", b"x")
    process = subprocess.Popen([sys.executable, "-c", worker, cluster.name_server], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "consumed\n"
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, rest.strip()) == (0, last_line)
    assert cluster.committed("g", "T") == 1


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Start with the default handler, whatever other tests of this process left."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_handler_is_installed_only_for_the_body() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    with return_on_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)
        pytest.fail("the signal ends the body")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handler_of_the_program_is_kept() -> None:
    received: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    with return_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]


def test_other_threads_install_no_handler() -> None:
    handlers: list[object] = []

    def body() -> None:
        with return_on_sigterm():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]
