"""JSON as RocketMQ writes it, which is not always JSON.

Its serializer (fastjson) writes map keys as they are: `{0:"ip:port"}` for a map keyed by numbers, and
`{{"brokerName":"a","queueId":0,"topic":"T"}:{…}}` for one keyed by objects. Its reader takes those, and single quotes,
comments, a comma too many or too few, `+5`, `007`, `5.` and `1L`. `loads` reads all of that.

Three readers, for who reads here serves everybody else too late. Standard JSON, the usual case, goes through the
standard library. So does what fastjson writes, after one regular expression has put quotes around its keys: tables of
thousands of queues come like that. What it merely forgives is read character by character, a microsecond or more each:
nobody writes megabytes of it by hand, and beyond a named size it is refused.

`dumps` writes the dialect, or standard JSON for a peer that said `acceptStandardJsonOnly`. A map keyed by
objects is a dict keyed by `ObjectKey`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from json.encoder import encode_basestring
from typing import Any

from pymq.remoting.errors import CodecError

DEPTH_MAX = 128  # a deeper one is an attack on the stack, not a message
FORGIVEN_SIZE_MAX = 64 * 1024  # of a text that only the patient reader reads: some 100 ms
FORGIVEN_HEADER_SIZE_MAX = 16 * 1024  # the same of a header, of which every client can send thousands
LONG_SIZE_MIN = 128 * 1024  # from here on a text is read off the loop (see `bodies`), and gives others their turns


class ObjectKey(Mapping[str, Any]):
    """An object that stands as a map's key, such as a message queue. Compared and hashed by what it says."""

    __slots__ = ("_items", "_text")

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)
        said = [item for item in self._items.items() if item[1] is not None]
        try:
            said.sort()
        except TypeError:  # names are numbers or objects, too
            said.sort(key=repr)
        self._text = repr(said)

    def __getitem__(self, name: str) -> Any:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectKey) and self._text == other._text

    def __repr__(self) -> str:
        return f"ObjectKey({self._items!r})"


class ExactFloat(float):
    """A number with a fraction or an exponent that remembers how it was written, for those who want its text."""

    text: str = ""

    def __new__(cls, text: str) -> ExactFloat:
        """The number, and its text."""
        value = super().__new__(cls, text)
        value.text = text
        return value


def loads(source: bytes | str, *, forgiven_size_max: int | None = FORGIVEN_SIZE_MAX) -> Any:
    """Read a value. Keys of maps are `str`, `int` or `ObjectKey`.

    Args:
        forgiven_size_max: the longest text that is read in the patient way; None for a file that nobody waits for.

    Raises:
        CodecError: neither JSON nor the dialect, or too long for what it is; says where.
    """
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else source
    try:
        return (STANDARD if len(text) < LONG_SIZE_MIN else LONG).decode(text)
    except (ValueError, RecursionError) as error:
        standard = error
    try:
        quoted = with_quoted_keys(text)
        if quoted is not None:
            return (QUOTED if len(text) < LONG_SIZE_MIN else LONG_QUOTED).decode(quoted)
    except (ValueError, RecursionError):
        pass  # there is more to forgive
    return forgiven(text, forgiven_size_max, standard)


def loads_header(source: bytes) -> Any:
    """The same for a header, where numbers remember how they were written: there texts are wanted.

    Raises:
        CodecError: as loads; also for a long one that has a fraction in it, which costs as much as the dialect.
    """
    text = source.decode("utf-8", "replace")
    decoder = EXACT if len(text) <= FORGIVEN_HEADER_SIZE_MAX else WHOLE
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        return forgiven(text, FORGIVEN_HEADER_SIZE_MAX, error)


def forgiven(text: str, size_max: int | None, standard: Exception) -> Any:
    """Read *text* patiently, unless there is too much of it; *standard* is what is wrong with it otherwise."""
    if size_max is not None and len(text) > size_max:
        raise CodecError(
            f"not standard JSON ({standard}), and with {len(text)} characters too long to be read as anything else; "
            f"the limit is {size_max}"
        )
    return Reader(text).whole()


def dumps(value: Any, *, standard: bool) -> bytes:
    """Write a value without a space more than needed; None in a map is left out, as fastjson leaves it out."""
    return "".join(written(value, standard, 0)).encode("utf-8", "replace")


