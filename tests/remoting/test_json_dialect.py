"""JSON as RocketMQ writes it: bare numbers and whole objects as keys."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pymq.remoting import json_dialect
from pymq.remoting.command import Command
from pymq.remoting.errors import CodecError
from pymq.remoting.json_dialect import FORGIVEN_SIZE_MAX, ObjectKey, Reader, dumps, loads
from tests.remoting.conftest import GoldenFrame


def test_every_recorded_body_is_read_and_written_again(golden: list[GoldenFrame]):
    """Goal: Apache's own bodies. Method: read each that is JSON, and write those in dialect byte for byte again."""
    read = dialect = 0
    for frame in golden:
        body = Command.decode(frame.data).body
        if body[:1] not in (b"{", b"["):
            continue
        try:
            value = loads(body)
        except CodecError:
            continue  # a message's body that happens to begin so
        read += 1
        if b":1." not in body and b"E" not in body and b"null" not in body:
            assert loads(dumps(value, standard=False)) == value, frame.name
        try:
            json.loads(body)
        except ValueError:
            dialect += 1
            assert dumps(value, standard=False) == body, frame.name
    assert read > 100
    assert dialect > 10


def test_numbers_as_keys_are_bare_unless_the_peer_wants_standard_json():
    """Goal: both kinds of clients. Method: a broker table."""
    table = {"brokerAddrs": {0: "a:1", 1: "b:2"}}
    assert dumps(table, standard=False) == b'{"brokerAddrs":{0:"a:1",1:"b:2"}}'
    assert dumps(table, standard=True) == b'{"brokerAddrs":{"0":"a:1","1":"b:2"}}'
    assert loads(dumps(table, standard=False)) == table


def test_objects_as_keys():
    """Goal: tables keyed by message queues. Method: read, compare, look up, write."""
    text = (
        b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"maxOffset":3},'
        b'{"brokerName":"a","queueId":1,"topic":"T"}:5}}'
    )
    value = loads(text)
    queue = ObjectKey({"topic": "T", "queueId": 0, "brokerName": "a"})
    assert value["offsetTable"][queue] == {"maxOffset": 3}
    assert dumps(value, standard=False) == text
    assert json.loads(dumps(value, standard=True))["offsetTable"]['{"brokerName":"a","queueId":1,"topic":"T"}'] == 5
    assert queue != ObjectKey({"topic": "T", "queueId": 1, "brokerName": "a"})
    assert dict(queue) == {"topic": "T", "queueId": 0, "brokerName": "a"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a':'b\\'c'}", {"a": "b'c"}),
        ('{"a":1,}', {"a": 1}),
        ('{"a":1 "b":2}', {"a": 1, "b": 2}),
        ("[1,2,]", [1, 2]),
        ('/* c */ {"a" : /* d */ 1} // end', {"a": 1}),
        ('{"a":+7,"b":007,"c":5.,"d":3L}', {"a": 7, "b": 7, "c": 5, "d": 3}),
        ("{-1:[],2:{}}", {-1: [], 2: {}}),
        ('{"a":"\\x41\\v"}', {"a": "A\v"}),
    ],
)
def test_what_fastjson_forgives_is_forgiven(text: str, value: object):
    """Goal: hand-written and old configuration is read. Method: one of each."""
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[",
        '{"a"}',
        '{"a":}',
        "tru",
        "{]",
        '"\\u12"',
        '{"a":1}}',
        "[" * 100_000,
        "NaN",
        "{:1}",
        "{[1]:2}",
        "9" * 9999,
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text: str):
    """Goal: an error that says where, for any input. Method: one of each, and one that is deeper than any stack."""
    with pytest.raises(CodecError, match="character"):
        loads(text)


def test_what_cannot_be_written_is_refused():
    """Goal: no half-written body. Method: an object, a value nested in itself."""
    nested: list[object] = []
    nested.append(nested)
    with pytest.raises(CodecError, match="nested deeper"):
        dumps(nested, standard=True)
    with pytest.raises(CodecError, match="cannot be written"):
        dumps(object(), standard=True)


