"""Dumps of stopped stores: every byte, the log's end, what is refused, going on after a kill, verifying."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import xxhash

import pymq
from pymq._scan import read_queue
from pymq.store.dump import DumpError, DumpRefusedError, cli, copier, load_manifest, take_dump, verify_dump
from pymq.store.dump.log_reader import stopped_log_end
from pymq.store.dump.manifest import LEAF_SIZE, FileEntry
from pymq.store.dump.progress import ProgressBar
from tests.store.dumps import ROOT, dump_and_die, dump_json, files_of, make_store, read_store, run_dump

MIB = 1 << 20


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store of pymq's, stopped, that no test changes; and its bodies."""
    path = tmp_path_factory.mktemp("made") / "store"
    return path, make_store(path)


@pytest.fixture
def store(made, tmp_path):
    """A copy of it that a test may change."""
    return shutil.copytree(made[0], tmp_path / "store")


# ---- whole ---------------------------------------------------------------------------------------------------------


def test_a_stopped_store_s_dump_is_its_files(made, tmp_path):
    """Goal: nothing is lost or changed, and the dump is a store. Method: compare all bytes; open it and read."""
    store, bodies = made
    before = files_of(store)
    result = take_dump(str(store), tmp_path / "dump")
    assert files_of(tmp_path / "dump") == before == files_of(store)
    assert not result.already
    assert result.copied == sum(entry.written for entry in result.manifest.files)
    assert verify_dump(tmp_path / "dump")[1] == []
    assert read_store(tmp_path / "dump") == bodies


def test_a_stopped_broker_s_settings_are_not_in_the_dump(store, tmp_path):
    """Goal: a dump may be given away. Method: a password where updateBrokerConfig keeps it."""
    (store / "config").mkdir(exist_ok=True)
    for name in ("broker.properties", "broker.properties.bak"):
        (store / "config" / name).write_text("tls.server.keyPassword=s3cret\n")
    take_dump(str(store), tmp_path / "dump")
    assert not [path for path, data in files_of(tmp_path / "dump").items() if b"s3cret" in data]
    assert verify_dump(tmp_path / "dump")[1] == []


def test_the_manifest_says_what_is_in_the_dump(made, tmp_path):
    """Goal: others can check a dump without us. Method: read the JSON, compute sizes and digests from the files."""
    store, _ = made
    dump = tmp_path / "dump"
    take_dump(str(store), dump)
    document = json.loads((dump / "manifest.json").read_text(encoding="utf-8"))
    assert (document["format"], document["version"], document["leafSize"]) == ("pymq-dump", 1, MIB)
    assert (document["kind"], document["source"], document["broker"]) == ("stopped", str(store), None)
    assert document["begunMs"] <= document["endedMs"]
    assert document["configuration"] == {
        "mappedFileSizeCommitLog": "20011",
        "mappedFileSizeConsumeQueue": "220",
        "maxHashSlotNum": "53",
        "maxIndexNum": "61",
    }
    assert sorted(entry["path"] for entry in document["files"]) == sorted(files_of(dump))
    for entry in document["files"]:
        data = (dump / entry["path"]).read_bytes()
        assert entry["size"] == len(data)
        assert entry["mtimeMs"] == (store / entry["path"]).stat().st_mtime_ns // 1_000_000
        written = data[: entry["written"]]
        assert not data[entry["written"] :].strip(b"\0")
        leaves = [written[at : at + MIB] for at in range(0, len(written), MIB)]
        assert entry["leaves"] == [f"{xxhash.xxh3_64_intdigest(leaf):016x}" for leaf in leaves]
    with pymq.open(store) as opened:
        assert document["log"] == {"begin": 0, "end": int(opened.watermarks().written)}


def test_apache_s_store_is_dumped_and_opened(golden_store, tmp_path):
    """Goal: stores Apache RocketMQ wrote can be dumped. Method: the golden one; its files, its end, what pymq reads."""
    before = files_of(golden_store)
    result = take_dump(str(golden_store), tmp_path / "dump")
    assert files_of(tmp_path / "dump") == before
    copy = shutil.copytree(tmp_path / "dump", tmp_path / "copy")
    assert read_store(copy) == read_store(golden_store)
    with pymq.open(golden_store) as opened:
        assert result.manifest.log_end == int(opened.watermarks().written)


