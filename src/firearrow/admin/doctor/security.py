"""Checks of access control and encryption: servers that listen beyond loopback, and well-known credentials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from typing import Final

from firearrow.admin.doctor.findings import ERROR, NOTE, WARNING, Report
from firearrow.client.connection.instance import ClientInstance, acquire
from firearrow.client.errors import BrokerError, FirearrowError
from firearrow.client.options import Credentials
from firearrow.config.properties_file import parse_properties
from firearrow.wire.codes import RequestCode

# From Apache's tools.yml, its plain_acl.yml and its documentation.
WELL_KNOWN_CREDENTIALS: Final = (
    Credentials("rocketmq2", "12345678"),
    Credentials("RocketMQ", "12345678"),
    Credentials("rocketmq", "12345678"),
    Credentials("admin", "12345678"),
)
_GUIDE: Final = "see docs/operate/security.md"


async def check_name_servers(client: ClientInstance, report: Report) -> None:
    """Check the settings of our name servers. Apache's have no access control."""
    for address in client.options.name_servers:
        try:
            answer = await client.check(address, RequestCode.GET_NAMESRV_CONFIG)
        except BrokerError as error:
            report.add(NOTE, "security", address, f"the check of its settings failed: {error}")
            continue
        except FirearrowError:
            continue  # reported by the check of name servers
        config = parse_properties(answer.body.decode(errors="replace"))
        if "authenticationEnabled" in config:
            check_settings(report, address, config)


def check_settings(report: Report, subject: str, config: Mapping[str, str]) -> None:
    """Check the access control and the encryption of a server by its settings."""
    authentication = _is_true(config, "authenticationEnabled")
    authorization = _is_true(config, "authorizationEnabled")
    bound = config.get("bindAddress", "")
    if authentication and not authorization:
        report.add(
            WARNING, "security", subject, "it checks signatures but no permissions: every user may do everything",
            f"authorizationEnabled=true, after firearrow acl create for each user; {_GUIDE}",
        )  # fmt: skip
    if not bound or _is_loopback(bound):
        return
    if not authentication and not _is_true(config, "aclEnable"):
        report.add(
            WARNING, "security", subject,
            f"it listens on {bound} without access control: everyone who reaches its port can read, send and administer",
            f"authenticationEnabled=true and authorizationEnabled=true, or bindAddress=127.0.0.1; {_GUIDE}",
        )  # fmt: skip
    if "tls.server.mode" in config and not _is_encrypted(config):
        report.add(
            WARNING, "security", subject,
            f"it listens on {bound} and accepts connections that are not encrypted: messages can be read and requests replayed",
            f"tls.server.mode=enforcing with tls.server.certPath and tls.server.keyPath; {_GUIDE}",
        )  # fmt: skip


async def check_credentials(client: ClientInstance, report: Report, subject: str, address: str) -> None:
    """Check that a server with access control rejects well-known credentials."""
    for credentials in WELL_KNOWN_CREDENTIALS:
        if await _is_accepted(client, credentials, address):
            report.add(
                ERROR, "security", subject, f"it accepts the well-known credentials of the user {credentials.access_key}",
                f"firearrow user update {credentials.access_key} --generate, or firearrow user delete {credentials.access_key}",
            )  # fmt: skip


async def _is_accepted(client: ClientInstance, credentials: Credentials, address: str) -> bool:
    other = await acquire(replace(client.options, credentials=credentials))
    try:
        await other.check(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except FirearrowError:
        return False
    finally:
        await other.release()
    return True


def _is_true(config: Mapping[str, str], key: str) -> bool:
    return config.get(key, "").strip().lower() == "true"


def _is_encrypted(config: Mapping[str, str]) -> bool:
    return config.get("tls.server.mode") == "enforcing" and bool(config.get("tls.server.certPath"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
