"""metrics.jsonl: one record per line, and the one place where what it holds is checked.

A file may be anybody's, cut off, or damaged. A record is accepted if every number in it can be trusted: the fields of
`Record` with their types, in range and finite, round 1, 2, 3, ... Anything else is an error that names the line.
"""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, NoReturn, get_type_hints

from fedmim.errors import UserError
from fedmim.files import replacing
from fedmim.simulation.record import Record

NOT_ARCHIVED = ("lr", "clients")  # what an archive leaves out
LONGEST_LINE = 128 * 2**20  # bytes of a line: the ids of more than ten million clients
HIGHEST = 2**63  # of whole numbers
HINTS = get_type_hints(Record)
NEEDED = [each.name for each in fields(Record) if each.default is MISSING and each.name not in NOT_ARCHIVED]
SIGNED = ("test_accuracy", "test_loss", "train_loss")  # the metric and the loss may be the user's own


def read_records(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, one by one; none where there is no file. A last line that was cut off is left out."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise UserError(f"{path}: is not a regular file; remove it")
        with path.open("rb") as file:
            number = 0
            while (line := file.readline(LONGEST_LINE)).endswith(b"\n") or len(line) == LONGEST_LINE:
                number += 1
                try:
                    yield _record(line, number)
                except (ValueError, RecursionError) as error:
                    raise UserError(
                        f"{path}: line {number} is damaged ({error}); restore the file, or remove this line and all "
                        "after it"
                    ) from error
    except FileNotFoundError as error:
        if path.is_symlink():
            raise UserError(f"{path}: is a link to a file that does not exist; remove it") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error


def cut_records(path: Path, count: int) -> None:
    """Keep the first `count` records, byte for byte; the file is there afterwards, whole."""
    with replacing(path) as temporary, temporary.open("wb") as kept:
        if count:
            with path.open("rb") as file:
                kept.writelines(file.readline() for _ in range(count))


def _record(line: bytes, number: int) -> dict[str, Any]:
    """A line as a record, which must be of round `number`."""
    if not line.endswith(b"\n"):
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        record = json.loads(line.decode(), parse_constant=_reject)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(record, dict):
        raise ValueError("not a JSON object")
    for name in NEEDED:
        if name not in record:
            raise ValueError(f"{name} is missing")
    for name, value in record.items():
        if name in HINTS:
            record[name] = _checked(name, value)
    if record["round"] != number:
        raise ValueError(f"it is of round {record['round']}, not {number}")
    return record


def _checked(name: str, value: Any) -> Any:
    """A value of a field, if it is one; whole numbers become floats where the field has floats."""
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
        limit = sys.float_info.max if hint is not float else HIGHEST  # of seconds and learning rates, which are known
        if abs(value) <= limit and (value >= 0 or name in SIGNED):
            return float(value)
    shown = json.dumps(value)[:40] if not isinstance(value, float) or math.isfinite(value) else "a number too large"
    raise ValueError(f"{name} cannot be {shown}")


def _reject(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
