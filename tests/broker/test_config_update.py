"""Changing the configuration of a running broker: what is live, what is kept, the file's other lines."""

from __future__ import annotations

import logging

import pytest

from pymq.broker.cli import load_config, parse_arguments
from pymq.broker.config_source import read_config_file
from pymq.broker.config_update import LIVE, changed_config, keep_changes
from pymq.errors import ConfigError
from tests.broker.fakes import FakeBroker


@pytest.fixture
def broker(tmp_path):
    """A broker with fakes around it, loaded."""
    return FakeBroker(tmp_path)


def test_a_live_key_changes_at_once_and_others_wait(broker, caplog):
    """Goal: nobody is misled. Method: a live key, two that are not; what is logged."""
    with caplog.at_level(logging.WARNING, "pymq.broker"):
        config = changed_config(broker, {"brokerPermission": "4", "listenPort": "1234", "maxHashSlotNum": "5"})
    assert (config.broker_permission, config.listen_port) == (4, 10911)
    assert config.store.max_hash_slot_num == 5_000_000
    assert {record.getMessage() for record in caplog.records} >= {
        "kept for the next start key=listenPort value=1234",
        "kept for the next start key=maxHashSlotNum value=5",
    }


def test_what_retention_looks_at_is_live(broker):
    """Retention's settings change at once, in RocketMQ's units; levels in the wrong order are refused."""
    store = changed_config(broker, {"fileReservedTime": "71", "diskSpaceWarningLevelRatio": "95"}).store
    assert (store.file_reserved_time_hours, store.disk_space_warning_level_ratio) == (71, 0.95)
    with pytest.raises(ConfigError):
        changed_config(broker, {"diskSpaceWarningLevelRatio": "50"})


@pytest.mark.parametrize(
    "changes",
    [
        {"brokerPermision": "4"},
        {"brokerPermission": "x"},
        {"brokerPermission": "8"},
        {"tls.server.mod": "enforcing"},
        {"tls.server.mode": "enforce"},
    ],
)
def test_a_change_that_cannot_be_changes_nothing(broker, changes):
    """Goal: all or nothing. Method: a good change beside an unknown key, a wrong type and a value out of bounds."""
    with pytest.raises(ConfigError):
        changed_config(broker, {"traceOn": "false", **changes})


def test_a_known_key_without_effect_is_shown_afterwards(broker):
    """Goal: what was said is not lost. Method: a key of access control."""
    assert changed_config(broker, {"aclEnable": "true"}).others == {"aclEnable": "true"}


def test_changes_are_kept_in_the_file_given_or_in_the_store(broker, tmp_path):
    """Goal: a change outlives the process. Method: without and with -c, and the backup."""
    keep_changes(broker, {"traceOn": "false"})
    assert (tmp_path / "config" / "broker.properties").read_text() == "traceOn=false\n"
    given = tmp_path / "broker.conf"
    given.write_text("# mine\ntraceOn=true\n")
    broker.config = broker.config.replace(broker_config_path=str(given))
    keep_changes(broker, {"traceOn": "false"})
    assert given.read_text() == "# mine\ntraceOn=false\n"
    assert (tmp_path / "broker.conf.bak").read_text() == "# mine\ntraceOn=true\n"


def test_changes_without_a_file_are_read_at_the_next_start(broker, tmp_path):
    """Goal: what was answered with success holds after a restart. Method: the change, then the command line's loading;
    the command line and a file given with -c still win."""
    keep_changes(broker, {"autoCreateTopicEnable": "false", "brokerName": "kept"})
    store = ["--storePathRootDir", str(tmp_path)]
    loaded = load_config(parse_arguments([*store, "--brokerName", "said"]), {})
    assert loaded.config.auto_create_topic_enable is False
    assert loaded.config.broker_name == "said"
    assert loaded.origins["autoCreateTopicEnable"].endswith("broker.properties:1")
    assert loaded.config.bind_address == "127.0.0.1"  # it is no file that somebody gave
    given = tmp_path / "broker.conf"
    given.write_text("brokerName=given\n")
    loaded = load_config(parse_arguments([*store, "-c", str(given)]), {})
    assert (loaded.config.auto_create_topic_enable, loaded.config.broker_name) == (True, "given")


def test_a_file_in_latin_1_can_be_changed(broker, tmp_path):
    """Goal: what a start reads, a change can edit. Method: a comment of another encoding; then a value with letters
    that encoding has not."""
    given = tmp_path / "broker.conf"
    given.write_bytes("# für alle\nbrokerName=a\n".encode("iso-8859-1"))
    broker.config = broker.config.replace(broker_config_path=str(given))
    keep_changes(broker, {"brokerName": "b"})
    assert given.read_bytes() == "# für alle\nbrokerName=b\n".encode("iso-8859-1")
    keep_changes(broker, {"brokerClusterName": "集群😀"})
    assert {item.key: item.value for item in read_config_file(given)}["brokerClusterName"] == "集群😀"


def test_what_takes_effect_at_the_next_start_is_not_called_live():
    """The waits of the lanes are given to the transport when it opens."""
    assert "brokerFastFailureEnable" not in LIVE
