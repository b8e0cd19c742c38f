"""Java clients with TLS and plain ones on the same ports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.agent import Agent
from tests.conformance.conftest import StartCluster, fresh, topic_on
from tests.support.certificates import CERTIFICATE, KEY


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
def test_encrypted_java_clients_send_and_consume(java: Agent, start_cluster: StartCluster, tmp_path: Path, mode: str) -> None:
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(KEY)
    cluster = start_cluster(
        {
            "tls.server.mode": mode,
            "tls.server.certPath": str(tmp_path / "cert.pem"),
            "tls.server.keyPath": str(tmp_path / "key.pem"),
        },
        kind="firearrow",
    )
    topic = fresh("Encrypted") if mode == "enforcing" else topic_on(cluster)
    producer, consumer = fresh("producer"), fresh("consumer")
    java.call("producer.start", name=producer, namesrv=cluster.namesrv, tls=True)
    bodies = [f"secret-{n}" for n in range(40)]
    results = java.call("producer.send", name=producer, topic=topic, messages=[{"body": body} for body in bodies])
    assert [result["status"] for result in results] == ["SEND_OK"] * 40
    java.call("push.start", name=consumer, group=consumer, namesrv=cluster.namesrv, topics={topic: "*"}, tls=True)
    assert sorted(one["body"] for one in java.consumed(consumer, 40)) == sorted(bodies)
    if mode == "permissive":
        plain = fresh("producer")
        java.call("producer.start", name=plain, namesrv=cluster.namesrv)
        java.call("producer.send", name=plain, topic=topic, messages=[{"body": "open"}])
        java.call("producer.stop", name=plain)
        assert "open" in [one["body"] for one in java.consumed(consumer, 41)]
    java.call("producer.stop", name=producer)
    java.call("push.stop", name=consumer)
