"""csrc/wire in a test module of its own: the C codec beside the Python one, next to pages that may not be touched."""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import cffi

from pymq.remoting.codes import LanguageCode
from pymq.remoting.command import Command

ROOT = Path(__file__).resolve().parents[2]
MODULE_NAME = "_pymq_test_wire"
OK, CORRUPT, UNSUPPORTED = 0, -1, -16
ROOM = 1 << 20
GUARDED_SIZE = 1 << 18
LANGUAGES = {language.value: language.name for language in LanguageCode}

DECLARATIONS = """
struct pymq_slice { const uint8_t *data; uint32_t size; };
struct pymq_field { struct pymq_slice name; struct pymq_slice value; };
struct pymq_command {
    int32_t code; int32_t version; int32_t opaque; int32_t flag; uint8_t language; uint8_t serialize_type;
    uint32_t field_count; struct pymq_slice remark; struct pymq_slice body; struct pymq_field fields[64];
};
struct pymq_header_writer { int32_t version; uint8_t language; bool empty_fields; ...; };
int pymq_command_decode(const uint8_t *frame, size_t size, uint8_t *scratch, size_t scratch_size,
                        struct pymq_command *command);
void pymq_header_begin(struct pymq_header_writer *writer, uint8_t *target, size_t capacity, uint8_t serialize_type,
                       int32_t code, int32_t flag, int32_t opaque, struct pymq_slice remark);
void pymq_header_field(struct pymq_header_writer *writer, const char *name, size_t name_size, const uint8_t *value,
                       size_t value_size);
ssize_t pymq_header_end(struct pymq_header_writer *writer, uint32_t body_size);
"""


class Decoded(NamedTuple):
    """What the C parser read; a field that is null is absent, of equal names the last one counts."""

    code: int
    language: str
    version: int
    opaque: int
    flag: int
    remark: str | None
    fields: dict[str, str]
    body: bytes


def read_by_python(frame: bytes) -> Decoded:
    """The same from the Python codec."""
    command = Command.decode(frame)
    return Decoded(
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.fields,
        command.body,
    )


class Wire:
    """Both directions of csrc/wire."""

    def __init__(self, module: Any) -> None:
        self.ffi, self.lib = module.ffi, module.lib
        self.command = self.ffi.new("struct pymq_command *")
        self.writer = self.ffi.new("struct pymq_header_writer *")
        self.target = self.ffi.new("uint8_t[]", ROOM)
        self.frames, self.scratches = Guarded(), Guarded()

    def decode(self, frame: bytes) -> Decoded | int:
        """What C reads, or its status. The frame and the scratch each end where a page ends that may not be touched."""
        source = self.ffi.cast("uint8_t *", self.frames.place(frame))
        scratch = self.ffi.cast("uint8_t *", self.scratches.place(frame))
        status = self.lib.pymq_command_decode(source, len(frame), scratch, len(frame), self.command)
        if status != OK:
            return int(status)
        command = self.command
        fields: dict[str, str] = {}
        for index in range(command.field_count):
            name = self.text(command.fields[index].name)
            value = self.text(command.fields[index].value)
            assert name is not None
            fields.pop(name, None)
            if value is not None:
                fields[name] = value
        return Decoded(
            command.code,
            LANGUAGES.get(command.language, ""),
            command.version,
            command.opaque,
            command.flag,
            self.text(command.remark),
            fields,
            bytes(self.ffi.buffer(command.body.data, command.body.size)),
        )

    def text(self, piece: Any) -> str | None:
        """A slice as text, strictly."""
        if piece.data == self.ffi.NULL:
            return None
        return bytes(self.ffi.buffer(piece.data, piece.size)).decode("utf-8")

    def encode(self, command: Command) -> bytes:
        """What C writes for *command*."""
        kept = [self.ffi.from_buffer(command.remark.encode())] if command.remark is not None else [self.ffi.NULL]
        remark = {"data": kept[0], "size": len((command.remark or "").encode())}
        self.lib.pymq_header_begin(
            self.writer,
            self.target,
            ROOM,
            command.serialize_type,
            command.code,
            command.flag,
            command.opaque,
            remark,
        )
        self.writer.version = command.version
        self.writer.language = LanguageCode[command.language] if command.language else 255
        self.writer.empty_fields = command.empty_fields
        for name, value in command.fields.items():
            name_bytes, value_bytes = name.encode(), value.encode()
            self.lib.pymq_header_field(self.writer, name_bytes, len(name_bytes), value_bytes, len(value_bytes))
        size = self.lib.pymq_header_end(self.writer, len(command.body))
        assert size > 0
        return bytes(self.ffi.buffer(self.target, size)) + command.body


class Guarded:
    """Memory before a page that may not be touched: a read or write beyond is a crash, not a silent success."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, GUARDED_SIZE + mmap.PAGESIZE)
        self.anchor = ctypes.c_char.from_buffer(self.map)
        self.end = ctypes.addressof(self.anchor) + GUARDED_SIZE
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.end), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "mprotect")

    def place(self, source: bytes) -> int:
        """The address of *source*, placed so that it ends at the guard."""
        assert len(source) <= GUARDED_SIZE
        ctypes.memmove(self.end - len(source), source, len(source))
        return self.end - len(source)


def build(directory: Path) -> Wire:
    """Compile csrc/wire below *directory*."""
    builder = cffi.FFI()
    builder.cdef(DECLARATIONS)
    builder.set_source(
        MODULE_NAME,
        '#include "pymq/command.h"',
        sources=sorted(str(path) for path in (ROOT / "csrc/wire").glob("*.c")),
        include_dirs=[str(ROOT / "csrc/include")],
        extra_compile_args=["-std=gnu11", "-D_GNU_SOURCE=", "-O2"],
    )
    spec = importlib.util.spec_from_file_location(MODULE_NAME, builder.compile(tmpdir=str(directory), verbose=False))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Wire(module)
