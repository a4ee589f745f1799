"""A disk that refuses a write: one line names the file and the remedy, no half file stays, the run can be resumed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedmim.cli import main
from fedmim.files import AppendedLines, make_folder, remove, sync_folder, write_text

SMALL = ["--rounds", "3", "--clients", "6", "--local-epochs", "1", "--model", "logistic", "--quiet"]
REFUSALS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO]


def refusing(code):
    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
@pytest.mark.parametrize("operation", ["write_text", "replace", "fsync"])
def test_a_rejected_write_names_the_file_and_leaves_the_old_one_alone(tmp_path, monkeypatch, code, operation):
    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(os if operation == "fsync" else Path, operation, refusing(code))
    with pytest.raises(OSError, match=os.strerror(code)) as told:
        write_text(path, "new")
    monkeypatch.undo()
    assert (told.value.errno, told.value.filename) == (code, str(path))
    assert told.value.strerror.startswith(f"{os.strerror(code)}; ")  # and the remedy
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [make_folder, sync_folder])
def test_folders_are_named_too(tmp_path, monkeypatch, make):
    monkeypatch.setattr(Path, "mkdir", refusing(errno.EDQUOT))
    monkeypatch.setattr(os, "fsync", refusing(errno.EDQUOT))
    with pytest.raises(OSError, match=r"; free some space or raise the quota, then resume") as told:
        make(tmp_path)
    assert told.value.filename == str(tmp_path)


def test_a_file_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "unlink", refusing(errno.EROFS))
    with pytest.raises(OSError, match="Read-only file system; make the file system writable") as told:
        remove(tmp_path / "a.txt")
    assert told.value.filename == str(tmp_path / "a.txt")


def test_other_errors_are_not_taken_for_the_disks(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_text(tmp_path / "none" / "a.txt", "x")


class HalfWritten:
    """A file on a disk that fills up in the middle of a line."""

    def __init__(self, file):
        self.file, self.room = file, 10

    def write(self, content):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = self.file.write(content[: self.room])
        self.room -= count
        return count

    def __getattr__(self, name):
        return getattr(self.file, name)


def test_a_line_that_does_not_fit_leaves_no_part_of_it(tmp_path):
    path = tmp_path / "a.jsonl"
    with AppendedLines(path) as lines:
        lines.add("first")
        lines._file = HalfWritten(lines._file)
        with pytest.raises(OSError, match="No space left on device; free some space") as told:
            lines.add("the second line")
        assert path.read_text() == "first\n"
        lines._file.room = 100
        lines.add("the second line")
    assert path.read_text() == "first\nthe second line\n"
    assert told.value.filename == str(path)


@pytest.mark.parametrize("code", REFUSALS, ids=errno.errorcode.get)
def test_the_command_says_it_in_one_line_and_resumes(tmp_path, monkeypatch, capsys, code):
    out, sync, calls = tmp_path / "run", os.fsync, []

    def later(handle):  # the disk works for a while
        calls.append(handle)
        if len(calls) > 12:
            refusing(code)()
        sync(handle)

    words = ["run", "--method", "scaffold", *SMALL, "--checkpoint-seconds", "0", "--out", str(out)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", later)
        assert main(words) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{out}/" in told
    assert f": {os.strerror(code)}; " in told
    assert not list(out.rglob("*.part"))
    assert main(["run", "--resume", "--quiet", "--out", str(out)]) == 0
    assert main([*words[:-1], str(tmp_path / "whole")]) == 0
    ours, whole = ((folder / "model.safetensors").read_bytes() for folder in (out, tmp_path / "whole"))
    assert ours == whole
