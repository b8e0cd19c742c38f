from __future__ import annotations

from pathlib import Path

import pytest

from firearrow.cli.servers.config import OWNED_BY_UP, broker_settings, durability, namesrv_settings, up_settings
from firearrow.config.fields import SettingError
from firearrow.store.settings import StoreSettings


def test_precedence_of_file_options_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1")
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=from-file\nfileReservedTime=1\nnamesrvAddr=file:1\nbindAddress=127.0.0.1\n")
    broker, store = broker_settings(str(config), [("brokerName", "from-words")], None)
    assert (broker.broker_name, store.file_reserved_time, broker.namesrv_addr) == ("from-words", 1, "file:1")
    assert broker_settings(str(config), [], "words:1")[0].namesrv_addr == "words:1"
    assert broker_settings(None, [], None)[0].namesrv_addr == "env:1"
    monkeypatch.delenv("NAMESRV_ADDR")
    assert broker_settings(None, [], None)[0].namesrv_addr is None


def test_advertised_address_is_reachable() -> None:
    assert broker_settings(None, [("bindAddress", "127.0.0.1")], None)[0].broker_ip1 == "127.0.0.1"
    assert broker_settings(None, [("bindAddress", "0.0.0.0")], None)[0].broker_ip1 not in (None, "0.0.0.0")
    assert broker_settings(None, [("brokerIP1", "192.0.2.7")], None)[0].broker_ip1 == "192.0.2.7"
    assert broker_settings(None, [("brokerIP1", "localhost")], None)[0].broker_ip1 == "127.0.0.1"
    assert broker_settings(None, [("bindAddress", "localhost")], None)[0].broker_ip1 == "127.0.0.1"
    with pytest.raises(SettingError, match="expected an IP address, or a host name that resolves"):
        broker_settings(None, [("brokerIP1", "no_name.invalid")], None)


def test_up_derives_paths_and_ports(tmp_path: Path) -> None:
    settings = up_settings(tmp_path, "127.0.0.1", 1111, 2222, [("fileReservedTime", "7"), ("orderMessageEnable", "true")])
    assert (settings.namesrv.listen_port, settings.broker.listen_port) == (1111, 2222)
    assert settings.store.store_path_root_dir == str(tmp_path)
    assert settings.namesrv.kv_config_path == str(tmp_path / "namesrv" / "kvConfig.json")
    assert (settings.store.file_reserved_time, settings.namesrv.order_message_enable) == (7, True)
    assert (settings.broker.broker_name, settings.broker.broker_ip1) == ("broker-a", "127.0.0.1")


@pytest.mark.parametrize("key", sorted(OWNED_BY_UP))
def test_up_rejects_keys_of_its_options(key: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="use "):
        up_settings(tmp_path, "127.0.0.1", 1, 3, [(key, "1")])


def test_unknown_key_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    namesrv_settings(None, [("orderMesageEnable", "true")])
    assert capsys.readouterr().err == (
        "firearrow: warning: setting orderMesageEnable is unknown and has no effect; did you mean orderMessageEnable?\n"
    )


def test_malformed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_bytes(b"a=\xff\xfe")
    with pytest.raises(ValueError, match=r"n\.conf is not a text file in UTF-8"):
        namesrv_settings(str(path), [])
    path.write_text(r"a=\u12")
    with pytest.raises(ValueError, match=r"n\.conf: .*hexadecimal"):
        namesrv_settings(str(path), [])


def test_durability_names_possible_losses() -> None:
    assert durability(StoreSettings()).startswith("SYNC_FLUSH (an acknowledged message is on the disk)")
    assert "last 500 ms" in durability(StoreSettings(flush_disk_type="ASYNC_FLUSH"))
