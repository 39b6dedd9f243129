"""Describes and builds the helper that loops both sides of a comparison in C, so that no call from Python is timed.

zlib is found with dlopen, as the shared library every Python has beside it: no header and no -dev package is needed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import cffi

ROOT = Path(__file__).resolve().parents[2]
MODULE_NAME = "_pymq_bench"

DECLARATIONS = """
const char *bench_zlib_version(void);
uint32_t bench_zlib_crc32(const uint8_t *source, size_t size);
uint32_t bench_pymq_crc32(const uint8_t *source, size_t size);
double bench_crc32_pymq(const uint8_t *source, size_t size, size_t loops);
double bench_crc32_table(const uint8_t *source, size_t size, size_t loops);
double bench_crc32_zlib(const uint8_t *source, size_t size, size_t loops);
double bench_memcpy(uint8_t *target, const uint8_t *source, size_t size, size_t loops);
double bench_scan_tags(const uint8_t *units, size_t count, const int64_t *hashes, size_t hash_count, size_t loops);
double bench_walk(const uint8_t *source, size_t size, unsigned checks, size_t loops, size_t *count);
size_t bench_fill_log(uint8_t *target, size_t capacity, size_t body_size);
double bench_encode(size_t body_size, size_t loops);
bool pymq_crc32_is_accelerated(void);
"""

SOURCE = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

#include "pymq/cq_unit.h"
#include "pymq/crc32.h"
#include "pymq/scan.h"

typedef unsigned long (*zlib_crc32)(unsigned long seed, const unsigned char *source, unsigned size);

/* What keeps the compiler from dropping a loop whose result nobody reads. */
static volatile uint64_t sink;

static void *zlib_symbol(const char *name) {
    static void *library;
    if (library == NULL) {
        library = dlopen("libz.so.1", RTLD_NOW);
    }
    return library == NULL ? NULL : dlsym(library, name);
}

static const char *bench_zlib_version(void) {
    const char *(*version)(void) = (const char *(*)(void))zlib_symbol("zlibVersion");
    return version == NULL ? "" : version();
}

/* This thread's CPU time: all of this is computing, and a neighbour's turn on the core is not ours to count. */
static double now(void) {
    struct timespec moment;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &moment);
    return (double)moment.tv_sec + (double)moment.tv_nsec * 1e-9;
}

static uint32_t bench_zlib_crc32(const uint8_t *source, size_t size) {
    return (uint32_t)((zlib_crc32)zlib_symbol("crc32"))(0, source, (unsigned)size);
}

static uint32_t bench_pymq_crc32(const uint8_t *source, size_t size) { return pymq_crc32(0, source, size); }

#define TIMED(expression)                            \
    do {                                             \
        double start = now();                        \
        uint64_t sum = 0;                            \
        for (size_t i = 0; i < loops; i++) {         \
            sum += (expression);                     \
        }                                            \
        sink = sum;                                  \
        return now() - start;                        \
    } while (0)

static double bench_crc32_pymq(const uint8_t *source, size_t size, size_t loops) { TIMED(pymq_crc32(0, source, size)); }

static double bench_crc32_table(const uint8_t *source, size_t size, size_t loops) {
    TIMED(pymq_crc32_table(0, source, size));
}

static double bench_crc32_zlib(const uint8_t *source, size_t size, size_t loops) {
    zlib_crc32 crc32 = (zlib_crc32)zlib_symbol("crc32");
    TIMED(crc32(0, source, (unsigned)size));
}

static uint64_t copy(uint8_t *target, const uint8_t *source, size_t size) {
    memcpy(target, source, size);
    __asm__ volatile("" : : "r"(target) : "memory");
    return target[0];
}

static double bench_memcpy(uint8_t *target, const uint8_t *source, size_t size, size_t loops) {
    TIMED(copy(target, source, size));
}

static double bench_scan_tags(const uint8_t *units, size_t count, const int64_t *hashes, size_t hash_count,
                              size_t loops) {
    uint32_t matched[64];
    size_t scanned;
    TIMED(pymq_cq_scan_tags(units, count, hashes, hash_count, matched, 64, &scanned));
}

static double bench_walk(const uint8_t *source, size_t size, unsigned checks, size_t loops, size_t *count) {
    static const struct pymq_log_columns none;
    struct pymq_log_walk walk;
    double start = now();
    for (size_t i = 0; i < loops; i++) {
        pymq_scan_log(source, size, 0, checks, NULL, &none, SIZE_MAX, &walk);
        sink = walk.position;
    }
    *count = walk.count;
    return now() - start;
}

static struct pymq_record sample(const uint8_t *body, size_t body_size) {
    static const char properties[] = "UNIQ_KEY\1" "0A275FFD2B274DA997AC00000A275FFD\2TAGS\1TagA\2KEYS\1order-17\2";
    struct pymq_record record;
    memset(&record, 0, sizeof record);
    record.born_host.size = record.store_host.size = 4;
    record.topic.data = (const uint8_t *)"TopicTest";
    record.topic.size = 9;
    record.body.data = body;
    record.body.size = (uint32_t)body_size;
    record.properties.data = (const uint8_t *)properties;
    record.properties.size = sizeof properties - 1;
    return record;
}

static uint8_t *random_body(size_t size) {
    uint8_t *body = malloc(size + 1);
    uint32_t state = 12345;
    for (size_t i = 0; body != NULL && i < size; i++) {
        state = state * 1664525u + 1013904223u;
        body[i] = (uint8_t)(state >> 24);
    }
    return body;
}

/* Whole records until no more fits; returns the bytes used. */
static size_t bench_fill_log(uint8_t *target, size_t capacity, size_t body_size) {
    uint8_t *body = random_body(body_size);
    struct pymq_record record = sample(body, body_size);
    size_t used = 0;
    ssize_t step;
    while (body != NULL) {
        record.physical_offset = (int64_t)used;
        step = pymq_record_encode(&record, target + used, capacity - used);
        if (step < 0) {
            break;
        }
        used += (size_t)step;
    }
    free(body);
    return used;
}

static double bench_encode(size_t body_size, size_t loops) {
    uint8_t *body = random_body(body_size), *target = malloc(body_size + 4096);
    struct pymq_record record = sample(body, body_size);
    double start = now();
    for (size_t i = 0; i < loops; i++) {
        record.queue_offset = (int64_t)i;
        sink = (uint64_t)pymq_record_encode(&record, target, body_size + 4096);
    }
    start = now() - start;
    free(body);
    free(target);
    return start;
}
"""

ffibuilder = cffi.FFI()
ffibuilder.cdef(DECLARATIONS)
ffibuilder.set_source(
    MODULE_NAME,
    SOURCE,
    sources=sorted(str(path) for path in (ROOT / "csrc/codec").glob("*.c")),
    include_dirs=[str(ROOT / "csrc/include")],
    extra_compile_args=["-std=gnu11", "-O2"],
    libraries=["dl", "pthread"],
)


def build(directory: Path) -> Any:
    """Compile the helper below *directory* and return the module, with `ffi` and `lib`."""
    path = ffibuilder.compile(tmpdir=str(directory), verbose=False)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
