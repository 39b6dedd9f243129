"""A broker inside a program: on one's own loop, on a thread, twice, refused; and a loop that dies."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

import pymq
from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from tests.broker.test_admin import SMALL, send
from tests.broker.wire import Wire, send_fields


def config_in(directory, **more):
    """A small broker in *directory*, ports chosen by the kernel."""
    settings = {"listen_port": 0, "namesrv_listen_port": 0, "broker_name": "a", "store": SMALL}
    return pymq.BrokerConfig(store_path_root_dir=str(directory), **(settings | more))


def test_a_broker_runs_on_the_caller_s_own_loop(tmp_path):
    """Goal: async with. Method: one request while the loop is the test's."""

    async def scenario():
        async with pymq.Broker(config_in(tmp_path)) as broker:
            return await asyncio.to_thread(ask, broker.config.listen_port)

    assert asyncio.run(scenario()) == ResponseCode.SUCCESS


def test_a_bug_in_one_part_of_the_stop_does_not_keep_the_store_open(tmp_path):
    """Goal: no `abort` left behind by a programming error. Method: saving offsets raises what nobody expects."""

    async def scenario():
        broker = pymq.Broker(config_in(tmp_path))
        await broker.start()

        async def save():
            raise AttributeError("a bug")

        broker.offsets.save = save
        with pytest.raises(AttributeError, match="a bug"):
            await broker.stop()

    asyncio.run(scenario())
    assert not (tmp_path / "abort").exists()


def ask(port):
    """The code of one answer."""
    with Wire(port) as wire:
        return wire.call(RequestCode.GET_BROKER_CONFIG).code


def test_two_brokers_in_one_program_share_a_name_server(tmp_path):
    """The second registers with the first one's name server; a topic's route then has both."""
    with pymq.Broker(config_in(tmp_path / "a")).running() as first:
        config = config_in(tmp_path / "b", broker_name="b", namesrv_addr=first.namesrv_addr, bind_address="127.0.0.1")
        with pymq.Broker(config).running() as second:
            with Wire(int(first.namesrv_addr.rpartition(":")[2])) as wire:
                answer = wire.call(RequestCode.GET_BROKER_CLUSTER_INFO)
            text = answer.body.decode()
            assert first.address in text
            assert second.address in text
            assert second.name_server is None


def test_a_stopped_broker_leaves_no_thread_and_its_store_can_be_opened_again(tmp_path):
    """Goal: a library leaves nothing behind. Method: threads before and after two rounds over one store."""
    before = set(threading.enumerate())
    for round_number in range(2):
        with pymq.Broker(config_in(tmp_path)).running() as broker, Wire(broker.config.listen_port) as wire:
            answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("BenchmarkTest"), b"x")
            assert answer.fields["queueOffset"] == str(round_number)
        assert not (tmp_path / "abort").exists()
    assert set(threading.enumerate()) <= before


def test_a_start_that_fails_closes_what_it_had_opened(tmp_path):
    """The name server's port is taken: the store must be free again afterwards."""
    with pymq.Broker(config_in(tmp_path / "a")).running() as first:
        taken = int(first.namesrv_addr.rpartition(":")[2])
        broken = pymq.Broker(config_in(tmp_path / "b", namesrv_listen_port=taken))
        with pytest.raises(pymq.ConfigError, match=str(taken)), broken.running():
            pass
    with pymq.Broker(config_in(tmp_path / "b")).running() as broker:
        assert ask(broker.config.listen_port) == ResponseCode.SUCCESS


