"""Settings of the name server: what is refused, what is told, what a request may leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from pymq.namesrv.config import NamesrvConfig, load


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
