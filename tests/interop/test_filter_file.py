"""consumerFilter.json: Apache's manager and ours read each other's."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pymq.broker.filters import FILTERS_FILE, FilterManager
from pymq.broker.subscriptions import SubscriptionData
from tests.broker.fakes import FakeBroker
from tests.interop.apache_toolchain import Toolchain
from tests.interop.filter_oracle import ask

FILTERS = [
    ["Orders", "billing", "price > 5 AND colour IN ('red', 'it''s')", 17],
    ["Orders", "shipping", "region IS NOT NULL", 18],
    ["日本", "a-group-with-a-name-longer-than-sixteen-bytes", "a CONTAINS '本'", 19],
]


def test_apache_reads_ours(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: going back to Apache keeps the filters. Method: save, give the file to its ConsumerFilterManager."""
    (tmp_path / "config").mkdir()
    broker = FakeBroker(tmp_path).load()
    for topic, group, expression, version in FILTERS:
        subscription = SubscriptionData(
            topic=str(topic), sub_string=str(expression), expression_type="SQL92", sub_version=int(version)
        )
        broker.filters.register(str(group), [subscription])
    broker.filters.unregister("shipping")
    assert asyncio.run(broker.filters.save())
    text = (tmp_path / "config" / FILTERS_FILE).read_text()
    (answer,) = ask(apache, tmp_path / "home", [{"load": text}])
    assert sorted(answer["loaded"]) == sorted([*item, True] for item in FILTERS)


def test_we_read_apaches(apache: Toolchain, tmp_path: Path) -> None:
    """Goal: coming from Apache keeps the filters. Method: its manager registers and writes; ours loads, bits too."""
    (tmp_path / "config").mkdir()
    (answer,) = ask(apache, tmp_path / "home", [{"register": FILTERS, "dead": ["shipping"]}])
    (tmp_path / "config" / FILTERS_FILE).write_text(answer["file"])
    filters = FilterManager(FakeBroker(tmp_path))
    filters.load()
    for topic, group, expression, version in FILTERS:
        known = filters.get(str(topic), str(group))
        assert known is not None
        assert (known.expression, known.client_version, known.is_dead) == (expression, version, True)
        assert known.compiled is not None
        written = answer["file"].partition(f'"{group}":{{')[2].partition('"bitPos":[')[2].partition("]")[0]
        assert known.bloom is not None
        assert known.bloom.bit_pos == tuple(int(number) for number in written.split(","))
