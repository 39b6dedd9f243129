"""Configuration: files as people have them, who wins, what is said about keys without effect."""

from __future__ import annotations

import pytest

from pymq.broker.cli import listening_words, load_config, parse_arguments, render
from pymq.broker.config import BrokerConfig
from pymq.broker.config_source import (
    BROKER_ROWS,
    STORE_ROWS,
    Given,
    all_properties,
    build_config,
    explain,
    from_environment,
    important_properties,
    read_config_file,
)
from pymq.broker.known_keys import KNOWN_KEYS
from pymq.errors import ConfigError

# As shipped in conf/2m-noslave/broker-a.properties, and what operators add to it.
NO_SLAVE = """
# Licensed to nobody
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
"""

CONTAINER = """
brokerClusterName = DefaultCluster
brokerName : broker-b
brokerId 0
namesrvAddr = ns1:9876;\\
              ns2:9876
! the address clients can reach
brokerIP1 = 192.0.2.7
diskMaxUsedSpaceRatio=95
storePathRootDir=/srv/store
storePathCommitLog=/srv/store/commitlog
mapedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=6001
autoCreateTopicEnable=False
sendMessageThreadPoolNums=64
useReentrantLockWhenPutMessage=true
"""


def load(tmp_path, text):
    """The configuration of a file with that text."""
    path = tmp_path / "broker.conf"
    path.write_text(text)
    return build_config(read_config_file(path), config_path=str(path))


def given(**values):
    """The configuration of these keys alone."""
    return build_config(Given(key, value, "here") for key, value in values.items())


def test_the_sample_file_of_the_distribution_works_without_a_word(tmp_path):
    """Goal: what everybody begins with. Method: no warning, values and Apache's defaults."""
    loaded = load(tmp_path, NO_SLAVE)
    assert loaded.warnings == []
    assert (loaded.config.broker_name, loaded.config.store.file_reserved_time_hours) == ("broker-a", 48)
    assert loaded.config.store.flush_disk_type == "ASYNC_FLUSH"
    assert loaded.config.store.mapped_file_size_commit_log == 1 << 30


def test_separators_continuations_comments_and_old_spellings_are_read(tmp_path):
    """Goal: files as people write them. Method: one of each, and keys of older releases."""
    config = load(tmp_path, CONTAINER).config
    assert (config.broker_name, config.broker_id) == ("broker-b", 0)
    assert config.namesrv_addr == "ns1:9876;ns2:9876"
    assert config.store.mapped_file_size_commit_log == 1048576
    assert config.store.mapped_file_size_consume_queue == 6020
    assert not config.auto_create_topic_enable
    assert config.resolved().store_path_commit_log == "/srv/store/commitlog"


def test_a_known_key_without_effect_is_named_only_when_it_says_something_else_than_the_default(tmp_path):
    """Goal: warnings that mean something. Method: one key at its default, one not; file and line are named."""
    warnings = load(tmp_path, CONTAINER).warnings
    assert sum("sendMessageThreadPoolNums" in warning for warning in warnings) == 1
    assert not any("useReentrantLock" in warning for warning in warnings)
    assert any("broker.conf:15" in warning for warning in warnings)


def test_values_that_rocketmq_accepts_are_brought_into_bounds_and_said(tmp_path):
    """Goal: an existing file starts. Method: disk ratios out of order, in percent."""
    loaded = load(tmp_path, CONTAINER)
    assert loaded.config.store.disk_max_used_space_ratio == 85
    assert any("diskMaxUsedSpaceRatio=95" in warning for warning in loaded.warnings)
    loaded = given(diskSpaceWarningLevelRatio="80", diskMaxUsedSpaceRatio="5")
    store = loaded.config.store
    levels = (store.disk_max_used_space_ratio, store.disk_space_clean_forcibly_ratio)
    assert (*levels, store.disk_space_warning_level_ratio) == (10, 0.8, 0.8)


@pytest.mark.parametrize(
    ("key", "suggestion"),
    [("listenport", "listenPort"), ("brokerNam", "brokerName"), ("flushDiskTyp", "flushDiskType"), ("zzzz", None)],
)
def test_an_unknown_key_is_a_warning_with_a_suggestion_and_an_error_when_strict(key, suggestion):
    """Goal: a typing error is found. Method: other case, a letter less, nothing alike; strict and not."""
    (warning,) = given(**{key: "1"}).warnings
    assert "here" in warning
    assert key in warning
    assert (f"did you mean {suggestion}?" in warning) is (suggestion is not None)
    with pytest.raises(ConfigError, match=key):
        given(**{key: "1", "strictConfig": "true"})


