"""Checks of a cluster. Every finding names its subject, the cause and the command that fixes it.

    name servers   they answer and know the same brokers
    addresses      brokers answer at their addresses, and clients on other machines can reach them
    masters        every broker name has a master; an elected group has a majority (elected.py)
    security       access control and encryption of servers that listen beyond loopback (security.py)
    brokers        disk usage, unflushed bytes, clock, write permission (brokers.py)
    process        of brokers on this machine: open files and memory (local_process.py)
    routes         topics unknown to name servers, brokers without write permission (groups.py)
    topics         more write than read queues; messages that no group consumes
    groups         different subscriptions, queues without a consumer, expiring messages, dead letters

A check that cannot be made, for example because a broker is too old for the request, is reported as a note.
"""

from __future__ import annotations

from ipaddress import ip_address

from firearrow.admin.cluster import BrokerAddress, for_each, list_brokers
from firearrow.admin.doctor import elected, groups, security
from firearrow.admin.doctor.brokers import check_broker
from firearrow.admin.doctor.findings import ERROR, NOTE, SEVERITIES, Report
from firearrow.admin.errors import NotFoundError
from firearrow.client.connection.instance import ClientInstance
from firearrow.client.errors import BrokerError, FirearrowError
from firearrow.net.address import parse_address
from firearrow.wire.bodies.route import ClusterInfo
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.fastjson import loads
from firearrow.wire.names import proxied_broker


async def examine(client: ClientInstance) -> Report:
    """Run all checks. Problems of the cluster are findings and never raised."""
    report = Report()
    if not await _check_name_servers(client, report):
        return report
    try:
        brokers = await list_brokers(client)
    except NotFoundError as error:
        report.add(ERROR, "brokers", "cluster", str(error), f"firearrow broker -n '{';'.join(client.options.name_servers)}'")
        return report
    reached = await _check_addresses(client, report, brokers)
    await elected.check_masters(client, report, brokers, reached)
    for broker in reached:
        try:
            await check_broker(client, report, broker)
        except FirearrowError as error:
            report.add(NOTE, "brokers", broker.name, f"the check failed: {error}")
    await security.check_name_servers(client, report)
    if any(broker.is_master for broker in reached):
        try:
            await groups.examine_topics(client, report)
            await groups.examine_groups(client, report)
        except FirearrowError as error:
            report.add(NOTE, "groups", "cluster", f"the check of topics and groups failed: {error}")
    report.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    return report


async def _check_name_servers(client: ClientInstance, report: Report) -> bool:
    """Return whether one of them answers."""
    known: dict[str, frozenset[str]] = {}
    for address in client.options.name_servers:
        report.count_checked("name servers")
        try:
            response = await client.check(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        except BrokerError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                report.add(ERROR, "name servers", address, f"the name server fails: {error}")
                continue
            cause = f"{address} is a broker, not a name server"
            report.add(ERROR, "name servers", address, cause, "give the address of the name server with -n")
            continue
        except FirearrowError as error:
            report.add(
                ERROR, "name servers", address, f"the name server does not answer: {error}",
                "start firearrow namesrv (or firearrow up) on that machine, or give another address with -n",
            )  # fmt: skip
            continue
        table = ClusterInfo.from_json(loads(response.body)).broker_addr_table
        known[address] = frozenset(
            at for name, data in table.items() if proxied_broker(name) is None for at in data.broker_addrs.values()
        )
    everywhere = frozenset().union(*known.values())
    for address, brokers in known.items():
        for missing in sorted(everywhere - brokers):
            report.add(
                ERROR, "name servers", address, f"it does not know the broker at {missing}, which other name servers know",
                f"restart that broker with firearrow broker -c FILE -n '{';'.join(client.options.name_servers)}'",
            )  # fmt: skip
    return bool(known)


async def _check_addresses(client: ClientInstance, report: Report, brokers: list[BrokerAddress]) -> list[BrokerAddress]:
    """Return the brokers that answer at their addresses."""
    has_remote_name_server = not all(_is_loopback(parse_address(address)[0]) for address in client.options.name_servers)

    async def check(broker: BrokerAddress) -> bool:
        report.count_checked("addresses")
        host, port = parse_address(broker.address)
        fix = f"firearrow broker -c FILE --set brokerIP1=ADDRESS (an address of its machine that clients reach, port {port})"
        try:
            await client.check(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        except FirearrowError as error:
            report.add(ERROR, "addresses", broker.name, f"no broker answers at its address {broker.address}: {error}", fix)
            return False
        if _is_loopback(host) and has_remote_name_server:
            report.add(ERROR, "addresses", broker.name, f"its address {broker.address} is reachable from its machine only", fix)
        elif _is_loopback(host):
            report.add(
                NOTE, "addresses", broker.name, f"its address {broker.address} is reachable from this machine only",
                "firearrow up --host 0.0.0.0, if clients run on other machines",
            )  # fmt: skip
        return True

    answers = await for_each(brokers, check)
    return [broker for broker, is_reached in zip(brokers, answers, strict=True) if is_reached]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback or ip_address(host).is_unspecified
    except ValueError:
        return host == "localhost"
