"""Apache RocketMQ 5.5.0 from Maven Central: fetched by Maven into bench/cache/, started as its own scripts start it.

The JVM options are those of its runbroker.sh with a heap of 4 GB (8 GB there). Its logs go into the store directory.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from bench.process import BenchError, Process, free_base_port, wait_until
from bench.targets import START_TIMEOUT_S, Running, await_ports

VERSION = "5.5.0"
HERE = Path(__file__).parent
LIBRARY = HERE / "cache" / f"apache-{VERSION}"
GC_OPTIONS = (
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
    "-XX:MaxDirectMemorySize=15g",
    "-XX:-UseLargePages",
)


class Apache:
    name = "Apache"

    def __init__(self, *, touch_heap: bool = True) -> None:
        # With its heap touched at the start a broker has steadier latencies, but reports all of it as resident.
        self._touch_heap = touch_heap

    def prepare(self) -> None:
        done = LIBRARY / "complete"
        if done.exists():
            return
        shutil.rmtree(LIBRARY, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", str(HERE / "apache" / "pom.xml"), "dependency:copy-dependencies"]
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={LIBRARY / 'lib'}"]
        fetched = subprocess.run(command + options, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if fetched.returncode != 0:
            raise BenchError(f"Maven could not fetch Apache RocketMQ {VERSION}:\n{(fetched.stdout + fetched.stderr)[-3000:]}")
        done.touch()

    def start(self, store: Path, settings: Mapping[str, str]) -> Running:
        store.mkdir(parents=True, exist_ok=True)
        port = free_base_port()
        namesrv_port = port + 2
        broker_settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": f"127.0.0.1:{namesrv_port}",
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            **settings,
        }
        namesrv_conf = write_properties(store / "namesrv.conf", {"listenPort": str(namesrv_port)})
        broker_conf = write_properties(store / "broker.conf", broker_settings)
        began = time.monotonic()
        namesrv = self.java(store, "namesrv.NamesrvStartup", namesrv_conf, heap="512m", young="256m")
        broker = self.java(store, "broker.BrokerStartup", broker_conf, heap="4g", young="2g")
        processes = [broker, namesrv]
        ready_s = await_ports([namesrv_port, port, port - 2], processes, began, self.name)
        # The ports open a little before the broker is done with its start; a load in between would measure that.
        wait_until(lambda: "boot success" in broker.tail(), processes, START_TIMEOUT_S, "Apache's broker is up")
        return Running(broker, [namesrv], port, ready_s)

    def java(self, store: Path, main: str, conf: Path, *, heap: str, young: str) -> Process:
        options = [f"-Xms{heap}", f"-Xmx{heap}", f"-Xmn{young}", *GC_OPTIONS]
        if self._touch_heap:
            options.append("-XX:+AlwaysPreTouch")
        properties = [f"-Duser.home={store}", f"-Drocketmq.home.dir={store}"]
        command = ["java", "-server", *options, *properties, "-cp", f"{LIBRARY / 'lib'}/*"]
        command += [f"org.apache.rocketmq.{main}", "-c", str(conf)]
        return Process(command, conf.with_suffix(".out"), {"ROCKETMQ_HOME": str(store)})


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return path