def test_leaves_of_large_files_and_holes(tmp_path):
    """Goal: several leaves a file, and sparse files stay sparse. Method: 5 MiB of log in 8 MiB files, a large index."""
    store = tmp_path / "store"
    sizes = {"mapped_file_size_commit_log": 8 * MIB, "max_hash_slot_num": 100_000, "max_index_num": 2_000_000}
    with pymq.open(store, config=pymq.StoreConfig(**sizes)) as opened:
        for number in range(5):
            opened.send("T", bytes([number + 1]) * (MIB - 100), wait=False)
    index = next((store / "index").iterdir())
    dump = tmp_path / "dump"
    take_dump(str(store), dump)
    entries = {entry.path: entry for entry in load_manifest(dump).files}
    log = entries["commitlog/00000000000000000000"]
    assert log.size == 8 * MIB
    assert 4 * MIB < log.written < 6 * MIB
    assert len(log.leaves) == -(-log.written // LEAF_SIZE)
    copied = dump / "index" / index.name
    assert copied.stat().st_size == index.stat().st_size > 38 * MIB
    assert copied.stat().st_blocks * 512 < 2 * MIB
    assert (dump / log.path).read_bytes() == (store / log.path).read_bytes()


# ---- the end of a stopped log --------------------------------------------------------------------------------------


def last_log_file(store):
    """The last file of the log that has a record."""
    return [path for path in sorted((store / "commitlog").iterdir()) if path.read_bytes().strip(b"\0")][-1]


def test_the_log_ends_behind_a_record_whose_last_bytes_are_zeros(tmp_path):
    """Goal: zeros of a record are not cut off. Method: a message without properties ends with two zero bytes."""
    with pymq.open(tmp_path / "store") as store:
        store.send("T", b"body", unique_key=False)
        end = int(store.watermarks().written)
    assert not last_log_file(tmp_path / "store").read_bytes()[end - 2 : end].strip(b"\0")
    assert stopped_log_end(tmp_path / "store") == (0, end)


def test_a_torn_or_damaged_end_belongs_to_the_dump(store):
    """Goal: an audit sees what a crash or a disk did. Method: damage a record, then leave half a one at the end."""
    _, end = stopped_log_end(store)
    path = last_log_file(store)
    data = bytearray(path.read_bytes())
    data[4] ^= 0xFF  # the first record's magic: whole ones follow
    path.write_bytes(data)
    assert stopped_log_end(store) == (0, end)
    at = end - int(path.name)
    data[at : at + 50] = b"\x01" * 50
    path.write_bytes(data)
    assert stopped_log_end(store) == (0, end + 50)
    take_dump(str(store), store.parent / "dump")
    assert (store.parent / "dump" / path.relative_to(store)).read_bytes() == bytes(data)


def test_a_file_made_ahead_is_not_the_end(store):
    """Goal: the log does not end where its files do. Method: a next file of zeros, as a broker makes ahead."""
    begin, end = stopped_log_end(store)
    ahead = store / "commitlog" / f"{int(max(os.listdir(store / 'commitlog'))) + 20_011:020d}"
    ahead.write_bytes(bytes(20_011))
    assert stopped_log_end(store) == (begin, end)
    manifest = take_dump(str(store), store.parent / "dump").manifest
    entry = next(entry for entry in manifest.files if entry.path == f"commitlog/{ahead.name}")
    assert (entry.size, entry.written, entry.leaves) == (20_011, 0, [])


# ---- refused -------------------------------------------------------------------------------------------------------


def full_of_something(target):
    """A directory that is somebody else's."""
    target.mkdir()
    (target / "thesis.tex").write_text("x")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (full_of_something, ["neither empty nor a dump", "thesis.tex"]),
        (lambda target: target.write_text("x"), ["is no directory"]),
    ],
)
def test_a_target_that_is_no_empty_directory_or_dump_is_refused(store, tmp_path, prepare, words, capsys):
    """Goal: nobody's files are touched. Method: targets that hold something; exit code 2 and one line."""
    target = tmp_path / "target"
    prepare(target)
    before = files_of(tmp_path)
    assert cli.main(["--quiet", str(store), str(target)]) == 2
    said = capsys.readouterr().err
    assert all(word in said for word in words)
    assert said.count("\n") == 1
    assert {path: data for path, data in files_of(tmp_path).items() if path != "store/lock"} == {
        path: data for path, data in before.items() if path != "store/lock"
    }


def test_a_dump_of_another_store_is_refused(store, golden_store, tmp_path):
    """Goal: two stores do not mix. Method: a finished dump and an unfinished one of another store as the target."""
    take_dump(str(golden_store), tmp_path / "whole")
    assert dump_and_die(golden_store, tmp_path / "half", after=5) == -9
    for target in ("whole", "half"):
        with pytest.raises(DumpRefusedError, match="another source"):
            take_dump(str(store), tmp_path / target)


