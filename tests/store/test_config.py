"""StoreConfig: defaults are Apache's, bounds hold at the edge, thresholds agree, texts parse."""

from __future__ import annotations

import pytest

from pymq.errors import ConfigError
from pymq.store.config import StoreConfig, parse_delay_levels, parse_host, parse_hours
from pymq.store.settings import describe_settings

ROWS = list(describe_settings(StoreConfig))


def test_defaults_are_apache_s_sizes_and_safe_flushing():
    """Goal: a store of ours is a store of theirs. Method: the numbers of MessageStoreConfig, and our one difference."""
    config = StoreConfig()
    assert config.mapped_file_size_commit_log == 1024**3
    assert config.mapped_file_size_consume_queue == 300_000 * 20
    assert (config.max_hash_slot_num, config.max_index_num) == (5_000_000, 20_000_000)
    assert config.max_message_size == 4 * 1024**2
    assert (config.file_reserved_time_hours, config.delete_when, config.disk_max_used_space_ratio) == (72, "04", 75)
    assert (config.disk_space_clean_forcibly_ratio, config.disk_space_warning_level_ratio) == (0.85, 0.90)
    assert config.flush_disk_type == "SYNC_FLUSH"


def test_every_setting_is_documented():
    """Goal: the class is the manual. Method: two sentences each, a unit for every number, unique aliases."""
    for row in ROWS:
        assert row.info.doc.count(". ") >= 1, row.name
        assert row.info.doc.endswith("."), row.name
        if row.type_name in ("int", "float"):
            assert row.info.unit, row.name
            assert row.info.low is not None, row.name
            assert row.info.high is not None, row.name
    aliases = [row.info.alias for row in ROWS if row.info.alias]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize("row", [row for row in ROWS if row.type_name in ("int", "float")], ids=lambda row: row.name)
def test_bounds_hold_at_the_edge(row):
    """Goal: the documented bounds are the real ones. Method: one below the low, one above the high."""
    step = 1 if row.type_name == "int" else 0.001
    for value in (row.info.low - step, row.info.high + step):
        with pytest.raises(ConfigError, match=row.name):
            StoreConfig(**{row.name: value})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_values_of_another_type_are_refused(row):
    """Goal: "72" is not 72. Method: a value of a wrong kind for each setting."""
    wrong = 1 if row.type_name in ("bool", "str") else "1"
    with pytest.raises(ConfigError, match=row.name):
        StoreConfig(**{row.name: wrong})


def test_disk_levels_are_checked_together():
    """Goal: files are cleaned before sends are refused. Method: each pair out of order, and equal ones."""
    StoreConfig(disk_max_used_space_ratio=80, disk_space_clean_forcibly_ratio=0.8, disk_space_warning_level_ratio=0.8)
    for changes in (
        {"disk_space_clean_forcibly_ratio": 0.91},
        {"disk_max_used_space_ratio": 86},
        {"disk_space_warning_level_ratio": 0.5},
    ):
        with pytest.raises(ConfigError, match="must hold"):
            StoreConfig(**changes)


def test_a_queue_file_holds_whole_units():
    """Goal: no torn unit at a file's end. Method: sizes around a multiple of 20; the error suggests the next one."""
    assert StoreConfig(mapped_file_size_consume_queue=1020).mapped_file_size_consume_queue == 1020
    with pytest.raises(ConfigError, match="such as 1020"):
        StoreConfig(mapped_file_size_consume_queue=1001)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:10911", (b"\x7f\0\0\1", 10911)),
        ("[::1]:1", (b"\0" * 15 + b"\1", 1)),
        ("10.0.0.1:0", (b"\n\0\0\1", 0)),
    ],
)
def test_hosts_parse(text, expected):
    """Goal: both families. Method: bytes and port of each form."""
    assert parse_host(text) == expected


@pytest.mark.parametrize(
    "text", ["", "localhost:1", "1.2.3.4", "1.2.3.4:65536", "1.2.3:4", "::1:4", "[1.2.3.4:5", "[zz]:1"]
)
def test_other_hosts_are_refused(text):
    """Goal: what cannot be stamped into a record is refused at once. Method: forms that are not address:port."""
    with pytest.raises(ConfigError, match="store_host"):
        StoreConfig(store_host=text)


def test_delay_levels_parse_and_are_bounded():
    """Goal: the same text as Apache's. Method: units, the default's ends, wrong words, too many."""
    assert parse_delay_levels("1s 2m 3h 4d") == (1000, 120_000, 10_800_000, 345_600_000)
    levels = parse_delay_levels(StoreConfig().message_delay_level)
    assert (len(levels), levels[0], levels[-1]) == (18, 1000, 7_200_000)
    for text in ("", "1x", "s", "1 s", " ".join(["1s"] * 65)):
        with pytest.raises(ConfigError, match="message_delay_level"):
            StoreConfig(message_delay_level=text)


def test_hours_parse():
    """Goal: deleteWhen as Apache reads it. Method: one hour, several, and wrong ones."""
    assert parse_hours("04") == {4}
    assert parse_hours("04; 16;23") == {4, 16, 23}
    for text in ("", "24", "four", "4:00"):
        with pytest.raises(ConfigError, match="delete_when"):
            StoreConfig(delete_when=text)


def test_replace_checks_again_and_changes_nothing_else():
    """Goal: a config is frozen. Method: replace one value, try to assign another."""
    config = StoreConfig()
    assert config.replace(delete_when="05").delete_when == "05"
    assert config.delete_when == "04"
    with pytest.raises(ConfigError):
        config.replace(max_message_size=0)
    with pytest.raises(AttributeError):
        config.delete_when = "06"
