"""Style that is not checked is a mood: this file is the check.

Everything here reads committed files only (and files about to be committed), never the machine around them.
"""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 700
SOURCE_SUFFIXES = {".py", ".pyx", ".pxd", ".pxi", ".pyi", ".c", ".h"}
TEXT_SUFFIXES = SOURCE_SUFFIXES | {".md", ".toml", ".sh", ".java", ".txt", ".in", ".xml", ""}

# Assembled, so that this file does not find itself.
MARKERS = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" + "XX"]) + r")\b")
MACHINE_PATH = re.compile(r"(?:^|[^\w.~/-])/(?:" + "|".join(["work", "root", "home", "farm", "Users"]) + r")/")
NEIGHBOUR = re.compile(r"\.\./" + "shared")
REGISTRY_HOST = re.compile(
    "|".join(
        [r"pypi\." + "org", r"pythonhosted\." + "org", r"repo1?\.maven\." + "(?:apache|org)", r"deb\.debian\." + "org"]
    )
)


def tracked_files() -> list[Path]:
    """Files in git, and new ones that .gitignore does not name; the tree itself when there is no git."""
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    names = done.stdout.decode().split("\0") if done.returncode == 0 else []
    paths = [ROOT / name for name in names if name] or [path for path in ROOT.rglob("*") if ".venv" not in path.parts]
    return sorted(path for path in paths if path.is_file())


FILES = tracked_files()
DATA_DIRECTORY = ROOT / "tests/data"
TEXT_FILES = [path for path in FILES if path.suffix in TEXT_SUFFIXES and DATA_DIRECTORY not in path.parents]
SOURCE_FILES = [path for path in TEXT_FILES if path.suffix in SOURCE_SUFFIXES]
PYTHON_FILES = [path for path in SOURCE_FILES if path.suffix == ".py"]
TEST_FILES = [path for path in PYTHON_FILES if path.name.startswith("test_")]


def relative(path: Path) -> str:
    """The path as a reader would type it."""
    return str(path.relative_to(ROOT))


