"""Records stored as columns of numbers. They need a tenth of the memory of dictionaries; reports load millions."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from math import isnan, nan
from typing import Any, overload

from fedmim.experiments.archive import KEPT
from fedmim.experiments.metrics_file import ADDED
from fedmim.experiments.run_folder import Records


class RecordColumns(Sequence[dict[str, Any]]):
    """The records of one run, with the fields that reports need. Each record is built on access."""

    def __init__(self, records: Iterable[Mapping[str, Any]]) -> None:
        self._columns: dict[str, array[Any]] = {
            name: array("d" if kind is float else "q") for name, kind in KEPT.items() if name not in ADDED
        }
        for place, record in enumerate(records):
            for name in ADDED:
                if name in record and name not in self._columns:
                    self._columns[name] = array("d", [nan]) * place
            for name, values in self._columns.items():
                value = record.get(name) if name in ADDED else record[name]
                values.append(nan if value is None else value)

    def column(self, field: str) -> list[Any]:
        """The values of a field; None if a record has no value."""
        if field not in self._columns:  # no record has it
            return [None] * len(self)
        values = self._columns[field].tolist()
        return values if KEPT[field] is int else [None if isnan(value) else value for value in values]

    def __repr__(self) -> str:
        return f"<{len(self)} records>"

    def __len__(self) -> int:
        return len(self._columns["round"])

    @overload
    def __getitem__(self, place: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, place: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, place: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        values = {name: self._columns[name][place] if name in self._columns else None for name in KEPT}
        return {name: None if value != value else value for name, value in values.items()}  # NaN != NaN


def column(records: Records, field: str) -> list[Any]:
    """The values of a field of all records."""
    if isinstance(records, RecordColumns):
        return records.column(field)
    return [record.get(field) if field in ADDED else record[field] for record in records]


def is_timed(records: Records) -> bool:
    """Whether the time of all rounds is simulated."""
    times = column(records, "simulated_time")
    return bool(times) and None not in times