@pytest.mark.parametrize(
    ("key", "value"),
    [("listenPort", "x"), ("autoCreateTopicEnable", "yes"), ("listenPort", "70000"), ("flushDiskType", "SYNC"),
     ("brokerRole", "SLAVE"), ("deleteWhen", "99"), ("listenPort", "2"), ("dataPlane", "java")],
)  # fmt: skip
def test_a_value_that_cannot_be_is_refused(key, value):
    """Goal: no guess. Method: wrong types, bounds, words and a role that needs replication."""
    with pytest.raises(ConfigError):
        given(**{key: value})


def test_a_wrong_type_names_file_and_line(tmp_path):
    """Goal: the operator finds it. Method: the error's text."""
    with pytest.raises(ConfigError, match=r"broker\.conf:2: listenPort='x'"):
        load(tmp_path, "brokerName=a\nlistenPort=x\n")


@pytest.mark.parametrize(
    ("line", "words"), [("listenPort=70000", "at most 65,535"), ("flushDiskType=FOO", "SYNC_FLUSH")]
)
def test_a_value_out_of_bounds_is_named_as_it_was_written(tmp_path, line, words):
    """Goal: the operator finds it. Method: key, file and line in the error, for the broker's and the store's keys."""
    key = line.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"broker\.conf:2: {key} .*{words}"):
        load(tmp_path, f"brokerName=a\n{line}\n")


def test_a_master_has_id_0_whatever_its_file_says():
    """Goal: a slave's file with the role changed makes a master that is found. Method: as Apache, id 0, and said."""
    loaded = given(brokerId="1", brokerRole="SYNC_MASTER")
    assert any("brokerId=1" in warning for warning in loaded.warnings)
    assert loaded.config.resolved().broker_id == 0


@pytest.mark.parametrize("address", ["garbage", "host:", "host:0", "host:65536", ":9876", "a:9876;b"])
def test_a_name_server_that_is_no_address_is_refused(address):
    """Goal: no broker that runs and is never found. Method: addresses without a host or a port that can be."""
    with pytest.raises(ConfigError, match="Name Server Address"):
        BrokerConfig(namesrv_addr=address).resolved()
    assert BrokerConfig(namesrv_addr="a:1;[::1]:65535;").resolved().namesrv_addr


@pytest.mark.parametrize("key", ["storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile"])
def test_keys_that_no_release_reads_are_explained_also_when_strict(key):
    """Goal: half the files of the world have them. Method: one sentence without a wrong suggestion."""
    (warning,) = given(**{key: "/x", "strictConfig": "true"}).warnings
    assert "always" in warning
    assert "did you mean" not in warning


@pytest.mark.parametrize(
    ("key", "meant"), [("tls.server.mod", "tls.server.mode"), ("tls.server.certpath", "tls.server.certPath")]
)
def test_a_misspelled_tls_key_is_told_and_refused_when_strict(key, meant):
    """Goal: no server open that was meant to be closed. Method: keys nearly right; strict, not, and at run time."""
    (warning,) = given(**{key: "x"}).warnings
    assert f"did you mean {meant}?" in warning
    with pytest.raises(ConfigError, match=f"did you mean {meant}"):
        given(**{key: "x", "strictConfig": "true"})


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("tls.server.mode", "enforce", "disabled, permissive or enforcing"),
        ("tls.server.need.client.auth", "requre", "none, optional or require"),
        ("tls.test.mode.enable", "flase", "true or false"),
        ("tls.server.authClient", "ture", "true or false"),
        ("tls.enable", "yes", "true or false"),
    ],
)
def test_a_misspelled_tls_value_is_refused_with_its_choices(key, value, choices):
    """Goal: a word nobody knows is not taken for false. Method: the error's place, key, value and choices."""
    with pytest.raises(ConfigError, match=f"here: {key} is '{value}'; it can be {choices}"):
        given(**{key: value})


def test_a_misspelled_key_in_the_tls_file_is_told_and_refused_when_strict(tmp_path):
    """Goal: the file that wins is looked at. Method: no file, a typing error, a key of the process, a wrong value."""
    file = tmp_path / "tls.properties"

    def warnings(*more):
        return load_config(parse_arguments([f"tls.config.file={file}", *more]), {}).warnings

    assert any("no such file" in warning for warning in warnings())
    file.write_text("tls.server.keyPasword=x\ntls.server.mode=enforcing\n")
    found = warnings()
    assert f"{file}:1: unknown key tls.server.keyPasword: did you mean tls.server.keyPassword?" in found
    assert any(f"{file}:2: tls.server.mode has no effect" in warning for warning in found)
    with pytest.raises(ConfigError, match="keyPasword"):
        warnings("strictConfig=true")
    file.write_text("tls.server.authClient=ture\n")
    with pytest.raises(ConfigError, match=r"tls\.properties:1: tls\.server\.authClient is 'ture'"):
        warnings()


