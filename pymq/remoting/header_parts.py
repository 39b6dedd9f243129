"""What both header codecs read and write: the header without its frame."""

from __future__ import annotations

from typing import NamedTuple


class HeaderParts(NamedTuple):
    """A header's values. A field that is null on the wire is absent here."""

    code: int
    language: str  # a name of LanguageCode, or "" for one that nobody knows
    version: int
    opaque: int
    flag: int
    remark: str | None
    fields: dict[str, str]
    empty_fields: bool  # JSON only: there are no fields, and their map stands there all the same
