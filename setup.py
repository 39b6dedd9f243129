"""Build pymq's native modules; everything that is not a native module stands in pyproject.toml.

Two kinds of C meet here, and they are held to different standards:

* `csrc/` is ours. It is compiled once, with strict warnings as errors, into one static archive.
* What Cython and cffi generate is theirs. It is compiled with ordinary warnings and linked against that archive,
  so a source under `csrc/` named by an extension is taken from the archive instead of being compiled again.

Switches, read from the environment:

    PYMQ_DEBUG=1                              -O0 -g3, Cython line directives
    PYMQ_SANITIZE=address|undefined|thread    the sanitizer, in the archive and in the extensions (commas combine)
    PYMQ_COVERAGE=1                           gcov counters
    PYMQ_WERROR=0|1                           warnings of csrc/ as errors; default 1 in a checkout, 0 from an sdist,
                                              where the user's compiler may be newer than any we have met
    PYMQ_NO_EXTENSIONS=1                      metadata only (used by `make venv` before anything is compiled)
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
INCLUDE_DIRECTORY = "csrc/include"
CORE_DIRECTORIES = ("csrc/codec", "csrc/store", "csrc/wire", "csrc/remoting", "csrc/serve")
PROCESSORS = os.cpu_count() or 1
SANITIZERS = frozenset({"address", "undefined", "thread"})

# -UNDEBUG: Python's own flags carry -DNDEBUG, and the core's assertions are part of its promise.
STRICT_FLAGS = ["-std=gnu11", "-D_GNU_SOURCE=", "-UNDEBUG"]
STRICT_FLAGS += ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Wno-sign-conversion"]
GENERATED_FLAGS = ["-std=gnu11", "-Wall", "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-sign-compare"]


def switch(name: str, default: str = "0") -> bool:
    """Whether the environment variable *name* is set to anything but 0 or nothing."""
    return os.environ.get(name, default) not in ("", "0")


def mode_flags() -> list[str]:
    """Flags of the chosen build mode, shared by compiling and linking."""
    flags = ["-O0", "-g3"] if switch("PYMQ_DEBUG") else ["-O2", "-g"]
    flags += ["-fPIC", "-pthread", "-fvisibility=hidden"]
    chosen = [name for name in os.environ.get("PYMQ_SANITIZE", "").split(",") if name]
    unknown = sorted(set(chosen) - SANITIZERS)
    if unknown:
        raise SystemExit(f"PYMQ_SANITIZE: unknown {', '.join(unknown)}; known are {', '.join(sorted(SANITIZERS))}")
    if {"address", "thread"} <= set(chosen):
        raise SystemExit("PYMQ_SANITIZE: address and thread exclude each other; build twice")
    if chosen:
        flags += [f"-fsanitize={','.join(chosen)}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"]
    if switch("PYMQ_COVERAGE"):
        flags += ["--coverage"]
    return flags


def core_sources() -> list[str]:
    """The C files of the core, in a stable order, relative to the repository."""
    found = (path for directory in CORE_DIRECTORIES for path in (ROOT / directory).glob("*.c"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


def core_headers() -> list[str]:
    """Every header the core can include; a change in one of them rebuilds the archive."""
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.h"))


def cython_extensions() -> list[Extension]:
    """One extension per .pyx beside pymq/_core, translated into build/cython so that the tree stays clean."""
    sources = sorted(path.relative_to(ROOT) for path in (ROOT / "pymq/_core").glob("*.pyx"))
    if not sources:
        return []
    from Cython.Build import cythonize

    extensions = [
        Extension(".".join(path.with_suffix("").parts), [str(path)], include_dirs=[INCLUDE_DIRECTORY])
        for path in sources
    ]
    directives = {"language_level": 3, "embedsignature": True, "freethreading_compatible": False}
    modules: list[Extension] = cythonize(
        extensions,
        build_dir="build/cython",
        compiler_directives=directives,
        emit_linenums=switch("PYMQ_DEBUG"),
        quiet=True,
        nthreads=PROCESSORS,
    )
    return modules


def cffi_modules() -> list[str]:
    """The stateless scan module, described by its own build file."""
    return ["pymq/_scan/_build.py:ffibuilder"] if (ROOT / "pymq/_scan/_build.py").exists() else []


class BuildWithCore(build_ext):
    """build_ext that makes the core archive first and links every extension against it."""

    core_archive: str = ""

    def finalize_options(self) -> None:
        """Build several extensions at once."""
        super().finalize_options()
        self.parallel = self.parallel or PROCESSORS

    def build_extensions(self) -> None:
        """Compile csrc/ under strict flags, then the extensions under ordinary ones."""
        mode = mode_flags()
        if self.changed_since_last_build("flags.txt", mode):
            self.force = True
        self.core_archive = self.build_core(mode)
        for extension in self.extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, *GENERATED_FLAGS, *mode]
            extension.extra_link_args = [*extension.extra_link_args, *mode]
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Build one extension, taking what it names under csrc/ from the archive."""
        ext.sources = [source for source in ext.sources if not is_core(source)]
        ext.include_dirs = [*ext.include_dirs, INCLUDE_DIRECTORY]
        ext.depends = [*ext.depends, *core_headers()]
        if self.core_archive:
            ext.depends = [*ext.depends, self.core_archive]
            ext.extra_objects = [*ext.extra_objects, self.core_archive]
        super().build_extension(ext)

    def build_core(self, mode: list[str]) -> str:
        """Return the path of the up-to-date archive of csrc/, or "" while there is no C file."""
        sources = core_sources()
        if not sources:
            return ""
        flags = [*STRICT_FLAGS, *mode]
        if switch("PYMQ_WERROR", "0" if (ROOT / "PKG-INFO").exists() else "1"):
            flags.append("-Werror")
        headers = core_headers()
        objects = {source: os.path.join(self.build_temp, str(Path(source).with_suffix(".o"))) for source in sources}
        stale = [source for source in sources if self.force or is_older(objects[source], [source, *headers])]
        changed = self.changed_since_last_build("sources.txt", sources) or bool(stale)

        def compile_one(source: str) -> None:
            self.compiler.compile(
                [source], output_dir=self.build_temp, include_dirs=[INCLUDE_DIRECTORY], extra_postargs=flags
            )

        with ThreadPoolExecutor(PROCESSORS) as pool:
            list(pool.map(compile_one, stale))  # the list raises what a compilation raised
        archive = self.compiler.library_filename("pymqcore", output_dir=self.build_temp)
        if changed or is_older(archive, list(objects.values())):
            Path(archive).unlink(missing_ok=True)  # ar adds to what is there: a removed source would live on
            self.compiler.create_static_lib(list(objects.values()), "pymqcore", output_dir=self.build_temp)
        return archive

    def changed_since_last_build(self, name: str, words: list[str]) -> bool:
        """Remember *words* in the build directory under *name*; True when the last build there had others."""
        stamp = Path(self.build_temp) / name
        text = "\n".join(words)
        known = stamp.read_text() if stamp.exists() else text
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(text)
        return known != text


def is_core(source: str) -> bool:
    """Whether *source* is compiled into the archive."""
    path = Path(source)
    relative = path.resolve().relative_to(ROOT) if path.is_absolute() else Path(os.path.normpath(path))
    return str(relative.parent) in CORE_DIRECTORIES


def is_older(target: str, sources: list[str]) -> bool:
    """Whether *target* is missing or older than any of *sources*."""
    path = Path(target)
    return not path.exists() or any(Path(source).stat().st_mtime > path.stat().st_mtime for source in sources)


os.chdir(ROOT)
if switch("PYMQ_NO_EXTENSIONS"):
    setup()
else:
    setup(
        ext_modules=cython_extensions(),
        cffi_modules=cffi_modules(),
        cmdclass={"build_ext": BuildWithCore},
    )
