"""What the twin tests draw: records at the formats' edges, properties full of separators, UTF-8 with flaws."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.reference.properties import encode_properties
from tests.reference.record import MAGIC_V1, MAGIC_V2, BatchItem, Host, Record

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), INT32)

# Bytes where UTF-8 decoders differ: lead bytes, continuation bytes at the edges of ranges, a few ASCII ones.
EDGE_BYTES = bytes.fromhex("00014123407f808f909fa0bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5f7f8ff")
FLAWED_UTF8 = st.lists(st.sampled_from(EDGE_BYTES), max_size=12).map(bytes)
TEXT = (
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | FLAWED_UTF8
    | st.binary(max_size=40)
    | st.text(alphabet="abcXYZ019_-", max_size=40).map(str.encode)
)

TOPIC_BYTES = st.integers(1, 255).filter(lambda byte: byte != ord("/"))
TOPICS = (
    st.text(alphabet="abcXYZ019_-%", min_size=1, max_size=30).map(str.encode)
    | st.lists(TOPIC_BYTES, min_size=1, max_size=20).map(bytes).filter(lambda topic: topic not in (b".", b".."))
    | st.integers(125, 130).map(lambda size: b"t" * size)
    | st.integers(254, 258).map(lambda size: b"t" * size)
)

PLAIN_PAIRS = st.lists(
    st.tuples(
        st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"a", b"colour"]) | TEXT.filter(bool),
        TEXT,
    ).map(lambda pair: tuple(part.replace(b"\x01", b"").replace(b"\x02", b"") for part in pair)),
    max_size=6,
)
SEPARATOR_SOUP = st.lists(st.sampled_from(b"\x01\x02ab"), max_size=30).map(bytes)
PROPERTIES = PLAIN_PAIRS.map(encode_properties) | SEPARATOR_SOUP | st.binary(max_size=40)
WELL_FORMED = PROPERTIES.filter(lambda text: not text or b"\x01" in text)

RECORDS = st.builds(
    Record,
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=INT32,
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
    body=st.binary(max_size=300),
    topic=TOPICS,
    properties=WELL_FORMED,
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
)
BATCH_ITEMS = st.builds(BatchItem, INT32, st.binary(max_size=60), PROPERTIES)


@st.composite
def damaged(draw: st.DrawFn, sources: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of *sources* after a few accidents: bytes changed, a piece zeroed, cut short, something behind."""
    source = bytearray(draw(sources))
    for _ in range(draw(st.integers(0, 3))):
        if not source:
            break
        at = draw(st.integers(0, len(source) - 1))
        accident = draw(st.sampled_from(["change", "zero", "cut", "append"]))
        if accident == "change":
            source[at] = draw(st.integers(0, 255))
        elif accident == "zero":
            size = draw(st.integers(1, 64))
            source[at : at + size] = bytes(len(source[at : at + size]))
        elif accident == "cut":
            del source[at:]
        else:
            source += draw(st.binary(max_size=30))
    return bytes(source)
