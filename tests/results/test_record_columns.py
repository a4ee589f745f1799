"""Records in columns: the same records as in a list, in a fraction of the memory."""

import sys

from run_folders import record

from fedmim.experiments.archive import KEPT
from fedmim.results.metrics import summarise
from fedmim.results.record_columns import RecordColumns, column


def records_of(count):
    return [record(t, t / count if t % 3 else None, consistency=None if t % 7 == 0 else t) for t in range(1, count + 1)]


def test_columns_hold_the_records_that_they_were_made_of():
    records = records_of(2500)
    stored = RecordColumns(iter(records))
    kept = [{name: each.get(name) for name in KEPT} for each in records]  # without differential privacy: no epsilon
    assert len(stored) == 2500
    assert list(stored) == kept
    assert (stored[0], stored[-1], stored[-3:], stored[5:8]) == (kept[0], kept[-1], kept[-3:], kept[5:8])
    assert all(column(stored, name) == column(records, name) for name in KEPT)
    assert summarise(stored, 0.5) == summarise(records, 0.5)
    assert list(RecordColumns([])) == []


def test_a_record_takes_less_than_a_hundred_bytes():
    stored = RecordColumns(records_of(1000))
    assert sum(sys.getsizeof(each) for each in stored._columns.values()) < 100 * 1000


def test_a_field_that_only_later_records_have_is_null_before():
    records = [record(1, 0.5), record(2, 0.5) | {"clients_mean": 0.25}, record(3, 0.5)]
    stored = RecordColumns(records)
    assert column(stored, "clients_mean") == [None, 0.25, None]
    assert [each["clients_mean"] for each in stored] == [None, 0.25, None]
    assert column(stored, "clients_std") == [None] * 3