def test_a_start_that_fails_behind_the_transport_says_why_and_closes_everything(tmp_path, monkeypatch):
    """A processor that cannot be made: the cause is raised, not a complaint about the order of closing."""
    monkeypatch.setattr("pymq.broker.controller.all_processors", lambda broker: 1 // 0)
    with pytest.raises(ZeroDivisionError), pymq.Broker(config_in(tmp_path)).running():
        pass
    monkeypatch.undo()
    with pymq.Broker(config_in(tmp_path)).running() as broker:
        assert ask(broker.config.listen_port) == ResponseCode.SUCCESS


def test_a_broker_whose_name_server_is_away_serves_all_the_same(tmp_path, caplog):
    """Nobody listens there: the start says so, and a first send makes its topic without waiting for long."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        away = f"127.0.0.1:{unused.getsockname()[1]}"
    config = config_in(tmp_path, namesrv_addr=away, bind_address="127.0.0.1")
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"x").code == ResponseCode.SUCCESS
    assert [record for record in caplog.records if away in record.getMessage() and record.levelname == "ERROR"]


@pytest.mark.parametrize("plane", ["native", "python"])
def test_a_held_pull_is_answered_when_the_broker_stops(tmp_path, plane):
    """A pull that may wait a minute is held; the stop answers it instead of dropping the connection on it."""
    broker = pymq.Broker(config_in(tmp_path, data_plane=plane))
    with broker.running():
        wire = Wire(broker.config.listen_port)
        send(wire, "orders", 1)
        subscription = {"topic": "orders", "subString": "*", "subVersion": 1}
        consumer = {"groupName": "g", "subscriptionDataSet": [subscription]}
        body = json.dumps({"clientID": "c", "consumerDataSet": [consumer]}).encode()
        wire.call(RequestCode.HEART_BEAT, {}, body)
        fields = {
            "consumerGroup": "g", "topic": "orders", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32",
            "sysFlag": "2", "commitOffset": "0", "suspendTimeoutMillis": "60000", "subVersion": "1",
        }  # fmt: skip
        number = wire.post(Command(RequestCode.PULL_MESSAGE, fields))
        while not broker.serve.stats()["holds"]:
            time.sleep(0.001)
    answer = wire.wait(number)
    wire.close()
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the broker is stopping")
    assert answer.fields["nextBeginOffset"] == "1"


def test_a_broker_behind_a_translated_address_registers_with_its_own_name_server(tmp_path):
    """brokerIP1 leads nowhere from here; the route must have it, and the registration must not go through it."""
    config = config_in(tmp_path, bind_address="127.0.0.1", broker_ip1="192.0.2.7")
    with pymq.Broker(config).running() as broker:
        assert broker.namesrv_addr.startswith("192.0.2.7:")
        with Wire(broker.name_server.port) as wire:
            fields = {"topic": "TBW102", "acceptStandardJsonOnly": "true"}
            answer = wire.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        assert json.loads(answer.body)["brokerDatas"][0]["brokerAddrs"] == {"0": broker.address}


def test_a_broker_that_enforces_tls_registers_with_its_own_name_server(tmp_path):
    """Both ends enforce TLS and nothing else was said: the route must be there all the same."""
    config = config_in(tmp_path, tls={"tls.server.mode": "enforcing"})
    with pymq.Broker(config).running() as broker:
        assert broker.name_server.routes.route("TBW102") is not None


def test_host_names_are_resolved_for_records_and_kept_for_routes(tmp_path):
    """brokerIP1=localhost: clients are told the name, message ids have the address."""
    config = config_in(tmp_path, bind_address="localhost", broker_ip1="localhost")
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        assert broker.address == f"localhost:{broker.config.listen_port}"
        sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("BenchmarkTest"), b"x")
        assert sent.fields["msgId"].startswith("7F000001")
        assert broker.name_server.routes.route("TBW102") is not None


def test_an_ipv6_address_is_written_so_that_a_client_can_split_it(tmp_path):
    """Brackets in the registered address and in the name server's."""
    config = config_in(tmp_path, bind_address="::1")
    with pymq.Broker(config).running() as broker:
        assert broker.address == f"[::1]:{broker.config.listen_port}"
        assert broker.namesrv_addr == f"[::1]:{broker.name_server.port}"
        with Wire(broker.config.listen_port, "::1") as wire:
            sent = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("BenchmarkTest"), b"x")
            assert sent.code == ResponseCode.SUCCESS
        assert broker.name_server.routes.route("TBW102") is not None


def test_stopping_twice_is_stopping_once(tmp_path):
    """Goal: stop() is idempotent. Method: at the same time and afterwards."""

    async def scenario():
        broker = pymq.Broker(config_in(tmp_path))
        await broker.start()
        await asyncio.gather(broker.stop(), broker.stop())
        await broker.stop()
        return broker.message_store.core.closed

    assert asyncio.run(scenario())


def test_a_disk_above_its_warning_level_refuses_sends_until_there_is_room(tmp_path):
    """The disk is what the test says it is; housekeeping looks every 50 ms."""
    full = [0.95]
    store = SMALL.replace(clean_resource_interval_ms=50, flush_consumer_offset_interval_ms=50)
    broker = pymq.Broker(config_in(tmp_path, store=store), disk_probe=lambda path: full[0])
    with broker.running(), Wire(broker.config.listen_port) as wire:

        def codes_until(wanted):
            while True:
                answer = wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("BenchmarkTest"), b"x")
                if answer.code == wanted:
                    return answer

        refused = codes_until(ResponseCode.SERVICE_NOT_AVAILABLE)
        assert refused.remark
        full[0] = 0.5
        assert codes_until(ResponseCode.SUCCESS).fields["queueId"] == "0"


def test_sends_before_their_start_time_are_not_served_natively(tmp_path):
    """Goal: startAcceptSendRequestTimeStamp holds on the fast path. Method: a time far away."""
    far = 1 << 50
    config = config_in(tmp_path, start_accept_send_request_time_stamp=far)
    with pymq.Broker(config).running() as broker, Wire(broker.config.listen_port) as wire:
        assert wire.call(RequestCode.SEND_MESSAGE_V2, send_fields("BenchmarkTest"), b"x").code != ResponseCode.SUCCESS


def test_importing_pymq_loads_no_native_module_and_starts_no_thread():
    """Goal: Spark may fork after the import. Method: threads and modules of a fresh interpreter."""
    code = "import sys, threading, pymq; pymq.Broker; assert threading.active_count() == 1; import subprocess"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    code = "import sys, pymq; assert not [name for name in sys.modules if name.startswith('pymq.')]"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_process_that_was_stopped_and_goes_on_is_not_dead():
    """Stopped for four times the limit by a signal: the watchdog counts its own ticks, not the time."""
    code = """
import asyncio, sys
from pymq.broker.watchdog import Watchdog
async def main():
    watchdog = Watchdog(asyncio.get_running_loop(), dead_s=0.5)
    watchdog.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    watchdog.stop()
asyncio.run(main())
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(2)
        process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
        process.stdin.write("done\n")
        process.stdin.close()
        assert process.wait(30) == 0


@pytest.mark.parametrize("way", ["hangs", "ends"])
def test_a_dead_loop_ends_the_process(way):
    """A loop that hangs, and one that was closed under the watchdog's eyes."""
    hang = "time.sleep(60)" if way == "hangs" else "loop.stop()"
    code = f"""
import asyncio, time
from pymq.broker.watchdog import Watchdog
loop = asyncio.new_event_loop()
def begin():
    Watchdog(loop, dead_s=0.5).start()
    loop.call_later(0.1, lambda: {hang})
loop.call_soon(begin)
loop.run_forever()
loop.close()
time.sleep(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 70
    assert "control loop dead" in done.stderr
