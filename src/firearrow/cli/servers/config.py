"""From words and property files to settings objects.

A key may belong to the broker, its store or the name server. The commands own some keys themselves: in `firearrow up`, ports,
paths and names come from its options, and a `--set` of those is refused with the option to use instead.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import SettingError, apply
from firearrow.config.properties_file import parse_properties
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.net.address import advertised_ip, ip_of
from firearrow.store.settings import StoreSettings

PORTS_APART = 10  # the listen ports of the brokers of one `up`
OWNED_BY_UP = {
    "listenPort": "--broker-port and --namesrv-port",
    "bindAddress": "--host",
    "storePathRootDir": "--data",
    "kvConfigPath": "--data",
    "namesrvAddr": "`firearrow broker -n` for a broker at another name server",
    "brokerName": "`firearrow broker` for a broker of another name",
    "brokerId": "`firearrow broker` for a broker of another id",
}
OWNED_BY_FORM = (
    "brokerRole", "haListenPort", "haMasterAddress",
    "enableDLegerCommitLog", "dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId",
)  # fmt: skip


class UpSettings(NamedTuple):
    namesrv: NamesrvSettings
    broker: BrokerSettings
    store: StoreSettings


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
    broker.broker_ip1 = _dialled(broker)
    return broker, store


def up_settings(data: Path, host: str, namesrv_port: int, broker_port: int, pairs: Iterable[tuple[str, str]]) -> UpSettings:
    """The settings of a name server and of the only broker beside it."""
    values = dict(pairs)
    refuse_owned(values)
    namesrv, broker, store = NamesrvSettings(), BrokerSettings(), StoreSettings()
    _apply([namesrv, broker, store], values)
    namesrv.bind_address = broker.bind_address = host
    namesrv.listen_port, broker.listen_port = namesrv_port, broker_port
    namesrv.kv_config_path = str(data / "namesrv" / "kvConfig.json")
    store.store_path_root_dir = str(data)
    broker.broker_name = "broker-a"
    broker.broker_ip1 = _dialled(broker)
    broker.use_tls |= namesrv.tls_server_mode == "enforcing"  # or the broker could not register
    return UpSettings(namesrv, broker, store)


def _dialled(broker: BrokerSettings) -> str:
    """The address that clients are told; of a host name, since records hold addresses, the one it has now."""
    said = broker.broker_ip1
    told = said or advertised_ip(broker.bind_address)
    try:
        return ip_of(told)
    except ValueError:
        if said:
            raise SettingError("brokerIP1", said, "an IP address, or a host name that resolves") from None
        return told  # it cannot be listened on either, and that is said more clearly there


def refuse_owned(values: Mapping[str, str]) -> None:
    for key, instead in OWNED_BY_UP.items():
        if key in values:
            raise SettingError(key, values[key], f"no --set of this key with `firearrow up`: use {instead}")


def refuse_owned_by_form(form: str, values: Mapping[str, str]) -> None:
    for key in OWNED_BY_FORM:
        if key in values:
            raise SettingError(key, values[key], f"no --set of this key with --cluster {form}, which decides it")


def durability(store: StoreSettings) -> str:
    """The flush mode in force and what may be lost under it."""
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