def matches(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` of every line of *paths* that *pattern* finds."""
    return [
        f"{relative(path)}:{number}: {line.strip()[:100]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]


def parsed(paths: list[Path]) -> Iterator[tuple[Path, ast.Module]]:
    """The syntax trees of *paths*."""
    for path in paths:
        yield path, ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def test_no_source_file_is_longer_than_the_limit():
    """Goal: one concept a file. Method: count lines; splitting is the cure, not squeezing."""
    lengths = {relative(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE_FILES}
    assert {name: length for name, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_no_leftover_markers():
    """Goal: what is committed is finished. Method: search for the words people leave behind."""
    assert MARKERS.search("SCHEDULE_TOPIC_XXXX") is None  # a RocketMQ topic, not a marker
    assert matches(SOURCE_FILES, MARKERS) == []


def test_no_absolute_path_of_a_machine():
    """Goal: the repository runs anywhere. Method: no path below a directory that only one machine has."""
    assert matches(TEXT_FILES, MACHINE_PATH) == []


def test_nothing_refers_to_a_neighbouring_directory():
    """Goal: the repository stands alone. Method: search for the neighbour it grew up beside."""
    assert matches(TEXT_FILES, NEIGHBOUR) == []


def test_no_package_registry_is_named():
    """Goal: mirrors and proxies keep working. Method: host names are pip's, Maven's and apt's business."""
    assert matches(TEXT_FILES, REGISTRY_HOST) == []


def test_text_files_end_with_one_line_break_and_have_no_trailing_space():
    """Goal: diffs show meaning only. Method: look at the end of every line and file."""
    untidy = []
    for path in TEXT_FILES:
        text = path.read_text(encoding="utf-8")
        if text and (not text.endswith("\n") or text.endswith("\n\n")):
            untidy.append(f"{relative(path)}: end of file")
        untidy += [
            f"{relative(path)}:{number}: trailing space"
            for number, line in enumerate(text.split("\n"), 1)
            if line != line.rstrip()
        ]
    assert untidy == []


def test_every_python_module_says_what_it_is_for():
    """Goal: a reader knows why a file exists before reading it. Method: ast, non-empty modules need a docstring."""
    silent = [relative(path) for path, tree in parsed(PYTHON_FILES) if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_every_cython_module_opens_with_its_purpose():
    """Goal: as above, for files ast cannot read. Method: the first line of code is a docstring or a comment."""
    silent = [
        relative(path)
        for path in SOURCE_FILES
        if path.suffix in {".pyx", ".pxd", ".pxi", ".pyi"}
        and not path.read_text(encoding="utf-8").lstrip().startswith(('"""', "#"))
    ]
    assert silent == []


def checks_something(function: ast.AST, helpers: frozenset[str]) -> bool:
    """Whether *function* asserts, expects an exception, or calls one of *helpers*, which do."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in {"raises", "warns", "fail"} or name in helpers:
                return True
    return False


def asserting_helpers(tree: ast.Module) -> frozenset[str]:
    """Names of functions of a module that check something themselves, directly or through one another."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    known: frozenset[str] = frozenset()
    while True:
        found = frozenset(function.name for function in functions if checks_something(function, known))
        if found == known:
            return known
        known = found


def test_every_test_can_fail():
    """Goal: no test that passes whatever happens. Method: ast; an assert, a raises, or a helper here that has one."""
    toothless = []
    for path, tree in parsed(TEST_FILES):
        helpers = asserting_helpers(tree)
        imported = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name.startswith(("assert_", "check_", "verify_"))
        }
        for node in ast.walk(tree):
            is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
            if is_test and not checks_something(node, helpers | frozenset(imported)):
                toothless.append(f"{relative(path)}:{node.lineno}: {node.name}")
    assert toothless == []


def test_every_test_says_its_goal():
    """Goal: a failure explains itself. Method: ast; each test function, or its class, has a docstring."""
    silent = [
        f"{relative(path)}:{node.lineno}: {node.name}"
        for path, tree in parsed(TEST_FILES)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_exception_is_swallowed():
    """Goal: catch what you can act on. Method: ast; no bare except, no broad one whose body only passes."""
    swallowing = []
    for path, tree in parsed(PYTHON_FILES):
        for node in ast.walk(tree):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"}
            )
            passes = all(isinstance(statement, ast.Pass) for statement in node.body)
            if node.type is None or (broad and passes):
                swallowing.append(f"{relative(path)}:{node.lineno}")
    assert swallowing == []


def test_no_test_is_skipped_or_expected_to_fail_unconditionally():
    """Goal: green means checked. Method: the marks are not used; skipif and skip() name a missing tool."""
    mark = re.compile(r"mark\.(?:" + "skip|x" + r"fail)\b(?!if)")
    assert matches(TEST_FILES, mark) == []


STUBS = [path for path in SOURCE_FILES if path.suffix == ".pyi"]


def stub_names(body: list[ast.stmt]) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Public names a stub declares, with the bodies of its classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, []
        elif isinstance(node, ast.ClassDef):
            yield node.name, node.body
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, []


@pytest.mark.parametrize("stub", STUBS, ids=relative)
def test_stub_and_extension_agree_on_public_names(stub: Path):
    """Goal: mypy checks what exists. Method: import the module and compare names, both ways, down to class members."""
    module = importlib.import_module(".".join(stub.relative_to(ROOT).with_suffix("").parts))
    declared = dict(stub_names(ast.parse(stub.read_text(encoding="utf-8")).body))
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
        and not isinstance(value, type(module))
    }
    aliases = {name for name in declared if not hasattr(module, name) and name[:1].isupper() and not declared[name]}
    assert {name for name in declared if not name.startswith("_")} - aliases - public - set(vars(module)) == set()
    assert public - set(declared) == set()
    for name, body in declared.items():
        if body and isinstance(getattr(module, name, None), type):
            real = getattr(module, name)
            members = {member for member, _ in stub_names(body)}
            assert {member for member in members if not hasattr(real, member)} == set(), name
            missing = {member for member in vars(real) if not member.startswith("_")} - members
            assert missing == set(), name


GENERATED = {"docs/config.md": "pymq.store.reference", "docs/broker-config.md": "pymq.broker.reference"}


@pytest.mark.parametrize("page", GENERATED)
def test_generated_files_are_fresh(page: str):
    """Goal: what is generated from a table agrees with it. Method: every generator has --check."""
    done = subprocess.run(
        [sys.executable, "-m", GENERATED[page], "--check", page],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_no_built_file_is_tracked():
    """Goal: the repository holds sources. Method: no object, archive, library or Cython output among tracked files."""
    built = [relative(path) for path in FILES if path.suffix in {".so", ".o", ".a", ".pyc", ".gcda"}]
    assert built == []


def test_licence_is_the_full_apache_text():
    """Goal: the licence travels with the code. Method: first and last words of the text, and the metadata."""
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_make_commands_of_the_pages_exist(page: str):
    """Goal: a newcomer can copy what the page shows. Method: each `make x` of the page is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE))
    assert shown, f"{page} shows no make command"
    assert shown - targets == set()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md")),
    ],
)
def test_links_of_the_pages_lead_somewhere(page: str):
    """Goal: no dead end. Method: each relative Markdown link names a file of the repository."""
    path = ROOT / page
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", path.read_text(encoding="utf-8"))
    assert [link for link in links if not (path.parent / link).exists()] == []