def written(value: Any, standard: bool, depth: int) -> Iterator[str]:
    """The pieces of *value*'s text."""
    if depth > DEPTH_MAX:
        raise CodecError(f"a value nested deeper than {DEPTH_MAX}")
    if isinstance(value, str):
        yield quote(value)
    elif value is None or isinstance(value, bool | int | float):
        yield json.dumps(value)
    elif isinstance(value, Mapping):
        comma = "{"
        for name, item in value.items():
            if item is None:
                continue
            yield comma + written_key(name, standard, depth + 1) + ":"
            yield from written(item, standard, depth + 1)
            comma = ","
        yield "{}" if comma == "{" else "}"
    elif isinstance(value, list | tuple | set | frozenset):
        comma = "["
        for item in value:
            yield comma
            yield from written(item, standard, depth + 1)
            comma = ","
        yield "[]" if comma == "[" else "]"
    else:
        raise CodecError(f"a {type(value).__name__} cannot be written as JSON")


def written_key(name: Any, standard: bool, depth: int) -> str:
    """A map's key: quoted text; bare numbers and objects in the dialect, their text in quotes in standard JSON."""
    if isinstance(name, str):
        return quote(name)
    text = "".join(written(name, standard, depth))
    return quote(text) if standard else text


def quote(text: str) -> str:
    """A JSON string as fastjson writes it: UTF-8 as it is, control characters escaped."""
    return encode_basestring(text)  # what json.dumps(ensure_ascii=False) does, without making an encoder each time


def refuse_constant(name: str) -> Any:
    """NaN and Infinity are Python's idea of JSON, not fastjson's."""
    raise ValueError(name)


# ---- what fastjson writes --------------------------------------------------------------------------------------------

MARK = "\0"  # begins a key that had no quotes
STRING = r'"(?:[^"\\]++|\\.)*+"'
OBJECT_STRINGS_MAX = 64  # names and values of an object that is a key
BARE_KEY = rf'(?:-?[0-9]++|\{{[^{{}}"]*+(?:{STRING}[^{{}}"]*+){{0,{OBJECT_STRINGS_MAX}}}+\}})(?=\s*+:)'
TOKENS_AT_ONCE = 4096  # in one match, during which no other thread has its turn
# Everything up to a bare key, and the key if that is near. It matches wherever it is tried and gives nothing back, so
# that a text is walked through once, whatever stands there.
NEXT_BARE_KEY = re.compile(
    rf'((?:[^"{{,]++|{STRING}|[{{,](?!\s*+{BARE_KEY})){{0,{TOKENS_AT_ONCE}}}+)(?:([{{,]\s*+)({BARE_KEY}))?', re.DOTALL
)


def with_quoted_keys(text: str) -> str | None:
    """*text* with quotes around its bare keys, marked so that `keyed` finds them; None when there is none."""
    if MARK in text or "\\u0000" in text:
        return None
    pieces: list[str] = []
    end, has_keys = 0, False
    for match in NEXT_BARE_KEY.finditer(text):
        if match.end() == end:  # it is over, or nothing begins here that ends
            break
        end = match.end()
        before, brace, key = match.groups()
        if key is None:
            pieces.append(before)
        else:
            has_keys = True
            pieces.append(f'{before}{brace}"{MARK}{quote(key)[1:-1] if key[0] == "{" else key}"')
    pieces.append(text[end:])
    return "".join(pieces) if has_keys else None


def plain(items: dict[str, Any]) -> dict[str, Any]:
    """A map as it is: called for each, so that a long text is not read in one breath."""
    return items


def whole(digits: str) -> int:
    """A number as it is, for the same reason."""
    return int(digits)


