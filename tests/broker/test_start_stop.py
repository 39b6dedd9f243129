"""A broker in a process of its own: ready line, refusals, clean stop, and what a kill leaves."""

from __future__ import annotations

import json
import signal
import socket

import pytest

from pymq.broker.cli import main
from pymq.remoting.codes import RequestCode, ResponseCode
from tests.broker.wire import BrokerProcess, Wire, send_fields


def test_a_broker_with_no_name_server_brings_its_own_and_both_are_on_loopback(tmp_path):
    """Starts with nothing but ports and a path, then asks its name server for the route of TBW102."""
    with BrokerProcess(tmp_path) as broker:
        with Wire(broker.namesrv_port) as wire:
            answer = wire.call(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102", "acceptStandardJsonOnly": "true"}
            )
        assert answer.code == ResponseCode.SUCCESS
        addresses = json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"]
        assert addresses == {"0": f"127.0.0.1:{broker.port}"}
        with Wire(broker.port - 2) as vip:
            assert vip.call(RequestCode.GET_BROKER_CONFIG).code == ResponseCode.SUCCESS
        assert broker.stop() == 0
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly_and_nothing_acknowledged_is_lost(tmp_path, number):
    """Sends, signals, starts again, and reads the queue's end."""
    with BrokerProcess(tmp_path) as broker, Wire(broker.port) as wire:
        for n in range(10):
            assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"%d" % n).code == ResponseCode.SUCCESS
        assert broker.stop(number) == 0
    assert not (tmp_path / "store" / "abort").exists()
    with BrokerProcess(tmp_path) as broker, Wire(broker.port) as wire:
        answer = wire.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        assert answer.fields["offset"] == "10"


@pytest.mark.crash
def test_a_topic_is_on_disk_when_the_first_send_to_it_is_acknowledged(tmp_path):
    """Kills the broker right behind the first acknowledgement and reads topics.json."""
    with BrokerProcess(tmp_path) as broker, Wire(broker.port) as wire:
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"one").code == ResponseCode.SUCCESS
        broker.stop(signal.SIGKILL)
    table = json.loads((tmp_path / "store" / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["orders"]["writeQueueNums"] == 4
    with BrokerProcess(tmp_path) as broker, Wire(broker.port) as wire:
        answer = wire.call(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        assert answer.fields["offset"] == "1"


def test_a_port_in_use_is_one_clear_line_and_no_store(tmp_path, capsys, monkeypatch):
    """Goal: a second broker by mistake. Method: a port held by the test; no log is made."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code = main(["--listenPort", str(port), "--storePathRootDir", str(tmp_path / "store")])
    assert code == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"port {port}" in line
    assert "in use" in line
    assert "listenPort" in line
    assert not (tmp_path / "store" / "commitlog").exists()


def test_a_store_that_is_open_elsewhere_is_one_clear_line(tmp_path):
    """Goal: two brokers over one store by mistake. Method: a second process; its last line."""
    with BrokerProcess(tmp_path):
        second = BrokerProcess(tmp_path)
        assert second.process.wait(30) == 1
        second.process.stdout.close()
        second.log.close()
    last = (tmp_path / "broker.err").read_text().strip().splitlines()[-1]
    assert last.startswith("pymq.broker: ")
    assert str(tmp_path / "store") in last


def test_a_path_that_cannot_be_made_is_one_clear_line(tmp_path, capsys, monkeypatch):
    """Goal: a wrong path. Method: a directory below a file."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    (tmp_path / "file").write_text("")
    assert main(["--listenPort", "0", "--storePathRootDir", str(tmp_path / "file" / "store")]) == 1
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert str(tmp_path / "file") in line


@pytest.mark.parametrize("arguments", [["-c"], ["-x"], ["stray"], ["--listenPort"]])
def test_a_command_line_that_makes_no_sense_is_a_usage_error(arguments, capsys):
    """Goal: exit 2 and the word. Method: a missing value, an unknown letter, a stray word."""
    assert main(arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_print_and_explain_start_nothing(tmp_path, capsys, monkeypatch):
    """Goal: looking changes nothing. Method: what is printed, and no store afterwards."""
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    store = tmp_path / "store"
    for option in ("-p", "-m"):
        assert main([option, "--storePathRootDir", str(store)]) == 0
        printed = dict(line.split("=", 1) for line in capsys.readouterr().out.splitlines())
        assert printed["namesrvAddr"] == "ns:9876"
        assert printed["storePathRootDir"] == str(store)
    assert main(["--explain", "--listenPort", "1234"]) == 0
    explained = capsys.readouterr().out
    assert "1234  [command line]" in explained
    assert "ns:9876  [environment NAMESRV_ADDR]" in explained
    assert not store.exists()
