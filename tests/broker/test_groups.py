"""Groups: creation on first use, the file's format, what is forbidden."""

from __future__ import annotations

import asyncio
import json

import pytest

from pymq.broker.groups import SubscriptionGroup
from tests.broker.fakes import FakeBroker


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    return FakeBroker(tmp_path).load()


def stored(broker):
    """The file as it is now."""
    return json.loads((broker.config_directory / "subscriptionGroup.json").read_text())


def test_an_unknown_group_gets_the_defaults_of_5_5_0_on_first_use(broker):
    """Goal: files alike. Method: every field of the new entry as Apache writes it."""
    group = asyncio.run(broker.groups.find("billing"))
    assert stored(broker)["subscriptionGroupTable"]["billing"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "billing",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert broker.serve.groups["billing"]["broker_id_when_slow"] == 1
    assert broker.groups.get("billing") is group


def test_without_auto_creation_only_system_groups_come_by_themselves(tmp_path):
    """Goal: autoCreateSubscriptionGroup=false holds, and tools still work. Method: one of each kind."""
    broker = FakeBroker(tmp_path, auto_create_subscription_group=False).load()
    assert asyncio.run(broker.groups.find("billing")) is None
    assert asyncio.run(broker.groups.find("CID_RMQ_SYS_X")) is not None
    assert broker.groups.get("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("name", ["", "a b", "x" * 121])
def test_a_bad_name_makes_no_group(broker, name):
    """Goal: no group that has no retry topic. Method: empty, blank inside, one character too long."""
    assert asyncio.run(broker.groups.find(name)) is None


def test_the_golden_groups_file_is_read_and_written_back_the_same(golden_store):
    """Goal: Apache reads what we write. Method: Apache's own file, loaded and saved."""
    broker = FakeBroker(golden_store)
    path = golden_store / "config" / "subscriptionGroup.json"
    before = json.loads(path.read_text())
    broker.groups.load()
    asyncio.run(broker.groups.save())
    assert json.loads(path.read_text()) == before


def test_fields_of_a_newer_release_are_kept(tmp_path):
    """Goal: an upgrade and back loses nothing. Method: fields and a table nobody here knows."""
    config = tmp_path / "config"
    config.mkdir()
    entry = {"groupName": "g", "retryMaxTimes": 3, "subscriptionDataSet": [{"topic": "t"}], "newerField": {"a": 1}}
    document = {"subscriptionGroupTable": {"g": entry}, "newerTable": {"x": 1}}
    (config / "subscriptionGroup.json").write_text(json.dumps(document))
    broker = FakeBroker(tmp_path).load()
    asyncio.run(broker.groups.save())
    after = stored(broker)
    assert after["newerTable"] == {"x": 1}
    assert after["subscriptionGroupTable"]["g"]["newerField"] == {"a": 1}
    assert after["subscriptionGroupTable"]["g"]["subscriptionDataSet"] == [{"topic": "t"}]
    assert broker.groups.get("g").retry_max_times == 3


def test_a_disabled_group_is_published_as_disabled(broker):
    """Goal: consumeEnable reaches the reactors. Method: off and on again."""
    asyncio.run(broker.groups.update([SubscriptionGroup(group_name="g", consume_enable=False)]))
    assert broker.serve.groups["g"]["disabled"]
    asyncio.run(broker.groups.update([SubscriptionGroup(group_name="g")]))
    assert not broker.serve.groups["g"]["disabled"]


def test_what_is_forbidden_makes_pulls_special_and_survives_a_restart(broker, tmp_path):
    """Goal: the forbidden table holds. Method: two topics forbidden, restarted, allowed one by one."""
    asyncio.run(broker.groups.find("g"))
    asyncio.run(broker.groups.set_forbidden("g", "t", 4))
    asyncio.run(broker.groups.set_forbidden("g", "u", 4))
    assert broker.serve.groups["g"]["special"]
    again = FakeBroker(tmp_path).load()
    assert (again.groups.forbidden("g", "t"), again.groups.forbidden("g", "other")) == (4, 0)
    asyncio.run(again.groups.set_forbidden("g", "t", 0))
    assert again.groups.forbidden("g", "u") == 4
    asyncio.run(again.groups.set_forbidden("g", "u", 0))
    assert not again.serve.groups["g"]["special"]


@pytest.mark.parametrize("offsets_too", [False, True])
def test_a_deleted_group_is_gone_and_its_offsets_if_asked(broker, offsets_too):
    """Goal: deleting does what was asked. Method: with and without offsets."""
    asyncio.run(broker.groups.find("g"))
    broker.serve.offset_commit("g", "t", 0, 7)
    assert asyncio.run(broker.groups.delete("g", offsets_too=offsets_too))
    assert broker.groups.get("g") is None
    assert "g" not in stored(broker)["subscriptionGroupTable"]
    assert bool(broker.serve.table) is not offsets_too
