"""Kills around a dump: of the dumper, which goes on where it was; of the broker, which the dumper says.

The dumper is slowed down (--rate), so that a kill meets it in the middle of copying.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pymq.remoting.codes import RequestCode, ResponseCode
from pymq.remoting.command import Command
from pymq.store.dump import load_manifest, verify_dump
from tests.broker.sides import until
from tests.broker.wire import ROOT, BrokerProcess, Wire, send_fields
from tests.store.dumps import dump_json, read_store

pytestmark = pytest.mark.crash

MIB = 1 << 20
OFFSET_DIGITS = 16
BODY_SIZE = 64 << 10
COUNT = 256  # 16 MiB
RATE = 4  # MiB a second
STARVED_S = 120.0  # it gives way to everybody, so beside busy tests it hardly gets on
# A slow machine is not what is looked at: a broker that is starved would refuse sends as busy.
SIZES = (
    "--mappedFileSizeCommitLog", str(4 * MIB), "--maxHashSlotNum", "1000", "--maxIndexNum", "4000",
    "--brokerFastFailureEnable", "false",
)  # fmt: skip


def send_many(wire: Wire, count: int) -> dict[int, tuple[int, bytes]]:
    """Send; queue and body of what was acknowledged, by place in the log."""
    waiting = {}
    for number in range(count):
        body = os.urandom(BODY_SIZE)
        fields = send_fields("T", number % 4, f"UNIQ_KEY\x01{number}\x02")
        waiting[wire.post(Command(RequestCode.SEND_MESSAGE_V2, fields, body))] = number % 4, body
    found = {}
    while waiting:
        answer = wire.receive()
        assert answer.code == ResponseCode.SUCCESS, answer
        found[int(answer.fields["msgId"][-OFFSET_DIGITS:], 16)] = waiting.pop(answer.opaque)
    return found


def start_dump(source: object, target: Path, *more: str) -> subprocess.Popen[str]:
    """The dumper, slowly."""
    command = [sys.executable, "-m", "pymq.store.dump", "--rate", str(RATE), *more, str(source), str(target)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def copied(target: Path) -> int:
    """How much of the log is in the dump, by the blocks it takes."""
    found = 0
    for path in (target / "commitlog").glob("*"):
        found += path.stat().st_blocks * 512
    return found


def position_of(target: Path) -> dict | None:
    """The position in the notes of an unfinished dump."""
    notes = target / "manifest.json.partial"
    if not notes.exists():
        return None
    lines = notes.read_text(encoding="utf-8").splitlines()
    return next((json.loads(line)["position"] for line in lines if line.startswith('{"position"')), None)


def test_a_killed_dumper_of_a_running_broker_goes_on_with_the_same_position(tmp_path):
    """Goal: no kill of the dumper costs more than time. Method: kill it at the beginning, at a third and at two thirds
    of the log, while messages come in; then let it end, and look for every message."""
    dump = tmp_path / "dump"
    with BrokerProcess(tmp_path, *SIZES) as broker, Wire(broker.port) as wire:
        acknowledged = send_many(wire, COUNT)
        address = f"127.0.0.1:{broker.port}"
        positions = []
        for share in (0.0, 0.33, 0.66):
            dumper = start_dump(address, dump)
            until((dump / "manifest.json.partial").exists, STARVED_S)
            until(lambda wanted=share * COUNT * BODY_SIZE: copied(dump) >= wanted, STARVED_S)
            dumper.kill()
            dumper.communicate()
            assert not (dump / "manifest.json").exists()
            positions.append((position_of(dump) or {}).get("end"))
            acknowledged |= send_many(wire, 5)
        result = dump_json(address, dump)
    end = result["log"]["end"]
    assert positions[1] == positions[2] == end
    assert result["reusedBytes"] > 0.3 * COUNT * BODY_SIZE
    assert verify_dump(dump)[1] == []
    expected = sorted(sent for place, sent in acknowledged.items() if place < end)
    assert COUNT <= len(expected) < len(acknowledged)
    assert sorted((queue_id, body) for (_, queue_id, _), body in read_store(dump).items()) == expected


def test_a_broker_killed_under_a_dump_is_a_clear_error_and_the_dump_goes_on_after_its_restart(tmp_path):
    """Goal: the dumper does not take a dead broker's word. Method: kill it in the middle; dump what it left as it is;
    start it again; go on."""
    dump = tmp_path / "dump"
    with BrokerProcess(tmp_path, *SIZES) as broker, Wire(broker.port) as wire:
        acknowledged = send_many(wire, COUNT)
        dumper = start_dump(f"127.0.0.1:{broker.port}", dump, "--lease", "3")
        until(lambda: copied(dump) >= 2 * MIB, STARVED_S)
        broker.stop(9)
        _, errors = dumper.communicate(timeout=60)
    assert dumper.returncode == 1
    assert "is gone" in errors
    assert "the same command continues the dump" in errors
    assert not (dump / "manifest.json").exists()
    position = position_of(dump)
    left = dump_json(tmp_path / "store", tmp_path / "left")
    assert (left["kind"], left["log"]["end"]) == ("stopped", position["end"])
    assert "abort" in {entry.path for entry in load_manifest(tmp_path / "left").files}
    assert sorted((queue_id, body) for (_, queue_id, _), body in read_store(tmp_path / "left").items()) == sorted(
        acknowledged.values()
    )
    with BrokerProcess(tmp_path, *SIZES) as broker, Wire(broker.port) as wire:
        acknowledged |= send_many(wire, 5)
        result = dump_json(f"127.0.0.1:{broker.port}", dump)
    assert result["log"]["end"] == position["end"]
    assert result["reusedBytes"] > 0
    assert verify_dump(dump)[1] == []
    expected = sorted(sent for place, sent in acknowledged.items() if place < position["end"])
    assert len(expected) == COUNT
    assert sorted((queue_id, body) for (_, queue_id, _), body in read_store(dump).items()) == expected
