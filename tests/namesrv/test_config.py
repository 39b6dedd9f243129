"""Settings of the name server: what is refused, what is told, what a request may leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymq.namesrv.config import IGNORED_KEYS, NamesrvConfig, load

GOLDEN = Path(__file__).resolve().parent.parent / "data/golden-frames/json"


def given(**values: str) -> NamesrvConfig:
    """The configuration of these keys alone."""
    return load(None, values)


def test_a_misspelled_tls_key_is_told_and_refused_when_strict() -> None:
    """Goal: no server open that was meant to be closed. Method: a key nearly right, strict and not."""
    (warning,) = given(**{"tls.server.mod": "enforcing"}).warnings
    assert "did you mean tls.server.mode?" in warning
    with pytest.raises(ValueError, match=r"did you mean tls\.server\.mode"):
        given(**{"tls.server.mod": "enforcing", "strictConfig": "true"})


@pytest.mark.parametrize(
    ("key", "value", "choices"),
    [
        ("tls.server.mode", "enforce", "disabled, permissive or enforcing"),
        ("tls.server.need.client.auth", "requre", "none, optional or require"),
        ("tls.server.authClient", "ture", "true or false"),
    ],
)
def test_a_misspelled_tls_value_is_refused_with_its_choices(key: str, value: str, choices: str) -> None:
    """Goal: a word nobody knows is not taken for false. Method: the error's place, key, value and choices."""
    with pytest.raises(ValueError, match=f"command line: {key} is '{value}'; it can be {choices}"):
        given(**{key: value})


def test_a_misspelled_key_in_the_tls_file_is_told_and_refused_when_strict(tmp_path: Path) -> None:
    """Goal: the file that wins is looked at. Method: one typing error."""
    file = tmp_path / "tls.properties"
    file.write_text("tls.server.keyPasword=x\n")
    (warning,) = given(**{"tls.config.file": str(file)}).warnings
    assert warning == f"{file}:1: unknown key tls.server.keyPasword: did you mean tls.server.keyPassword?"
    with pytest.raises(ValueError, match="keyPasword"):
        given(**{"tls.config.file": str(file), "strictConfig": "true"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("scanNotActiveBrokerInterval", "0"),
        ("scanNotActiveBrokerInterval", "-5"),
        ("waitSecondsForService", "-4"),
        ("listenPort", "99999"),
        ("serverChannelMaxIdleTimeSeconds", "-1"),
    ],
)
def test_a_number_that_cannot_be_is_refused_with_its_bounds(key: str, value: str) -> None:
    """Goal: no scan without a pause. Method: numbers out of bounds, by key and by field."""
    with pytest.raises(ValueError, match=f"command line: {key}={value}: it lies between"):
        given(**{key: value})
    with pytest.raises(ValueError, match="scanNotActiveBrokerInterval=0"):
        NamesrvConfig(scan_not_active_broker_interval=0)


def test_a_key_without_effect_is_named_only_when_it_says_something_else_than_the_default() -> None:
    """Goal: nobody waits for a controller. Method: what Apache's own name server answered, then other values."""
    answer = (GOLDEN / "namesrv_000319_GET_NAMESRV_CONFIG_json_0.resp.bin").read_bytes().decode("utf-8", "replace")
    golden = dict(line.split("=", 1) for line in answer[answer.index("}") + 1 :].splitlines())
    assert {key for key in IGNORED_KEYS if key not in golden} == {"controllerType"}
    assert given(**golden).warnings == []
    loaded = given(enableControllerInNamesrv="true", serverWorkerThreads="16", clusterTest="FALSE", rocketmqHome="/x")
    assert loaded.warnings == [
        "command line: enableControllerInNamesrv=true has no effect here: pymq does not support it",
        "command line: serverWorkerThreads=16 has no effect here: pymq does not support it",
    ]


def test_a_refused_change_changes_nothing() -> None:
    """Goal: all or nothing. Method: good keys before and after a bad value, and before an unknown key."""
    config = NamesrvConfig(strict_config=True)
    before = config.to_properties()
    for bad in ({"enableTopicList": "maybe"}, {"tls.enable": "ja"}, {"unheardOf": "1"}, {"listenPort": "70000"}):
        values = {"supportActingMaster": "true", "tls.server.mode": "enforcing", **bad, "orderMessageEnable": "true"}
        with pytest.raises(ValueError, match=next(iter(bad))):
            config.update(values, "request")
        assert (config.to_properties(), config.tls) == (before, {})


def test_strict_on_the_command_line_holds_for_the_file(tmp_path: Path) -> None:
    """The file's unknown keys are refused, too."""
    file = tmp_path / "namesrv.conf"
    file.write_text("unheardOf=1\nstrictConfig=false\n")
    with pytest.raises(ValueError, match="unheardOf"):
        load(str(file), {"strictConfig": "true"})
    assert len(load(str(file)).warnings) == 1
