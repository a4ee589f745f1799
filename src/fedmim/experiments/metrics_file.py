"""metrics.jsonl: one record per line. All checks of its content are here.

A file may come from someone else, be truncated or be damaged. A record is valid if it has the fields of `Record` with
their types, all numbers are finite and in range, and the rounds are 1, 2, 3, ... Otherwise UserError names the line.
"""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from fedmim.errors import UserError
from fedmim.files import replacing
from fedmim.simulation.record import Record

NOT_ARCHIVED = ("lr", "clients")  # fields that an archive omits
# Fields that only some runs have; records of earlier versions lack them.
CLIENT_QUANTILES = ("clients_q10", "clients_q25", "clients_q50", "clients_q75", "clients_q90")
ADDED = (
    *("epsilon", "simulated_time", "steps_mean", "clients_mean", "clients_worst", "clients_std", "personal_mean"),
    *CLIENT_QUANTILES,
)
LONGEST_LINE = 128 * 2**20  # bytes per line, enough for the ids of ten million clients
HIGHEST = 2**63  # integers must be smaller
HINTS = get_type_hints(Record)
NEEDED = [each.name for each in fields(Record) if each.default is MISSING and each.name not in NOT_ARCHIVED]
# A user's own metric or loss may be negative.
SIGNED = (
    "test_accuracy",
    "test_loss",
    "train_loss",
    "clients_mean",
    "clients_worst",
    "personal_mean",
    *CLIENT_QUANTILES,
)

Parsed = TypeVar("Parsed")


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file; nothing if there is no file. A truncated last line is skipped."""
    return read_lines(path, _record)


def read_lines(path: Path, parse: Callable[[bytes, int], Parsed]) -> Iterator[Parsed]:
    """Yield the lines of a file, each parsed with its number, which starts at 1. A truncated last line is skipped.

    `parse` raises ValueError for a damaged line.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe would block
            raise UserError(f"{path}: is not a regular file; remove it")
        with path.open("rb") as file:
            number = 0
            while (line := file.readline(LONGEST_LINE)).endswith(b"\n") or len(line) == LONGEST_LINE:
                number += 1
                try:
                    yield parse(line, number)
                except (ValueError, RecursionError) as error:
                    raise UserError(
                        f"{path}: line {number} is damaged ({error}); restore the file, or remove this line and all "
                        "after it"
                    ) from error
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UserError(f"{path}: is a link to a missing file; remove it") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def cut_records(path: Path, count: int) -> None:
    """Truncate the file to its first `count` records, atomically. Creates the file if it is missing."""
    with replacing(path) as temporary, temporary.open("wb") as kept:
        if count:
            with path.open("rb") as file:
                kept.writelines(file.readline() for _ in range(count))


def _record(line: bytes, number: int) -> dict[str, Any]:
    """Parse and check a line. It must be the record of round `number`."""
    record = parse_object(line)
    for name in NEEDED:
        if name not in record:
            raise ValueError(f"{name} is missing")
    for name, value in record.items():
        if name in HINTS:
            record[name] = _checked(name, value)
    if record["round"] != number:
        raise ValueError(f"its round is {record['round']}, expected {number}")
    return record


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse a line of JSON, which must be an object."""
    if not line.endswith(b"\n"):
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        record = json.loads(line.decode(), parse_constant=_reject)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    return record


def _checked(name: str, value: Any) -> Any:
    """Check the value of a field. Integers become floats if the field is a float."""
    hint = HINTS[name]
    if hint is int:
        if type(value) is int and 0 <= value < HIGHEST:
            return value
    elif name == "clients":
        if type(value) is list and all(type(each) is int and 0 <= each < HIGHEST for each in value):
            return value
    elif value is None:
        if hint is not float:
            return None
    elif type(value) in (int, float):
        limit = sys.float_info.max if hint is not float else HIGHEST  # seconds and learning rates always have a value
        if abs(value) <= limit and (value >= 0 or name in SIGNED):
            return float(value)
    shown = json.dumps(value)[:40] if not isinstance(value, float) or math.isfinite(value) else "a number too large"
    raise ValueError(f"{name} cannot be {shown}")


def _reject(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a valid JSON number")
