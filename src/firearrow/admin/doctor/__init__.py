"""Looking for what is wrong, and saying what to do about it.

Every finding names its subject, the cause and the command that mends it. What is looked at, in this order:

    name servers   do they answer, do they know the same brokers
    addresses      are brokers where they say they are; would a client on another machine get there
    brokers        disk space against its watermarks, bytes not flushed, clock, permission to write
    process        of brokers on this machine: open files against their limit, memory (process.py)
    routes         topics that name servers do not know, brokers whose permission to write was taken (doctor_groups.py)
    topics         more write than read queues; messages that nobody consumes
    groups         members that subscribe differently, queues without a member, messages that expire unread, dead letters

A check that cannot be made (a broker that is too old to be asked, a consumer that does not answer) says so as a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from firearrow.admin.brokers import broker_config, broker_status, decimal
from firearrow.admin.cluster import BrokerAddress, for_each, list_brokers
from firearrow.admin.doctor import groups, local_process
from firearrow.admin.doctor.findings import ERROR, NOTE, SEVERITIES, WARNING, Report
from firearrow.admin.errors import NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import FirearrowError
from firearrow.clock import wall_ms
from firearrow.net.address import parse_address
from firearrow.wire.bodies.route import ClusterInfo
from firearrow.wire.codes import RequestCode
from firearrow.wire.fastjson import loads
from firearrow.wire.names import proxied_broker

CLOCK_MAY_DIFFER_MS: Final = 5_000
MOST_UNFLUSHED: Final = 64 * 1024 * 1024
_WRITE: Final = 2
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


async def examine(client: ClientInstance) -> Report:
    """Makes all checks. Never raises for what is wrong with the cluster: that is a finding."""
    report = Report()
    if not await _name_servers(client, report):
        return report
    try:
        brokers = await list_brokers(client)
    except NotFoundError as error:
        report.add(ERROR, "brokers", "cluster", str(error), f"firearrow broker -n '{';'.join(client.options.name_servers)}'")
        return report
    reached = await _addresses(client, report, brokers)
    for broker in reached:
        try:
            await _broker(client, report, broker)
        except FirearrowError as error:
            report.add(NOTE, "brokers", broker.name, f"it cannot be examined: {error}")
    if any(broker.is_master for broker in reached):
        try:
            await groups.examine_topics(client, report)
            await groups.examine_groups(client, report)
        except FirearrowError as error:
            report.add(NOTE, "groups", "cluster", f"topics and groups cannot be examined: {error}")
    report.findings.sort(key=lambda found: SEVERITIES.index(found.severity))
    return report


async def _name_servers(client: ClientInstance, report: Report) -> bool:
    """True if one of them answers."""
    known: dict[str, frozenset[str]] = {}
    for address in client.options.name_servers:
        report.looked_at("name servers")
        try:
            answer = await client.check(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except FirearrowError as error:
            report.add(
                ERROR, "name servers", address, f"it does not answer: {error}",
                "firearrow namesrv (or firearrow up) on that machine; or give the right address with -n",
            )  # fmt: skip
            continue
        table = ClusterInfo.from_json(loads(answer.body)).broker_addr_table
        known[address] = frozenset(
            at for name, data in table.items() if proxied_broker(name) is None for at in data.broker_addrs.values()
        )
    everywhere = frozenset().union(*known.values())
    for address, brokers in known.items():
        for missing in sorted(everywhere - brokers):
            report.add(
                ERROR, "name servers", address, f"it does not know the broker at {missing}, which other name servers know",
                f"firearrow broker -c FILE -n '{';'.join(client.options.name_servers)}', to start that broker again",
            )  # fmt: skip
    return bool(known)


async def _addresses(client: ClientInstance, report: Report, brokers: list[BrokerAddress]) -> list[BrokerAddress]:
    """Those that can be reached where they say they are."""
    elsewhere = not all(_loopback(parse_address(address)[0]) for address in client.options.name_servers)
    for name in sorted({broker.name for broker in brokers}):
        if not any(broker.is_master for broker in brokers if broker.name == name):
            report.add(
                ERROR, "addresses", name, "it has no master: nobody can send to it, and nobody commits offsets there",
                "start its master again (firearrow broker -c FILE with brokerId=0)",
            )  # fmt: skip

    async def reach(broker: BrokerAddress) -> bool:
        report.looked_at("addresses")
        host, port = parse_address(broker.address)
        change = f"firearrow broker -c FILE --set brokerIP1=ADDRESS (an address of that machine that clients reach, port {port})"
        try:
            await client.check(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except FirearrowError as error:
            report.add(
                ERROR, "addresses", broker.name, f"clients are told {broker.address}, where nobody answers: {error}", change
            )
            return False
        if _loopback(host) and elsewhere:
            report.add(
                ERROR, "addresses", broker.name,
                f"clients are told {broker.address}, which on their machine is that machine itself", change,
            )  # fmt: skip
        elif _loopback(host):
            report.add(
                NOTE, "addresses", broker.name, f"clients are told {broker.address}: only those on this machine get there",
                "firearrow up --host 0.0.0.0, if others should",
            )  # fmt: skip
        return True

    reached = await for_each(brokers, reach)
    return [broker for broker, yes in zip(brokers, reached, strict=True) if yes]


async def _broker(client: ClientInstance, report: Report, broker: BrokerAddress) -> None:
    report.looked_at("brokers")
    status = await broker_status(client, broker.address)
    now_ms = wall_ms()
    config = await broker_config(client, broker.address)
    _disk(report, broker, status, config)
    unflushed = _bytes(status.get("remainHowManyDataToFlush", ""))
    if unflushed > MOST_UNFLUSHED:
        report.add(
            WARNING, "brokers", broker.name,
            f"{unflushed / (1 << 20):.0f} MiB are written and not yet on the disk: a power cut would lose them",
            f"firearrow config set --broker {broker.name} flushIntervalCommitLog=200, or a faster disk",
        )  # fmt: skip
    clock_ms = _clock_ms(status)
    if clock_ms is not None and abs(clock_ms - now_ms) > CLOCK_MAY_DIFFER_MS:
        report.add(
            WARNING, "brokers", broker.name,
            f"its clock is {abs(clock_ms - now_ms) // 1000} s {'ahead of' if clock_ms > now_ms else 'behind'} this machine's"
            ": delays, searches by time and expiry go by it",
            "sudo timedatectl set-ntp true (on both machines)",
        )  # fmt: skip
    permission = config.get("brokerPermission", "6")
    if permission.isdigit() and not int(permission) & _WRITE:
        report.add(
            WARNING, "brokers", broker.name, f"brokerPermission is {permission}: nobody can send to it",
            f"firearrow config set --broker {broker.name} brokerPermission=6",
        )  # fmt: skip
    _process(report, broker)


def _disk(report: Report, broker: BrokerAddress, status: Mapping[str, str], config: Mapping[str, str]) -> None:
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
            ERROR, "brokers", broker.name, f"its disk is {used:.0f} % full: from {warning:.0f} % on it refuses messages", fix
        )
    elif used >= forcibly:
        cause = f"its disk is {used:.0f} % full: from {forcibly:.0f} % on it deletes the oldest messages, expired or not"
        report.add(ERROR, "brokers", broker.name, cause, fix)
    elif used >= early:
        cause = f"its disk is {used:.0f} % full: from {early:.0f} % on it deletes expired messages at any hour"
        report.add(WARNING, "brokers", broker.name, cause, fix)


def _process(report: Report, broker: BrokerAddress) -> None:
    """Limits of the process, if it is one of this user on this machine."""
    host, port = parse_address(broker.address)
    found = local_process.listening(host, port)
    if found is None:
        return
    report.looked_at("processes")
    if found.files_limit is not None and found.open_files > 0.8 * found.files_limit:
        report.add(
            WARNING, "process", broker.name,
            f"it has {found.open_files} files and connections open, of {found.files_limit} allowed",
            f"ulimit -n {max(65536, found.files_limit * 4)} before the broker is started (systemd: LimitNOFILE=)",
        )  # fmt: skip
    elif found.files_limit is not None and found.files_limit < 4096:
        report.add(
            NOTE, "process", broker.name,
            f"it may have {found.files_limit} files and connections open: enough for as many clients only",
            "ulimit -n 65536 before the broker is started (systemd: LimitNOFILE=)",
        )  # fmt: skip
    if found.memory_available is not None and found.memory_available < 0.05 * found.memory_total:
        report.add(
            WARNING, "process", broker.name,
            f"its machine has {found.memory_available >> 20} MiB of {found.memory_total >> 20} MiB of memory left; the broker "
            f"uses {found.resident >> 20} MiB",
            "ps -eo rss,pid,args --sort -rss | head shows who uses it",
        )  # fmt: skip


def _clock_ms(status: Mapping[str, str]) -> int | None:
    """What time it is at the broker, to a second: when it was started, and for how long it has run."""
    parts = re.fullmatch(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]", status.get("runtime", ""))
    boot = status.get("bootTimestamp", "")
    if parts is None or not boot.isdigit():
        return None
    days, hours, minutes, seconds = map(int, parts.groups())
    return int(boot) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def _bytes(text: str) -> int:
    number, _, unit = text.partition(" ")
    try:
        return int(float(number) * _UNITS.get(unit.strip(), 1))
    except ValueError:
        return 0


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost"
