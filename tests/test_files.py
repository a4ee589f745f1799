"""Files are written whole or not at all."""

from __future__ import annotations

import pytest

from fedmim.files import replacing, write_text


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
