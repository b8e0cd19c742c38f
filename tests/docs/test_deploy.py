"""The files for real machines: what they configure is what the settings take, and systemd and YAML understand them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest

from firearrow.broker.settings import BrokerSettings
from firearrow.config.fields import apply, declared
from firearrow.config.properties_file import parse_properties
from firearrow.namesrv.settings import NamesrvSettings
from firearrow.store.settings import StoreSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "operate" / "deploy"
CONFIGS = sorted(DEPLOY.rglob("*.conf"))
BROKERS = [path for path in CONFIGS if path.name != "namesrv.conf"]


def settings_of(path: Path) -> tuple[BrokerSettings, StoreSettings]:
    broker, store = BrokerSettings(), StoreSettings()
    assert apply([broker, store], parse_properties(path.read_text())) == []
    return broker, store


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_the_settings_are_taken(path: Path) -> None:
    if path in BROKERS:
        settings_of(path)[0].check()
    else:
        assert apply([NamesrvSettings()], parse_properties(path.read_text())) == []


@pytest.mark.parametrize("path", BROKERS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_key_means_something(path: Path) -> None:
    """Keys of Apache's that we have no use for are accepted in silence: an example must have none."""
    known = {**declared(BrokerSettings), **declared(StoreSettings)}
    assert [key for key in parse_properties(path.read_text()) if key not in known] == []


def test_the_slave_finds_its_master() -> None:
    master, _ = settings_of(DEPLOY / "machines" / "broker-a.conf")
    slave, _ = settings_of(DEPLOY / "machines" / "broker-a-slave.conf")
    assert slave.broker_name == master.broker_name
    assert slave.ha_master_address == f"{master.broker_ip1}:{master.ha_listen_port}"


@pytest.mark.parametrize("where", ["machines", "compose"])
def test_the_members_of_a_group_agree(where: str) -> None:
    members = [settings_of(DEPLOY / where / f"n{number}.conf")[0] for number in range(3)]
    assert len({member.d_leger_peers for member in members}) == 1
    assert [member.d_leger_self_id for member in members] == ["n0", "n1", "n2"]
    peers = dict(peer.split("-", 1) for peer in (members[0].d_leger_peers or "").split(";"))
    hosts = [member.broker_ip1 or member.d_leger_self_id for member in members]
    assert [address.rpartition(":")[0] for address in peers.values()] == hosts


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze; on Debian: apt-get install systemd"
)
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for unit in (DEPLOY / "machines").glob("*.service"):
        text = unit.read_text()
        assert "/opt/firearrow/bin/firearrow " in text
        (tmp_path / unit.name).write_text(text.replace("/opt/firearrow/bin/firearrow", sys.executable))
    units = [str(tmp_path / "firearrow-namesrv.service"), str(tmp_path / "firearrow-broker@broker-a.service")]
    shutil.copy(tmp_path / "firearrow-broker@.service", units[1])
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False)
    ours = [line for line in done.stderr.splitlines() if "firearrow" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_the_package_can_be_built_from_the_files_that_the_dockerfile_copies(tmp_path: Path) -> None:
    stage = (DEPLOY / "compose" / "Dockerfile").read_text().split("\nFROM ")[1]
    tree = tmp_path / "src"
    for line in re.findall(r"^COPY (.+)$", stage, re.MULTILINE):
        *sources, target = line.split()
        for source in sources:
            destination = tmp_path / target.strip("/") / (source if target.endswith("/") else "")
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, destination, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                destination.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, destination)
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-build-isolation",
        "--no-deps",
        "--no-index",
        "--wheel-dir",
        tmp_path,
        tree,
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # cmake and ninja of this environment
    built = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path, env={**os.environ, "PATH": path}
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("firearrow-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "firearrow/broker/server.py" in names
    native = [name for name in names if name.endswith(".so")]
    compiles = shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()
    assert len(native) == (2 if compiles else 0)


def test_the_composition_starts_what_is_configured() -> None:
    services = composition()["services"]
    assert list(services) == ["namesrv", "n0", "n1", "n2"]
    volumes = set(composition()["volumes"])
    for name, service in services.items():
        kind, flag, inside = service["command"]
        assert (kind, flag) == ("namesrv" if name == "namesrv" else "broker", "-c")
        config, data = service["volumes"]
        outside, mounted, _ = config.split(":")
        assert mounted == inside
        assert (DEPLOY / "compose" / outside).is_file()
        assert data == f"{name}:/var/lib/firearrow"
        assert name in volumes
        assert service["restart"] == "on-failure"


def composition() -> dict[str, Any]:
    """Read by whichever Python here has a YAML reader: we need none ourselves."""
    program = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"
    for python in (sys.executable, "/usr/bin/python3"):
        done = subprocess.run(
            [python, "-c", program],
            input=(DEPLOY / "compose" / "compose.yaml").read_text(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 0:
            value: dict[str, Any] = json.loads(done.stdout)
            return value
        assert re.search("No module named 'yaml'|No such file", done.stderr), done.stderr
    pytest.skip("no Python here has a YAML reader; on Debian: apt-get install python3-yaml")
