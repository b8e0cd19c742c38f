"""`firearrow up --cluster FORM` as processes: control of the members, failures and invalid usage."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from firearrow.cli.main import main
from firearrow.wire import fastjson
from firearrow.wire.codes import RequestCode, ResponseCode
from firearrow.wire.signature import RequestSigner
from tests.cli.process import ANY_PORTS, Start, Started, accepts, call, failed, read_json, route, shared_signer
from tests.support.certificates import CERTIFICATE, KEY
from tests.support.waiting import wait_until


def up(start: Start, form: str, *more: str) -> tuple[Started, dict[str, str]]:
    """A cluster that is ready, and the addresses of its members."""
    process = start("up", "--cluster", form, "--data", "data", *ANY_PORTS, "--ready-file", "ready.json", *more)
    line = process.line()
    ready = read_json(process.log_path.parent / "ready.json")
    assert line.startswith(f"firearrow ready  cluster {form}  namesrv {ready['namesrv']}  {ready['names'][0]} ")
    return process, {"namesrv": ready["namesrv"], **dict(zip(ready["names"], ready["brokers"], strict=True))}


def test_members_are_killed_stopped_and_started(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "2m-2s-async", "--set", "flushDiskType=ASYNC_FLUSH")
    assert list(members) == ["namesrv", "broker-a", "broker-b", "broker-a-slave", "broker-b-slave"]

    def cluster(*words: str) -> tuple[int, str, str]:
        one = start("cluster", *words, "--data", "data")
        out, _ = one.process.communicate(timeout=120)
        return one.process.returncode, out.decode(), one.log

    def status() -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in json.loads(cluster("status", "-o", "json")[1])}

    before = status()
    assert {row["state"] for row in before.values()} == {"running"}
    assert {name: row["broker_id"] for name, row in before.items() if name != "namesrv"} == {
        "broker-a": 0, "broker-b": 0, "broker-a-slave": 1, "broker-b-slave": 1,
    }  # fmt: skip
    assert {data["brokerName"] for data in route(members["namesrv"], "TBW102")["brokerDatas"]} == {"broker-a", "broker-b"}
    assert (tmp_path / "data" / "broker-a-slave" / "store" / "commitlog").is_dir()

    pid = before["broker-a"]["pid"]
    assert cluster("kill", "broker-a") == (0, f"killed broker-a (process {pid})\n", "")
    assert not accepts(members["broker-a"])
    code, out, error = cluster("kill", "broker-a")
    assert (code, out) == (1, "")
    assert error == "firearrow cluster kill: broker-a is not running (killed); start it with `firearrow cluster start broker-a`\n"
    code, _, error = cluster("stop", "broker-c")
    assert code == 1
    assert error.startswith("firearrow cluster stop: no such member 'broker-c'; did you mean broker-")
    assert cluster("stop", "broker-b-slave")[0] == 0
    assert {name: row["state"] for name, row in status().items() if row["state"] != "running"} == {
        "broker-a": "killed", "broker-b-slave": "stopped",
    }  # fmt: skip
    assert cluster("start", "broker-a", "broker-b-slave")[0] == 0
    assert accepts(members["broker-a"])
    code, _, error = cluster("start", "broker-a")
    assert (code, "broker-a is already running" in error) == (1, True)

    os.kill(int(before["broker-b"]["pid"]), signal.SIGKILL)
    wait_until(lambda: "broker-b, process" in process.log, "it is said that one died")
    line = next(line for line in process.log.splitlines() if " died (" in line)
    assert line.endswith("died (signal SIGKILL); restart it with `firearrow cluster start broker-b`")
    assert status()["broker-b"]["state"] == "died: signal SIGKILL"

    assert process.stop()[0] == 0
    assert not any(accepts(address) for address in members.values())
    code, _, error = cluster("status")
    assert (code, "is not running: start it with `firearrow up --cluster 2m-2s-async --data" in error) == (1, True)
    code, error = failed(["up", "--cluster", "2m", "--data", "data"], tmp_path)
    assert (code, "contains a cluster of the form 2m-2s-async; start it with --cluster 2m-2s-async" in error) == (1, True)
    code, error = failed(["up", "--data", "data"], tmp_path)
    assert (code, "contains a cluster of the form 2m-2s-async" in error) == (1, True)


@pytest.mark.slow
@pytest.mark.parametrize("given", [False, True], ids=["created keys", "given keys"])
def test_members_with_access_control_share_keys(start: Start, tmp_path: Path, given: bool) -> None:
    settings = ["--set", "authenticationEnabled=true", "--set", "authorizationEnabled=true"]
    if given:
        settings += ["--set", 'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"inner-secret"}']
    process, members = up(start, "dledger-3", *settings)
    signer = RequestSigner("inner", "inner-secret") if given else shared_signer(tmp_path / "data")
    name = "inner" if given else "admin"

    for address in members.values():
        assert call(address, RequestCode.AUTH_LIST_USER).code == ResponseCode.NO_PERMISSION
        users = fastjson.loads(call(address, RequestCode.AUTH_LIST_USER, signer=signer).body)
        assert [(user["username"], user["userType"]) for user in users] == [(name, "Super")]
    for member in members:
        kind = "namesrv" if member == "namesrv" else "broker"
        assert (tmp_path / "data" / member / f"{kind}.conf").stat().st_mode & 0o777 == 0o600

    keys = {"FIREARROW_ACCESS_KEY": "inner", "FIREARROW_SECRET_KEY": "inner-secret"} if given else {}
    status = start("cluster", "status", "-o", "json", "--data", "data", **keys)
    out, _ = status.process.communicate(timeout=120)
    assert sorted(row["role"] for row in json.loads(out)) == ["follower", "follower", "leader", "name server"]
    assert process.stop()[0] == 0


@pytest.mark.slow
def test_members_register_and_elect_a_leader_if_only_tls_is_accepted(start: Start, tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    values = {"mode": "enforcing", "certPath": str(tmp_path / "cert.pem"), "keyPath": str(tmp_path / "key.pem")}
    process, _ = up(
        start, "dledger-3", *(word for key, value in values.items() for word in ("--set", f"tls.server.{key}={value}"))
    )
    assert process.stop()[0] == 0
    for name in ("n0", "n1", "n2"):
        assert "it is not encrypted" not in (tmp_path / "data" / name / "broker.log").read_text()


def test_members_stop_with_the_process_that_started_them(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "2m")
    process.stop(signal.SIGKILL)
    wait_until(lambda: not any(accepts(address) for address in members.values()), "the members stop")


def test_member_that_cannot_start_stops_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "data" / "broker-b").mkdir(parents=True)
    (tmp_path / "data" / "broker-b" / "store").write_text("a file where a directory should be")
    code, error = failed(["up", "--cluster", "2m", "--data", "data", *ANY_PORTS], tmp_path)
    assert code == 1
    assert "broker-b exited with code 1 before it was ready: firearrow broker: " in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["up", "--cluster", "2m-2s"], 2, "'2m-2s' is not a cluster form; did you mean 2m-2s-sync? expected one of 2m, "),
        (["up", "--cluster", "dleger3"], 2, "did you mean dledger-3?"),
        (["up", "--cluster", "2m", "--brokers", "2"], 2, "--brokers and --cluster exclude each other"),
        (
            ["up", "--cluster", "2m", "--set", "brokerRole=SLAVE"],
            1,
            "no --set of this key with --cluster 2m, which determines it",
        ),
        (["up", "--cluster", "2m", "--broker-port", "65525"], 1, "the last of 2 brokers would use port 65535, without room"),
        (["cluster", "status", "--data", "/nonexistent"], 1, "no cluster in /nonexistent: start one with `firearrow up"),
        (["cluster", "kill"], 2, "missing argument 'NAME...'"),
    ],
)
def test_invalid_usage_is_rejected(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == code
    assert said in capsys.readouterr().err


def test_malformed_state_file_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"form": 3}')
    with pytest.raises(SystemExit) as end:
        main(["cluster", "status", "--data", str(tmp_path)])
    assert end.value.code == 1
    assert "cluster.json is not a cluster state file" in capsys.readouterr().err


def test_group_elects_another_leader_when_its_leader_is_killed(start: Start, tmp_path: Path) -> None:
    process, members = up(start, "dledger-3")
    assert list(members) == ["namesrv", "n0", "n1", "n2"]

    def roles() -> dict[str, str]:
        one = start("cluster", "status", "--data", "data", "-o", "json")
        out, _ = one.process.communicate(timeout=120)
        return {row["name"]: row["role"] for row in json.loads(out) if row["state"] == "running"}

    before = roles()
    assert sorted(before.values()) == ["follower", "follower", "leader", "name server"]
    leader = next(name for name, role in before.items() if role == "leader")
    assert start("cluster", "kill", leader, "--data", "data").process.wait(120) == 0
    wait_until(lambda: "leader" in roles().values(), "another one leads")
    assert start("cluster", "start", leader, "--data", "data").process.wait(120) == 0
    wait_until(lambda: sorted(roles().values()) == ["follower", "follower", "leader", "name server"], "the old one follows")
    assert process.stop()[0] == 0
    assert not any(accepts(address) for address in members.values())
