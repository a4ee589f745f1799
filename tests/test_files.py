"""Files are written whole or not at all; one process at a time works in a folder."""

from __future__ import annotations

import errno
import fcntl

import pytest

from fedmim.errors import BusyError
from fedmim.files import folder_lock, holding, replacing, write_text


def test_the_new_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def fail_half_way(path, error):
    with replacing(path) as temporary:
        temporary.write_text("half of the ne")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_writer_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error):
        fail_half_way(path, error("no"))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_where_there_was_none_leaves_none(tmp_path):
    with pytest.raises(ValueError, match="no"):
        fail_half_way(tmp_path / "a.txt", ValueError("no"))
    assert list(tmp_path.iterdir()) == []


def test_text_is_written_as_utf_8(tmp_path):
    write_text(tmp_path / "a.txt", "η = 0.1\n")
    assert (tmp_path / "a.txt").read_bytes() == "η = 0.1\n".encode()


def test_a_folder_is_one_process_at_a_time(tmp_path):
    first, second = folder_lock(tmp_path), folder_lock(tmp_path)
    with holding(first), pytest.raises(BusyError, match="another process is using"), holding(second):
        pass
    with holding(folder_lock(tmp_path)), pytest.raises(ValueError, match="own"):
        raise ValueError("own")
    with holding(folder_lock(tmp_path), wait=True):
        pass


def test_who_holds_a_lock_may_take_it_again(tmp_path):
    lock = folder_lock(tmp_path)
    with holding(lock):
        with holding(lock):
            pass
        with pytest.raises(BusyError), holding(folder_lock(tmp_path)):
            pass


def test_where_there_are_no_locks_there_is_none(tmp_path, monkeypatch):
    def without_locks(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with holding(folder_lock(tmp_path)), holding(folder_lock(tmp_path), wait=True):
        pass