def test_certificates_that_are_not_used_are_said():
    """Goal: nobody believes in a certificate that is not served. Method: with and without the test mode."""
    files = {"tls.server.certPath": "/c", "tls.server.keyPath": "/k"}
    assert any("tls.test.mode.enable" in warning for warning in given(**files).warnings)
    assert given(**files, **{"tls.test.mode.enable": "false"}).warnings == []


@pytest.mark.parametrize(
    ("action", "instead"),
    [("print", "tls.server.keyPassword=******\n"), ("important", ""), ("explain", "******  [here]\n")],
)
def test_a_password_is_not_printed(action, instead):
    """Goal: a terminal is no place for it. Method: -p, -m and --explain, also of a key misspelled or without effect."""
    loaded = given(
        **{"tls.server.keyPassword": "s3cret", "tls.server.keyPasword": "s3cret", "initAuthenticationUser": "s3cret"}
    )
    printed = render(action, loaded)
    assert "s3cret" not in printed + " ".join(loaded.warnings)
    assert instead in printed


def test_a_printed_password_is_not_taken_for_the_password():
    """Goal: what -p printed is not believed blindly. Method: the mask as a value."""
    with pytest.raises(ConfigError, match=r"here: tls\.server\.keyPassword is \*{6}, which is how it is printed"):
        given(**{"tls.server.keyPassword": "******"})


def test_a_file_that_is_not_there_is_one_clear_line(tmp_path):
    """Goal: no traceback for a wrong -c. Method: the error's text."""
    with pytest.raises(ConfigError, match=r"missing\.conf: No such file"):
        read_config_file(tmp_path / "missing.conf")


def test_the_command_line_wins_over_the_file_and_the_file_over_the_environment():
    """Goal: mqbroker's precedence. Method: the same key from one, two and three places; what --explain says of it."""
    environment = from_environment({"NAMESRV_ADDR": "env:1", "ROCKETMQ_HOME": "/opt", "OTHER": "x"})
    file = [Given("namesrvAddr", "file:1", "broker.conf:1")]
    line = [Given("namesrvAddr", "line:1", "command line")]
    assert build_config(environment).config.namesrv_addr == "env:1"
    assert build_config([*environment, *file]).config.namesrv_addr == "file:1"
    loaded = build_config([*environment, *file, *line])
    assert loaded.config.namesrv_addr == "line:1"
    text = explain(loaded)
    assert "line:1  [command line]" in text
    assert "/opt  [environment ROCKETMQ_HOME]" in text
    assert "10911  [default]" in text


def test_the_keys_of_5_5_0_are_known_with_their_defaults():
    """Spot checks of the table against the golden GET_BROKER_CONFIG answer's first lines, and its size."""
    expected = {
        "accessMessageInMemoryHotRatio": "26",
        "ackThreadPoolQueueCapacity": "100000",
        "brokerNotActiveTimeoutMillis": "10000",
        "cgColdReadThreshold": "3145728",
        "transactionCheckInterval": "30000",
        "haListenPort": "10912",
        "serverSocketBacklog": "1024",
    }
    assert {key: KNOWN_KEYS[key].default for key in expected} == expected
    assert len(KNOWN_KEYS) > 500


def test_every_supported_key_is_rocketmq_s_or_listed_as_our_own():
    """Goal: no key by accident. Method: supported keys minus Apache's."""
    own = {
        "dataPlane",
        "dumpLeaseMaxAgeHours",
        "namesrvListenPort",
        "newGroupOffsetPolicy",
        "reactorThreads",
        "rocketmq.broker.rebalance.lockMaxLiveTime",  # a system property of Apache's broker
        "strictConfig",
    }
    assert {key for key in (*BROKER_ROWS, *STORE_ROWS) if key not in KNOWN_KEYS} == own


def test_printed_properties_give_the_same_configuration_again():
    """Goal: -p is a file. Method: read back what is printed."""
    config = given(listenPort="12345", diskSpaceWarningLevelRatio="88", traceOn="false", aclEnable="true").config
    printed = all_properties(config)
    again = build_config(Given(key, value, "again") for key, value in printed.items() if value != "")
    assert again.config.replace(others={}) == config.replace(others={})
    assert printed["aclEnable"] == "true"
    assert printed["diskSpaceWarningLevelRatio"] == "88"