def test_places_inside_each_other_are_refused(store):
    """Goal: a dump never copies itself. Method: the target in the store, the store in the target, both the same."""
    for target in (store / "dump", store.parent, store):
        with pytest.raises(DumpRefusedError, match="lie in one another"):
            take_dump(str(store), target)


def test_what_is_no_store_is_refused(tmp_path):
    """Goal: one clear line. Method: nothing there, an empty directory, an unfinished dump, and a word."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "manifest.json.partial").write_text("{}\n")
    for source, words in [
        (tmp_path / "none", "neither a directory nor host:port"),
        (tmp_path / "empty", "no store: it has no commitlog/"),
        (tmp_path / "half", "a dump that is not finished"),
        ("127.0.0.1:1", "no broker at 127.0.0.1:1"),
    ]:
        with pytest.raises(DumpRefusedError, match=words):
            take_dump(str(source), tmp_path / "target")


def test_a_name_that_is_no_text_is_refused_and_named(store, tmp_path, capsys):
    """Symptom: a traceback, at every attempt."""
    os.makedirs(os.fsencode(store / "consumequeue") + b"/T\xff/0")
    with open(os.fsencode(store / "consumequeue") + b"/T\xff/0/00000000000000000000", "wb"):
        pass
    with pytest.raises(DumpRefusedError, match=r"T\\xff/0/0{20}' is no file of a store, its name is no UTF-8"):
        take_dump(str(store), tmp_path / "dump")


def test_an_open_store_is_refused_with_the_way_out(store, tmp_path):
    """Goal: no dump of files that change. Method: a store open in another process, then in this one."""
    script = (
        "import pymq, sys; store = pymq.open(sys.argv[1]); print('open', flush=True); sys.stdin.read(); store.close()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", script, str(store)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "open\n"
        done = run_dump(store, tmp_path / "target")
        assert done.returncode == 2
        assert f"process {other.pid}" in done.stderr
        assert "give its address (host:port)" in done.stderr
    finally:
        other.communicate("")
    with pymq.open(store) as opened:
        with pytest.raises(DumpRefusedError, match="open in this process"):
            take_dump(str(store), tmp_path / "target")
        opened.send("T", b"the lock is still held, and the store works")
        assert run_dump(store, tmp_path / "target").returncode == 2
    assert not (tmp_path / "target").exists()
    take_dump(str(store), tmp_path / "target")


def test_a_store_cannot_be_opened_while_it_is_dumped(store, tmp_path):
    """Goal: the lock is held until the end. Method: another process tries to open it when the last file was copied."""
    seen = []

    class Opening(copier.Silent):
        def file_done(self, path):
            if not seen:
                script = "import pymq, sys; pymq.open(sys.argv[1])"
                seen.append(
                    subprocess.run([sys.executable, "-c", script, store], cwd=ROOT, capture_output=True, text=True)
                )

    take_dump(str(store), tmp_path / "target", report=Opening())
    assert "StoreLockedError" in seen[0].stderr


def test_too_little_space_is_said_before_anything_is_copied(store, tmp_path, monkeypatch):
    """Goal: no disk is filled in vain. Method: a file system that says it has 10 KiB left."""
    disk = SimpleNamespace(f_bavail=10, f_frsize=1024, f_blocks=1000, f_bfree=100)
    monkeypatch.setattr(os, "statvfs", lambda path: disk)
    with pytest.raises(DumpRefusedError, match="MiB are free"):
        take_dump(str(store), tmp_path / "target")
    assert files_of(tmp_path / "target") == {}


# ---- going on ------------------------------------------------------------------------------------------------------


def test_a_dump_killed_at_every_few_files_is_continued(made, tmp_path):
    """Goal: the same command goes on. Method: kill the dumper after 7 more files, again and again; then compare."""
    store, _ = made
    dump = tmp_path / "dump"
    begun = []
    after = 1
    while dump_and_die(store, dump, after=after) == -9:
        head = json.loads((dump / "manifest.json.partial").read_text(encoding="utf-8").splitlines()[0])
        begun.append(head["begunMs"])
        assert not (dump / "manifest.json").exists()
        after += 7
    assert len(begun) >= 4
    assert files_of(dump) == files_of(store)
    assert load_manifest(dump).begun_ms == begun[0] == begun[-1]
    assert not (dump / "manifest.json.partial").exists()
    assert verify_dump(dump)[1] == []


def test_a_dump_killed_inside_a_file_copies_only_what_is_missing(tmp_path):
    """Goal: what was copied of a large file is used. Method: kill after the sixth MiB, damage one, flip none else."""
    store, dump = tmp_path / "store", tmp_path / "dump"
    with pymq.open(
        store, config=pymq.StoreConfig(mapped_file_size_commit_log=16 * MIB, message_index_enable=False)
    ) as made:
        for number in range(9):
            made.send("T", os.urandom(MIB - 100), wait=False)
            del number
    assert dump_and_die(store, dump, after=8, event="advance", note_leaves=1) == -9
    log = dump / "commitlog" / "00000000000000000000"
    with log.open("r+b") as stream:
        stream.seek(3 * MIB + 7)
        stream.write(b"damaged")
    result = dump_json(store, dump)
    assert 3 * MIB <= result["reusedBytes"] <= 6 * MIB
    assert result["reusedBytes"] + result["copiedBytes"] == result["bytes"]
    assert files_of(dump) == files_of(store)
    assert dump_json(store, dump)["already"]


def test_a_torn_note_did_not_happen(store, tmp_path):
    """Goal: a kill in the middle of a note does no harm. Method: cut the notes inside their last line."""
    dump = tmp_path / "dump"
    assert dump_and_die(store, dump, after=12) == -9
    notes = dump / "manifest.json.partial"
    notes.write_bytes(notes.read_bytes()[:-7])
    take_dump(str(store), dump)
    assert files_of(dump) == files_of(store)


def test_a_source_that_has_changed_is_refused(store, tmp_path):
    """Goal: a dump is of one moment. Method: a message more between two attempts."""
    assert dump_and_die(store, tmp_path / "dump", after=12) == -9
    with pymq.open(store) as opened:
        opened.send("T0", b"another")
    with pytest.raises(DumpRefusedError, match="has changed since this dump was begun"):
        take_dump(str(store), tmp_path / "dump")


def test_a_file_changed_under_the_dump_is_an_error(store, tmp_path):
    """Goal: somebody who does not ask for the lock is noticed. Method: append to a file when another was copied."""

    class Writing(copier.Silent):
        def file_done(self, path):
            with (store / "config" / "consumerOffset.json").open("a") as stream:
                stream.write(" ")

    with pytest.raises(DumpError, match="changed while it was copied"):
        take_dump(str(store), tmp_path / "dump", report=Writing())


def test_two_dumpers_do_not_write_one_dump(store, tmp_path):
    """Goal: one writer. Method: start a second while the first is in the middle."""
    seen = []

    class Second(copier.Silent):
        def file_done(self, path):
            if not seen:
                copy = shutil.copytree(store, tmp_path / "copy", dirs_exist_ok=True)
                with pytest.raises(DumpRefusedError) as refused:
                    from pymq.store.dump.target import open_target

                    open_target(tmp_path / "dump", {"storePath": str(copy), "kind": "stopped"})
                seen.append(str(refused.value))

    take_dump(str(store), tmp_path / "dump", report=Second())
    assert "another dump is being written here" in seen[0]


# ---- verifying -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large_dump(tmp_path_factory):
    """A dump with files of several leaves."""
    home = tmp_path_factory.mktemp("large")
    config = pymq.StoreConfig(mapped_file_size_commit_log=8 * MIB, message_index_enable=False)
    with pymq.open(home / "store", config=config) as opened:
        for _ in range(4):
            opened.send("T", os.urandom(MIB), wait=False)
    take_dump(str(home / "store"), home / "dump")
    return home / "dump"


@pytest.mark.parametrize(("at", "leaf"), [(0, 0), (MIB - 1, 0), (MIB, 1), (3 * MIB + 5, 3), (8 * MIB - 1, 7)])
def test_verify_names_the_leaf_of_a_flipped_byte(large_dump, at, leaf):
    """Goal: every byte counts, also behind what was written. Method: flip one, verify, flip it back."""
    path = large_dump / "commitlog" / "00000000000000000000"
    assert verify_dump(large_dump)[1] == []
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 1]))
    (found,) = verify_dump(large_dump)[1]
    assert (found.path, found.leaf, found.offset) == ("commitlog/00000000000000000000", leaf, leaf * MIB)
    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(byte)
    assert verify_dump(large_dump)[1] == []


def test_verify_names_missing_short_and_foreign_files(store, tmp_path, capsys):
    """Goal: files count too. Method: remove one, cut one, add one; by the command line, for people and programs."""
    dump = tmp_path / "dump"
    take_dump(str(store), dump)
    assert cli.main(["--verify", str(dump)]) == 0
    assert "as the manifest says" in capsys.readouterr().out
    (dump / "checkpoint").unlink()
    os.truncate(dump / "config" / "consumerOffset.json", 5)
    (dump / "index" / "20990101000000000").write_bytes(b"x")
    assert cli.main(["--verify", str(dump), "--json"]) == 1
    differences = {item["path"]: item for item in json.loads(capsys.readouterr().out)["differences"]}
    assert set(differences) == {"checkpoint", "config/consumerOffset.json", "index/20990101000000000"}
    assert differences["checkpoint"]["found"] == "missing"
    assert differences["config/consumerOffset.json"]["leaf"] == 0
    cli.main(["--verify", str(dump)])
    text = capsys.readouterr().out
    assert "checkpoint: missing" in text
    assert "3 files differ" in text


def test_verify_refuses_what_is_no_whole_dump(store, tmp_path):
    """Goal: exit code 2 and a reason. Method: a store, an unfinished dump, a manifest of another version."""
    assert dump_and_die(store, tmp_path / "half", after=5) == -9
    shutil.copytree(store, tmp_path / "odd")
    (tmp_path / "odd" / "manifest.json").write_text(json.dumps({"format": "pymq-dump", "version": 2, "leafSize": MIB}))
    for path, words in [(store, "is no dump"), (tmp_path / "half", "not finished"), (tmp_path / "odd", "version 2")]:
        with pytest.raises(DumpRefusedError, match=words):
            verify_dump(path)
    assert cli.main(["--verify", str(store)]) == 2


def test_a_manifest_cannot_lead_out_of_its_dump():
    """Goal: verifying a stranger's dump reads nothing else. Method: paths that leave the directory."""
    for path in ("/etc/passwd", "../secret", "config/../../secret"):
        with pytest.raises(ValueError, match="leads out"):
            FileEntry.from_json({"path": path, "size": 0, "written": 0, "mtimeMs": 0, "leaves": []})


