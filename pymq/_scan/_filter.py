"""Filter programs without a broker: what tests and tools evaluate expressions on properties with."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from pymq._scan._codec import Source, encode_properties, pointer, raise_status
from pymq._scan._native import ffi, lib


class Verdict(IntEnum):
    """What an expression says of a message; only TRUE lets it through."""

    FALSE = 0
    TRUE = 1
    NULL = 2
    ERROR = 3  # Java's evaluation throws
    OTHER = 4  # not a boolean


class FilterProgram:
    """A program that has been looked at."""

    def __init__(self, program: bytes) -> None:
        """Verify *program*.

        Raises:
            CorruptError: it is none.
        """
        self._bytes = ffi.from_buffer("uint8_t[]", program)
        self._program = ffi.new("struct pymq_filter_program *")
        status = lib.pymq_filter_verify(self._bytes, len(program), self._program)
        if status != 0:
            raise_status(status, f"a filter program of {len(program)} bytes")

    def evaluate(self, properties: Source) -> Verdict:
        """The verdict on a message with this properties string."""
        size = memoryview(properties).nbytes
        return Verdict(lib.pymq_filter_evaluate(self._program, pointer(properties), size))

    def evaluate_pairs(self, properties: Mapping[str, str]) -> Verdict:
        """The verdict on a message with these properties."""
        return self.evaluate(encode_properties([(name.encode(), value.encode()) for name, value in properties.items()]))


def java_int(text: str, bits: int) -> int | None:
    """Java's Integer.valueOf (32 bits) or Long.valueOf (64); None where it throws."""
    encoded = text.encode("utf-8", "surrogatepass")
    value: Any = ffi.new("int32_t *" if bits == 32 else "int64_t *")
    parsed = (lib.pymq_java_int32 if bits == 32 else lib.pymq_java_int64)(encoded, len(encoded), value)
    return int(value[0]) if parsed else None


def java_double(text: str) -> float | None:
    """Java's Double.valueOf; None where it throws."""
    encoded = text.encode("utf-8", "surrogatepass")
    value: Any = ffi.new("double *")
    return float(value[0]) if lib.pymq_java_double(encoded, len(encoded), value) else None