def test_important_properties_are_few_and_have_the_names():
    """Goal: -m is readable. Method: some names, and how many."""
    found = important_properties(BrokerConfig())
    assert {"brokerName", "namesrvAddr", "storePathRootDir", "flushDiskType", "dataPlane"} <= set(found)
    assert len(found) < 100


def test_nothing_configured_means_loopback_alone():
    """Goal: a broker nobody set up is not for the network. Method: the addresses it resolves to."""
    config = BrokerConfig().resolved()
    assert (config.bind_address, config.broker_ip1, config.broker_ip2) == ("127.0.0.1",) * 3
    assert config.store_path_root_dir.endswith("/store")


@pytest.mark.parametrize(
    "settings",
    [{"namesrv_addr": "ns:9876"}, {"broker_config_path": "broker.conf"}, {"broker_ip1": "192.0.2.7"}],
)
def test_a_name_server_a_file_or_an_address_opens_the_broker(settings):
    """Goal: whoever configures is served. Method: each of the three alone."""
    assert BrokerConfig(**settings).resolved().bind_address == "0.0.0.0"


@pytest.mark.parametrize("address", ["127.0.0.1:9876", "localhost:9876", "[::1]:9876;127.0.0.2:1;"])
def test_a_loopback_name_server_left_in_the_environment_opens_nothing(address):
    """Goal: "no arguments" is loopback, whatever the shell has. Method: NAMESRV_ADDR alone, names of this machine."""
    loaded = load_config(parse_arguments([]), {"NAMESRV_ADDR": address})
    config = loaded.config
    assert (config.bind_address, config.broker_ip1, config.namesrv_addr) == ("127.0.0.1", "127.0.0.1", address)
    assert loaded.warnings == []


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        ([], {"NAMESRV_ADDR": "192.0.2.1:9876"}),
        ([], {"NAMESRV_ADDR": "127.0.0.1:9876;ns2:9876"}),
        (["-n", "ns:9876"], {}),
        (["-n", "127.0.0.1:9876"], {}),
        (["--namesrvAddr", "127.0.0.1:9876"], {"NAMESRV_ADDR": "127.0.0.1:9876"}),
    ],
)
def test_a_broker_that_joins_name_servers_opens_and_says_so(arguments, environment):
    """Goal: nobody listens on the network unawares. Method: the address, and a warning with the way out."""
    loaded = load_config(parse_arguments(arguments), environment)
    assert loaded.config.bind_address == "0.0.0.0"
    (warning,) = loaded.warnings
    assert "listens on ALL addresses" in warning
    assert "set bindAddress" in warning
    assert "0.0.0.0:10911 (VIP 10909), that is ALL addresses" in listening_words(loaded.config)


@pytest.mark.parametrize("key", ["bindAddress", "brokerIP1"])
def test_an_address_given_is_taken_without_a_word(key):
    """Goal: whoever chose is not warned. Method: one address beside a name server."""
    loaded = load_config(parse_arguments(["-n", "ns:9876", f"{key}=127.0.0.1"]), {})
    assert (loaded.config.broker_ip1, loaded.warnings) == ("127.0.0.1", [])


def test_a_bind_address_is_also_what_clients_are_told():
    """Goal: routes lead somewhere. Method: one address given."""
    config = BrokerConfig(bind_address="192.0.2.9").resolved()
    assert (config.bind_address, config.broker_ip1) == ("192.0.2.9", "192.0.2.9")


def test_a_host_nobody_knows_is_refused_by_its_key():
    """Goal: the error names what was written. Method: a name that cannot be."""
    with pytest.raises(ConfigError, match="bindAddress is 'no such host'"):
        BrokerConfig(bind_address="no such host").resolved()


def test_a_log_elsewhere_than_in_the_store_is_refused_with_a_way_out(tmp_path):
    """Goal: a log is not overlooked. Method: another path refused, the same through a link accepted."""
    config = BrokerConfig(store_path_root_dir=str(tmp_path), store_path_commit_log="/elsewhere/commitlog")
    with pytest.raises(ConfigError, match="symbolic link"):
        config.resolved()
    (tmp_path / "log").mkdir()
    (tmp_path / "commitlog").symlink_to(tmp_path / "log")
    linked = BrokerConfig(store_path_root_dir=str(tmp_path), store_path_commit_log=str(tmp_path / "log"))
    assert linked.resolved().store_path_commit_log == str(tmp_path / "commitlog")