def test_null_in_a_map_is_left_out_and_in_a_list_stays():
    """Goal: as fastjson writes. Method: both."""
    assert dumps({"a": None, "b": [None, 1]}, standard=True) == b'{"b":[null,1]}'


VALUES = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read_back(value: object):
    """Goal: nothing is lost. Method: any value; lone surrogates are no text on the wire."""
    assert loads(dumps(value, standard=False)) == json_round(value)


def json_round(value: object) -> object:
    """The value as UTF-8 can carry it."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [json_round(item) for item in value]
    if isinstance(value, dict):
        return {json_round(name): json_round(item) for name, item in value.items()}
    return value


FLAT = st.dictionaries(st.text(max_size=4), st.booleans() | st.integers() | st.text(), max_size=3).map(ObjectKey)
TABLES = st.recursive(
    st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers() | FLAT, inner, max_size=4),
    max_leaves=20,
)


@given(TABLES)
@example({ObjectKey({"a}:": '{"{0:'}): {0: ',1:"\\'}})
@example({"\0000": 1, 5: 2})
def test_what_fastjson_writes_is_read_the_same_by_both_readers(value: object):
    """Goal: the short way is only shorter. Method: any value with any keys, against the patient reader."""
    text = dumps(value, standard=False).decode()
    assert loads(text) == Reader(text).whole()


@given(st.text(alphabet="{}[]\"'\\:,01- a\0", max_size=12))
def test_whatever_stands_there_both_readers_say_the_same(text: str):
    """Goal: as above for what is no JSON, or forgiven. Method: texts of nothing but signs."""
    try:
        expected = Reader(text).whole()
    except CodecError:
        expected = CodecError
    try:
        value = loads(text)
    except CodecError:
        value = CodecError
    assert value == expected


@pytest.mark.parametrize(
    "unit",
    ['"%d":1', "%d:1", '{"brokerName":"a","queueId":%d,"topic":"T"}:{"maxOffset":3}', '"T%d":{0:[1.5,-2],1:"x"}'],
)
def test_a_table_of_megabytes_is_read_without_the_patient_reader(monkeypatch, unit: str):
    """Symptom: a body of 7 MiB with bare keys held the control loop up for 6 s and more."""
    monkeypatch.setattr(json_dialect, "Reader", None)
    count = 2**20 // len(unit)
    text = "{" + ",".join(unit % index for index in range(count)) + "}"
    assert len(loads(text)) == count


@pytest.mark.parametrize("unit", ["'%d':1", '"%d":+1', '/**/"%d":1'])
def test_a_body_that_is_only_forgiven_is_refused_when_it_is_long(unit: str):
    """Symptom: the same with single quotes, which nobody writes by the megabyte. Files are read whatever they cost."""
    text = "{" + ",".join(unit % index for index in range(FORGIVEN_SIZE_MAX // 6)) + "}"
    with pytest.raises(CodecError, match=rf"the limit is {FORGIVEN_SIZE_MAX}"):
        loads(text)
    assert loads(text, forgiven_size_max=None)["7"] == 1
    assert loads("{" + unit % 7 + "}") == {"7": 1}


@pytest.mark.parametrize(
    "unit", ["{", "[", '"', '"\\', '{"', '{"a",', "{0", ",0", ",{", '{"":""', "{0:", "{{}:", ",{}", "1 ", "{ ", '{0:"']
)
def test_no_text_takes_time_that_grows_faster_than_it_does(unit: str):
    """Goal: no regular expression that runs back and forth. Method: a megabyte of each beginning without an end."""
    begun = time.process_time()
    with pytest.raises(CodecError):
        loads("{0:0," + unit * (2**20 // len(unit)))
    assert time.process_time() - begun < 10
