"""Settings objects from command-line options and property files.

A key may belong to the broker, its store or the name server. `firearrow up` derives ports, paths and names from its options and
rejects a `--set` of these keys with the name of the option.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from firearrow.broker.settings import BrokerSettings
from firearrow.cli.servers.shared_credentials import share_credentials
from firearrow.config.fields import SettingError, apply
from firearrow.config.properties_file import parse_properties
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.address import WILDCARDS, advertised_ip, ip_of
from firearrow.store.settings import StoreSettings

PORTS_APART: Final = 10  # between the listen ports of the brokers of one `up`
OWNED_BY_UP: Final = {
    "listenPort": "--broker-port and --namesrv-port",
    "bindAddress": "--host",
    "storePathRootDir": "--data",
    "kvConfigPath": "--data",
    "namesrvAddr": "`firearrow broker -n` for a broker of another name server",
    "brokerName": "`firearrow broker` for a broker with another name",
    "brokerId": "`firearrow broker` for a broker with another id",
}
OWNED_BY_FORM: Final = (
    "brokerRole", "haListenPort", "haMasterAddress",
    "enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId",
)  # fmt: skip


class UpOptions(NamedTuple):
    """The options of `firearrow up`."""

    data: str
    host: str
    namesrv_port: int
    broker_port: int
    brokers: int
    cluster: str | None
    settings: Sequence[tuple[str, str]]
    ready_file: str | None


class UpSettings(NamedTuple):
    """The settings of the servers of `firearrow up`."""

    namesrv: NamesrvSettings
    broker: BrokerSettings
    store: StoreSettings

    def shared_values(self) -> dict[str, str]:
        """Return the settings that servers in processes of their own need besides those of the options."""
        broker = self.broker
        credentials = broker.inner_client_authentication_credentials
        found = {
            "innerClientAuthenticationCredentials": None if credentials is None else credentials.reveal(),
            "useTLS": "true" if broker.use_tls else None,
            "tls.client.trustCertPath": broker.tls_client_trust_cert_path,
        }
        return {key: value for key, value in found.items() if value is not None}


def namesrv_settings(config: str | None, pairs: Iterable[tuple[str, str]]) -> NamesrvSettings:
    settings = NamesrvSettings()
    _apply([settings], {**_read(config), **dict(pairs)})
    return settings


def broker_settings(
    config: str | None, pairs: Iterable[tuple[str, str]], namesrv: str | None
) -> tuple[BrokerSettings, StoreSettings]:
    broker, store = BrokerSettings(), StoreSettings()
    values = {**_read(config), **dict(pairs)}
    if namesrv is not None:
        values["namesrvAddr"] = namesrv
    elif not values.get("namesrvAddr") and os.environ.get("NAMESRV_ADDR"):
        values["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    _apply([broker, store], values)
    broker.broker_ip1 = _advertised_ip(broker)
    return broker, store


def up_settings(data: Path, host: str, namesrv_port: int, broker_port: int, pairs: Iterable[tuple[str, str]]) -> UpSettings:
    """Return the settings of a name server and of the broker in the same process."""
    values = dict(pairs)
    _reject_owned(values)
    namesrv, broker, store = NamesrvSettings(), BrokerSettings(), StoreSettings()
    _apply([namesrv, broker, store], values)
    namesrv.bind_address = broker.bind_address = host
    namesrv.listen_port, broker.listen_port = namesrv_port, broker_port
    namesrv.kv_config_path = str(data / "namesrv" / "kvConfig.json")
    store.store_path_root_dir = str(data)
    broker.broker_name = "broker-a"
    broker.broker_ip1 = _advertised_ip(broker)
    if namesrv.tls_server_mode == "enforcing" and not broker.use_tls:  # otherwise the broker could not register
        broker.use_tls = True
        broker.tls_client_trust_cert_path = namesrv.tls_server_cert_path
    credentials = share_credentials(data, namesrv, broker)
    if credentials is not None:
        print(f"firearrow: the keys of the Super user are in {credentials}", file=sys.stderr)
    return UpSettings(namesrv, broker, store)


def broker_values(name: str, host: str, port: int, store: Path) -> dict[str, str]:
    """Return the settings that place a broker process."""
    values = {"brokerName": name, "bindAddress": host, "listenPort": str(port), "storePathRootDir": str(store)}
    return values if host in WILDCARDS else values | {"brokerIP1": host}


def _advertised_ip(broker: BrokerSettings) -> str:
    """Return the address that clients connect to. Records contain IP addresses, so a host name is resolved."""
    configured = broker.broker_ip1
    address = configured or advertised_ip(broker.bind_address)
    try:
        return ip_of(address)
    except ValueError:
        if configured:
            raise SettingError("brokerIP1", configured, "an IP address, or a host name that resolves") from None
        return address  # listening on it fails with a clearer error


def _reject_owned(values: Mapping[str, str]) -> None:
    for key, instead in OWNED_BY_UP.items():
        if key in values:
            raise SettingError(key, values[key], f"no --set of this key with `firearrow up`: use {instead}")


def reject_form_settings(form: str, values: Mapping[str, str]) -> None:
    for key in OWNED_BY_FORM:
        if key in values:
            raise SettingError(key, values[key], f"no --set of this key with --cluster {form}, which determines it")


@contextmanager
def naming_the_option(option: str) -> Iterator[None]:
    """Add to the error of a port in use the option that chooses another."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES) or error.filename:
            raise
        raise OSError(error.errno, f"{error.strerror}; choose another port with {option}") from error


def durability(store: StoreSettings) -> str:
    """Return the flush mode and what a crash may lose in it."""
    if store.flush_disk_type == "SYNC_FLUSH":
        return "SYNC_FLUSH (an acknowledged message is on the disk)"
    interval_ms = store.flush_interval_commit_log
    return (
        f"ASYNC_FLUSH (a power cut may lose the messages acknowledged in the last {interval_ms} ms; a crash of the process none)"
    )


def _read(config: str | None) -> dict[str, str]:
    if config is None:
        return {}
    try:
        return parse_properties(Path(config).read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"{config} is not a text file in UTF-8: {error}") from error
    except ValueError as error:
        raise ValueError(f"{config}: {error}") from error


def _apply(targets: list[Any], values: Mapping[str, str]) -> None:
    for warning in apply(targets, values):
        print(f"firearrow: warning: {warning}", file=sys.stderr)