def keyed(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    """A map of which some keys are marked."""
    return {
        name if name[:1] != MARK else object_key(name) if name[1] == "{" else int(name[1:]): item
        for name, item in pairs
    }


def object_key(name: str) -> ObjectKey:
    """The object behind the mark."""
    items, end = STANDARD.raw_decode(name, 1)
    if end != len(name):
        raise ValueError(name)
    return ObjectKey(items)


STANDARD = json.JSONDecoder(strict=False, parse_constant=refuse_constant)
LONG = json.JSONDecoder(strict=False, parse_constant=refuse_constant, parse_int=whole, object_hook=plain)
QUOTED = json.JSONDecoder(strict=False, parse_constant=refuse_constant, object_pairs_hook=keyed)
LONG_QUOTED = json.JSONDecoder(strict=False, parse_constant=refuse_constant, parse_int=whole, object_pairs_hook=keyed)
EXACT = json.JSONDecoder(strict=False, parse_float=ExactFloat, parse_constant=refuse_constant)
WHOLE = json.JSONDecoder(strict=False, parse_float=refuse_constant, parse_constant=refuse_constant)

# ---- what it forgives ------------------------------------------------------------------------------------------------

SPACE = re.compile(r"(?:[ \t\r\n\f\b]+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
NUMBER = re.compile(r"([+-]?\d+)(\.\d*)?([eE][+-]?\d+)?[LSBFDlsbfd]?")
WORD = re.compile(r"[A-Za-z]+")
PLAIN = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
ESCAPES = {letter: letter for letter in "\"'\\/"} | {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
}  # fmt: skip
WORDS = {"true": True, "false": False, "null": None}


class Reader:
    """A patient reader of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def whole(self) -> Any:
        """The one value of the text, with nothing behind it."""
        value = self.value()
        self.skip()
        if self.at != len(self.text):
            raise self.error("something behind the end")
        return value

    def skip(self) -> str:
        """Pass over space and comments; the character that follows, or nothing at the end."""
        match = SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def value(self) -> Any:
        """Whatever begins here."""
        first = self.skip()
        if first == "{":
            return self.mapping()
        if first == "[":
            return self.sequence()
        if first in PLAIN:
            return self.string(first)
        if first in ("-", "+") or first.isdigit():
            return self.number()
        return self.word()

    def enter(self) -> None:
        """One level deeper."""
        self.at += 1
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise self.error(f"nested deeper than {DEPTH_MAX}")

    def leave(self, closing: str) -> bool:
        """Whether the list or map ends here; passes over the comma that may stand before the next item."""
        first = self.skip()
        if first == ",":
            self.at += 1
            first = self.skip()
        if first != closing:
            return False
        self.at += 1
        self.depth -= 1
        return True

    def mapping(self) -> dict[Any, Any]:
        """`{key:value,…}` with keys of any kind."""
        self.enter()
        items: dict[Any, Any] = {}
        if self.skip() == "}":
            self.leave("}")
            return items
        while True:
            key = self.value()
            if self.skip() != ":":
                raise self.error("a key without a colon")
            self.at += 1
            if isinstance(key, list):
                raise self.error("a list as a key")
            items[ObjectKey(key) if isinstance(key, dict) else key] = self.value()
            if self.leave("}"):
                return items

    def sequence(self) -> list[Any]:
        """`[value,…]`."""
        self.enter()
        items: list[Any] = []
        if self.skip() == "]":
            self.leave("]")
            return items
        while True:
            items.append(self.value())
            if self.leave("]"):
                return items

    def string(self, mark: str) -> str:
        """Text between two of *mark*."""
        self.at += 1
        pieces = []
        plain = PLAIN[mark]
        while True:
            match = plain.match(self.text, self.at)
            pieces.append(match.group() if match else "")
            self.at += len(pieces[-1])
            first = self.text[self.at : self.at + 1]
            if first == mark:
                self.at += 1
                return join_surrogates("".join(pieces))
            if first == "":
                raise self.error("a string without an end")
            pieces.append(self.escape())

    def escape(self) -> str:
        """What a backslash and its letters stand for."""
        letter = self.text[self.at + 1 : self.at + 2]
        if letter in ("u", "x"):
            size = 4 if letter == "u" else 2
            digits = self.text[self.at + 2 : self.at + 2 + size]
            if re.fullmatch(r"[0-9A-Fa-f]+", digits) is None or len(digits) != size:
                raise self.error(f"\\{letter} without {size} hexadecimal digits")
            self.at += 2 + size
            return chr(int(digits, 16))
        if letter not in ESCAPES:
            raise self.error("a backslash before nothing known")
        self.at += 2
        return ESCAPES[letter]

    def number(self) -> int | float:
        """A number in any of the ways people write them."""
        match = NUMBER.match(self.text, self.at)
        if match is None:
            raise self.error("a sign without a number")
        self.at = match.end()
        whole, fraction, exponent = match.groups()
        if exponent is None and fraction in (None, "."):
            try:
                return int(whole)
            except ValueError:  # Python reads no more than a few thousand digits
                raise self.error("a number that is too long") from None
        return ExactFloat(whole.lstrip("+") + (fraction or "") + (exponent or ""))

    def word(self) -> bool | None:
        """true, false or null."""
        match = WORD.match(self.text, self.at)
        if match is None or match.group() not in WORDS:
            raise self.error("no value")
        self.at = match.end()
        return WORDS[match.group()]

    def error(self, what: str) -> CodecError:
        """The error to raise, with the place and what stands there."""
        return CodecError(f"not JSON at character {self.at}: {what}: {self.text[self.at : self.at + 20]!r}")


def join_surrogates(text: str) -> str:
    """Two escaped halves of a character beyond U+FFFF, made one; a half alone stays."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if has_surrogate(text) else text


def has_surrogate(text: str) -> bool:
    """Whether any character is half a pair."""
    return any("\ud800" <= character <= "\udfff" for character in text)
