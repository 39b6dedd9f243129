"""A broker over the store that Apache RocketMQ 5.5.0 wrote, with Apache's own broker.conf."""

from __future__ import annotations

import json

import pytest

import pymq
from pymq.broker.config_source import build_config, read_config_file
from pymq.remoting import json_dialect
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.wire import Wire, send_fields
from tests.conftest import DATA


@pytest.fixture
def broker(golden_store, tmp_path):
    """The broker of the golden configuration, at other ports and over a copy of the golden store."""
    text = (DATA / "golden-store" / "broker.conf").read_text().replace("STORE", str(golden_store))
    path = tmp_path / "broker.conf"
    path.write_text(text)
    config = build_config(read_config_file(path), config_path=str(path)).config
    config = config.replace(listen_port=0, namesrv_listen_port=0, namesrv_addr="", bind_address="127.0.0.1")
    with pymq.Broker(config).running() as running:
        yield running


def test_topics_groups_offsets_and_messages_of_apache_are_served(broker):
    """Reads each table through a request, a committed offset and a queue's end, then sends behind it."""
    with Wire(broker.config.listen_port) as wire:
        table = json.loads(wire.call(RequestCode.GET_ALL_TOPIC_CONFIG).body)["topicConfigTable"]
        assert table["GoldenTx"]["attributes"] == {"message.type": "TRANSACTION"}
        groups = json.loads(wire.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body)["subscriptionGroupTable"]
        assert {"golden_cg", "golden_pop"} <= set(groups)
        stats = json_dialect.loads(wire.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "golden_cg"}).body)
        rows = {(key["topic"], key["queueId"]): row for key, row in stats["offsetTable"].items()}
        assert (rows["GoldenA", 1]["consumerOffset"], rows["GoldenA", 1]["brokerOffset"]) == (46, 46)
        sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("GoldenA", 1), b"ours")
        assert (sent.code, sent.fields["queueOffset"]) == (ResponseCode.SUCCESS, "46")


def test_what_apache_keeps_beside_the_store_is_still_there_after_a_stop(golden_store, broker):
    """Files of parts that are not served yet are neither read nor touched."""
    names = ["delayOffset.json", "consumerFilter.json", "consumerOrderInfo.json", "timermetrics"]
    before = {name: (golden_store / "config" / name).read_bytes() for name in names}
    with Wire(broker.config.listen_port) as wire:
        wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("GoldenA", 1), b"ours")
    assert {name: (golden_store / "config" / name).read_bytes() for name in names} == before
