"""metrics.jsonl: a record is as training writes it, or it is an error of one line that names its place."""

import json
import os
import socket
from dataclasses import asdict

import pytest
from run_folders import record

from fedmim import Record
from fedmim.errors import UserError
from fedmim.experiments import metrics_file
from fedmim.experiments.archive import ADDED, KEPT
from fedmim.experiments.metrics_file import NOT_ARCHIVED, cut_records, read_records
from fedmim.experiments.run_folder import jsonable


def text_of(*records):
    return "".join(json.dumps(each) + "\n" for each in records)


def lacking(field):
    return {name: value for name, value in record(2, 0.5).items() if name != field}


DAMAGED = {
    "not JSON": "garbage",
    "empty line": "",
    "a list": "[1, 2]",
    "a number": "7",
    "null": "null",
    "two records": text_of(record(2, 0.5)).strip() * 2,
    "NUL bytes": "\0" * 300,
    "a NUL within": text_of(record(2, 0.5)).replace("round", "ro\0nd").strip(),
    "NaN": json.dumps(record(2, float("nan"))),
    "Infinity": json.dumps(record(2, 0.5, loss=float("inf"))),
    "a float past the largest": json.dumps(record(2, 0.5)).replace("0.5", "1e999", 1),
    "deep nesting": "[" * 100_000,
    "deep nesting in a field": json.dumps(record(2, 0.5))[:-1] + ', "more": ' + "[" * 100_000,
    "an integer of 5,000 digits": json.dumps(record(2, 0.5, up=7)).replace(": 7,", ": " + "9" * 5000 + ","),
    "an integer past 64 bits": json.dumps(record(2, 0.5, up=2**63)),
    "an integer past the largest float": json.dumps(record(2, 0.5) | {"test_loss": 10**400}),
    "the round before": json.dumps(record(1, 0.5)),
    "a round too far": json.dumps(record(3, 0.5)),
    "round as text": json.dumps(record("2", 0.5)),
    "round as a float": json.dumps(record(2.0, 0.5)),
    "round as a truth": json.dumps(record(True, 0.5)),
    "accuracy as text": json.dumps(record(2, "0.5")),
    "accuracy as a list": json.dumps(record(2, [0.5])),
    "accuracy as a truth": json.dumps(record(2, True)),
    "bytes as a float": json.dumps(record(2, 0.5, up=1.5)),
    "bytes below zero": json.dumps(record(2, 0.5, down=-1)),
    "bytes as null": json.dumps(record(2, 0.5, down=None)),
    "seconds as null": json.dumps(record(2, 0.5, seconds=None)),
    "seconds below zero": json.dumps(record(2, 0.5, seconds=-0.1)),
    "consistency below zero": json.dumps(record(2, 0.5, consistency=-1.0)),
    "clients as a number": json.dumps(record(2, 0.5) | {"clients": 3}),
    "clients as texts": json.dumps(record(2, 0.5) | {"clients": ["a"]}),
    **{f"no {field}": json.dumps(lacking(field)) for field in KEPT if field not in ADDED},
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_line_is_named_in_one_line(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(text_of(record(1, 0.25)) + line + "\n" + text_of(record(3, 0.75)))
    with pytest.raises(UserError, match=r"metrics\.jsonl: line 2 is damaged \(.+\); ") as caught:
        list(read_records(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_bytes_that_are_not_text_are_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(text_of(record(1, 0.25)).encode() + b"\xff\xfe\n")
    with pytest.raises(UserError, match=r"line 2 is damaged .*utf-8"):
        list(read_records(path))


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_a_line_without_end_is_not_read_into_memory(ending, tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_file, "LONGEST_LINE", 1000)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(text_of(record(1, 0.25)).encode() + b"x" * 1_000_000 + ending)
    with pytest.raises(UserError, match=r"line 2 is damaged .*longer than 1000 bytes"):
        list(read_records(path))


def test_what_training_writes_is_read_as_it_was(tmp_path):
    first = Record(1, None, None, 2.5, 0.0, 0.1, (3, 1), 5, 2**40, 0, 0.001)
    second = Record(2, -0.5, 1e300, float("nan"), None, 1e-9, (), 0, 0, 4, 1e4, epsilon=2.5, simulated_time=1.5)
    path = tmp_path / "metrics.jsonl"
    path.write_text(text_of(jsonable(first), jsonable(second)) + '{"round": 3, "test_acc')  # cut off in writing
    expected = [asdict(first) | {"clients": [3, 1]}, asdict(second) | {"clients": [], "train_loss": None}]
    for name in ADDED:
        del expected[0][name]  # the run has none
        if name not in ("epsilon", "simulated_time"):
            del expected[1][name]
    assert list(read_records(path)) == expected


def test_an_archive_may_lack_what_it_leaves_out_and_a_later_version_may_add(tmp_path):
    path = tmp_path / "metrics.jsonl"
    kept = {name: value for name, value in record(1, 0.25).items() if name not in NOT_ARCHIVED}
    assert {*kept, *ADDED} == set(KEPT)
    path.write_text(text_of(kept | {"later": [1]}))
    assert list(read_records(path)) == [kept | {"later": [1]}]


def test_no_file_is_no_round_and_what_is_no_file_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert list(read_records(path)) == []
    path.symlink_to(path)
    with pytest.raises(UserError, match="cannot be read"):
        list(read_records(path))
    path.unlink()
    path.symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="link to a missing file"):
        list(read_records(path))
    path.unlink()
    path.mkdir()
    with pytest.raises(UserError, match="not a regular file"):
        list(read_records(path))


def test_a_pipe_or_socket_is_not_waited_for(tmp_path):
    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path)
    with pytest.raises(UserError, match="not a regular file"):
        list(read_records(path))
    path.unlink()
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(os.path.relpath(path))  # a path of a socket is short
        with pytest.raises(UserError, match="not a regular file"):
            list(read_records(path))


def test_records_are_cut_byte_for_byte(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(record(number, 0.1 * number), separators=(" ,", ":  ")) + "\n" for number in (1, 2, 3)]
    path.write_text("".join(lines) + '{"round": 4')
    cut_records(path, 3)
    assert path.read_text() == "".join(lines)
    cut_records(path, 2)
    assert path.read_text() == "".join(lines[:2])
    cut_records(path, 0)
    assert path.read_text() == ""
    path.unlink()
    cut_records(path, 0)
    assert path.read_text() == ""
    assert [each.name for each in tmp_path.iterdir()] == ["metrics.jsonl"]
