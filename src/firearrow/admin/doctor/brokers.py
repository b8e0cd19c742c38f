"""Checks of single brokers: disk, flush, clock, permission, and the limits of their processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from firearrow.admin.brokers import broker_config, broker_status, decimal
from firearrow.admin.cluster import BrokerAddress
from firearrow.admin.doctor import local_process, security
from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING, Report
from firearrow.client.connection.instance import ClientInstance
from firearrow.clock import wall_ms
from firearrow.net.address import parse_address

MAX_CLOCK_DIFFERENCE_MS: Final = 5_000
MAX_UNFLUSHED: Final = 64 * 1024 * 1024
_WRITE: Final = 2
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


async def check_broker(client: ClientInstance, report: Report, broker: BrokerAddress) -> None:
    """Check the disk, flush, clock, permission and process of a broker."""
    report.count_checked("brokers")
    status = await broker_status(client, broker.address)
    now_ms = wall_ms()
    config = await broker_config(client, broker.address)
    check_disk(report, broker, status, config)
    check_damage(report, broker, status)
    unflushed = parse_bytes(status.get("remainHowManyDataToFlush", ""))
    if unflushed > MAX_UNFLUSHED:
        report.add(
            WARNING, "brokers", broker.name,
            f"{unflushed / (1 << 20):.0f} MiB are written but not flushed: a power cut would lose them",
            f"firearrow config set --broker {broker.name} flushIntervalCommitLog=200, or a faster disk",
        )  # fmt: skip
    clock_ms = broker_clock_ms(status)
    if clock_ms is not None and abs(clock_ms - now_ms) > MAX_CLOCK_DIFFERENCE_MS:
        report.add(
            WARNING, "brokers", broker.name,
            f"its clock is {abs(clock_ms - now_ms) // 1000} s {'ahead of' if clock_ms > now_ms else 'behind'} this machine's, "
            "which affects delays, searches by time and expiry",
            "sudo timedatectl set-ntp true (on both machines)",
        )  # fmt: skip
    permission = config.get("brokerPermission", "6")
    if permission.isdigit() and not int(permission) & _WRITE:
        report.add(
            WARNING, "brokers", broker.name, f"brokerPermission is {permission}: it rejects messages",
            f"firearrow config set --broker {broker.name} brokerPermission=6",
        )  # fmt: skip
    security.check_settings(report, broker.name, config)
    if config.get("authenticationEnabled") == "true":
        await security.check_credentials(client, report, broker.name, broker.address)
    _check_process(report, broker)


def check_disk(report: Report, broker: BrokerAddress, status: Mapping[str, str], config: Mapping[str, str]) -> None:
    """Compare the disk usage of a broker with its watermarks."""
    used = decimal(status, "commitLogDiskRatio") * 100
    warning, forcibly, early = (
        decimal({"level": config.get(name, default)}, "level")
        for name, default in (
            ("diskSpaceWarningLevelRatio", "90"),
            ("diskSpaceCleanForciblyRatio", "85"),
            ("diskMaxUsedSpaceRatio", "75"),
        )
    )
    hours = config.get("fileReservedTime", "72")
    fix = f"firearrow config set --broker {broker.name} fileReservedTime=HOURS (it is {hours}), or a larger disk"
    if used >= warning:
        report.add(
            ERROR, "brokers", broker.name, f"its disk is {used:.0f} % full: from {warning:.0f} % on it rejects messages", fix
        )
    elif used >= forcibly:
        cause = f"its disk is {used:.0f} % full: from {forcibly:.0f} % on it deletes the oldest messages, expired or not"
        report.add(ERROR, "brokers", broker.name, cause, fix)
    elif used >= early:
        cause = f"its disk is {used:.0f} % full: from {early:.0f} % on it deletes expired messages at any hour"
        report.add(WARNING, "brokers", broker.name, cause, fix)


def check_damage(report: Report, broker: BrokerAddress, status: Mapping[str, str]) -> None:
    """Report damaged bytes of the log. Apache's brokers do not check for them."""
    damaged = status.get("damagedLogBytes", "0")
    if damaged.isdigit() and int(damaged):
        skipped = status.get("damagedMessages", "0")
        report.add(
            ERROR, "brokers", broker.name,
            f"{damaged} bytes of its commit log are damaged, and consumers have skipped {skipped} messages; its log names them",
            "check the disk with smartctl -a; a slave or follower copies the bytes from its master by itself",
        )  # fmt: skip


def _check_process(report: Report, broker: BrokerAddress) -> None:
    """Check the limits of a process of this user on this machine."""
    host, port = parse_address(broker.address)
    found = local_process.listening(host, port)
    if found is None:
        return
    report.count_checked("processes")
    if found.files_limit is not None and found.open_files > 0.8 * found.files_limit:
        report.add(
            WARNING, "process", broker.name,
            f"it has {found.open_files} open files and connections, of {found.files_limit} allowed",
            f"ulimit -n {max(65536, found.files_limit * 4)} before starting the broker (systemd: LimitNOFILE=)",
        )  # fmt: skip
    elif found.files_limit is not None and found.files_limit < 4096:
        report.add(
            NOTE, "process", broker.name,
            f"it may open {found.files_limit} files and connections, which limits the number of clients",
            "ulimit -n 65536 before starting the broker (systemd: LimitNOFILE=)",
        )  # fmt: skip
    if found.memory_available is not None and found.memory_available < 0.05 * found.memory_total:
        report.add(
            WARNING, "process", broker.name,
            f"its machine has {found.memory_available >> 20} MiB of {found.memory_total >> 20} MiB of memory available; the "
            f"broker uses {found.resident >> 20} MiB",
            "find the largest processes with ps -eo rss,pid,args --sort -rss | head",
        )  # fmt: skip


def broker_clock_ms(status: Mapping[str, str]) -> int | None:
    """Return the broker's clock, to a second: its start time plus its uptime."""
    parts = re.fullmatch(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]", status.get("runtime", ""))
    boot = status.get("bootTimestamp", "")
    if parts is None or not boot.isdigit():
        return None
    days, hours, minutes, seconds = map(int, parts.groups())
    return int(boot) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def parse_bytes(text: str) -> int:
    """Parse `1.5 MiB`; 0 if it is malformed."""
    number, _, unit = text.partition(" ")
    try:
        return int(float(number) * _UNITS.get(unit.strip(), 1))
    except ValueError:
        return 0
