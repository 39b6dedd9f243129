"""Settings that are nobody else's business: which they are, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping

from pymq.errors import ConfigError

MASK = "******"
# In small letters, in any part of a key; parts of words, so that a misspelled password is hidden none the less.
SECRET_WORDS = ("pass", "pasw", "secret", "accesskey", "credential", "initauthenticationuser")


def is_secret(key: str) -> bool:
    """Whether the value of *key* must not be shown."""
    plain = key.lower().replace("_", "")
    return any(word in plain for word in SECRET_WORDS)


def masked_value(key: str, value: str) -> str:
    """*value* as it may be shown; that there is none may be seen."""
    return MASK if value and is_secret(key) else value


def masked(properties: Mapping[str, str]) -> dict[str, str]:
    """*properties* as they may be shown."""
    return {key: masked_value(key, value) for key, value in properties.items()}


def is_mask(key: str, value: str) -> bool:
    """Whether *value* is what was shown in place of the secret itself."""
    return value.strip() == MASK and is_secret(key)


def refuse_mask(key: str, value: str, origin: str) -> None:
    """Refuse the mask as a secret: the printed configuration was taken for a file.

    Raises:
        ConfigError: says so.
    """
    if is_mask(key, value):
        raise ConfigError(f"{origin}: {key} is {MASK}, which is how it is printed; write what it stands for")
