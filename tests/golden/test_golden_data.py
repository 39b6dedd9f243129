"""The golden data is whole and agrees with itself; a test that trusts it may."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden import golden_layout

FRAMES = Path(__file__).resolve().parent.parent / "data" / "golden-frames"


def test_what_the_client_pulled_equals_what_the_files_say():
    """Goal: layout.json is a fair oracle. Method: compare it with the messages Apache's own client pulled."""
    pulled = json.loads((golden_layout.DIRECTORY / "expected.json").read_text(encoding="utf-8"))
    by_client = {
        message["commitLogOffset"]: message for topic in pulled["topics"].values() for message in topic["messages"]
    }
    only_in_files = {"fileOffset", "size", "magic"}
    by_file = {
        record["commitLogOffset"]: {name: value for name, value in record.items() if name not in only_in_files}
        for record in golden_layout.layout()["commitlog"]
        if "topic" in record
    }
    assert by_client == by_file


def test_log_is_covered_by_records_and_one_blank_tail():
    """Goal: the layout names every written byte. Method: positions and sizes of the records join without gaps."""
    end = 0
    for record in golden_layout.layout()["commitlog"]:
        assert record["commitLogOffset"] == end
        end += record["storeSize"] if "topic" in record else record["size"]
    assert end == 121134
    second_file = (golden_layout.STORE / "commitlog/00000000000000065536").read_bytes()
    assert set(second_file[end - golden_layout.COMMIT_LOG_FILE_SIZE :]) == {0}


def test_every_message_has_exactly_one_queue_unit():
    """Goal: queues and log agree. Method: sort both by physical offset and compare place, queue and size."""
    from_queues = sorted(
        (position, size, topic, queue_id, queue_offset)
        for (topic, queue_id), units in golden_layout.queue_units().items()
        for queue_offset, (position, size, _) in enumerate(units)
    )
    from_log = [
        (message.physical_offset, message.store_size, message.topic, message.queue_id, message.queue_offset)
        for message in golden_layout.messages()
    ]
    assert from_queues == from_log


@pytest.mark.parametrize("serialization", ["json", "rocketmq"])
def test_every_frame_is_there_with_its_length(serialization: str):
    """Goal: no frame was lost or cut on the way here. Method: the length word, the index and the file agree."""
    directory = FRAMES / serialization
    frames = json.loads((directory / "index.json").read_text(encoding="utf-8"))["frames"]
    assert {frame["file"] for frame in frames} == {path.name for path in directory.glob("*.bin")}
    for frame in frames:
        content = (directory / frame["file"]).read_bytes()
        assert len(content) == frame["frameLength"], frame["file"]
        assert int.from_bytes(content[:4], "big") == len(content) - 4, frame["file"]
        assert len(content) == 8 + frame["headerLength"] + frame["bodyLength"], frame["file"]