# ---- the command ---------------------------------------------------------------------------------------------------


def test_the_command_line_speaks_to_people_and_programs(store, tmp_path, capsys):
    """Goal: the surface. Method: a dump with plain lines, one as JSON, help with an example, wrong arguments."""
    assert cli.main([str(store), str(tmp_path / "a")]) == 0
    shown = capsys.readouterr()
    assert "files" in shown.err
    assert f"{tmp_path / 'a'}: {store} from 0 up to" in shown.out
    assert cli.main(["--json", "--quiet", str(store), str(tmp_path / "b")]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["kind"] == "stopped"
    assert shown.err == ""
    assert cli.main(["--json", str(tmp_path / "none"), str(tmp_path / "c")]) == 2
    assert json.loads(capsys.readouterr().out)["exitCode"] == 2
    for wrong in ([], [str(store)], ["--verify", str(store), str(store)]):
        with pytest.raises(SystemExit) as ended:
            cli.main(wrong)
        assert ended.value.code == 2
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "127.0.0.1:10911" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--rate", "--lease"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "-0.001", "1e-9", "1e308"])
def test_a_rate_or_lease_that_is_no_amount_is_one_line(store, tmp_path, capsys, option, value):
    """Goal: no traceback, no dump without a bound. Method: what Python takes for a number and is none, too large and
    too small ones."""
    assert cli.main([f"{option}={value}", str(store), str(tmp_path / "dump")]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"pymq.store.dump: {option} ")
    assert "a number above 0" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize("value", ["0", "-0.0", "0.5", "1e9"])
def test_a_rate_of_nothing_is_no_bound_and_any_other_is_one(store, tmp_path, value):
    """Goal: what is right stays so. Method: the edge, a part of a MiB, and more than any disk does."""
    assert cli.main(["--quiet", f"--rate={value}", str(store), str(tmp_path / "dump")]) == 0


def test_a_terminal_gets_a_bar_and_a_file_plain_lines():
    """Goal: both are readable. Method: a report of three files in 10 s of a clock of ours, on both kinds of stream."""
    now = [0.0]
    for terminal in (True, False):
        stream = io.StringIO()
        bar = ProgressBar(stream, terminal=terminal, now_s=lambda: now[0])
        bar.begin("store", 3, 10 * MIB)
        for path in ("a", "b", "c"):
            now[0] += 3.0
            bar.advance(path, 3 * MIB)
            bar.file_done(path)
        bar.end()
        text = stream.getvalue()
        assert ("\r[#########" in text) == terminal
        assert "60% 6 of 10 MiB" in text
        assert text.endswith("3 files, 9.0 MiB in 9.0 s\n")


def test_a_dump_is_read_by_readers_of_stores(made, tmp_path):
    """Goal: a dump lies as a store does. Method: read a queue file of it with the reader of queue files."""
    take_dump(str(made[0]), tmp_path / "dump")
    units = read_queue(tmp_path / "dump" / "consumequeue" / "T0" / "0" / f"{0:020d}")
    assert units["size"][0] > 0
