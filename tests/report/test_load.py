"""Many runs and long runs: work, reading and the size of the page grow with them, and no faster."""

import json
import sys

import pytest
from run_folders import record, rising

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.report import watch
from fedmim.report.chart_data import chart_data
from fedmim.report.page import page
from fedmim.report.watch import Watched
from fedmim.results import loading
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results
from fedmim.results.method_results import RunResult

# Runs of a sweep: many seeds, many labels, many problems.
KINDS = {
    "seeds": lambda number: {"seed": number},
    "labels": lambda number: {"lr": 0.001 * (1 + number)},
    "problems": lambda number: {"batch_size": 1 + number},
}


def make(folder, count, rounds=3):
    base = Run.make("fedavg", defaults("digits") | {"rounds": rounds})
    lines = "".join(json.dumps(record(t, a)) + "\n" for t, a in enumerate(rising(0.9, rounds), start=1))
    for number in range(count):
        made = RunFolder.create(folder / f"run-{number}", base.replace(seed=number))
        (made.path / "metrics.jsonl").write_text(lines)
    return folder


def steps_of(work):
    """How many lines of Python are run, those of a loop as often as it goes round."""
    count = 0

    def seen(frame, event, argument):
        nonlocal count
        count += event == "line"
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_of_a_page_grows_with_the_runs_and_no_faster(kind, tmp_path):
    base, records = Run.make("fedavg", defaults("digits") | {"rounds": 1}), [record(1, 0.5)]
    results = [RunResult(base.replace(**KINDS[kind](n)), tmp_path / str(n), records) for n in range(400)]
    page(group_runs(results[:2]))  # what is made once
    few, many = (steps_of(lambda count=count: page(group_runs(results[:count]))) for count in (200, 400))
    assert many < 2.1 * few


def test_a_live_page_reads_again_only_what_has_changed(tmp_path, monkeypatch):
    make(tmp_path, 20)
    opened, read = [], []
    open_folder, read_records = RunFolder.open, loading.read_records
    monkeypatch.setattr(watch.RunFolder, "open", lambda path: opened.append(path.name) or open_folder(path))
    monkeypatch.setattr(loading, "read_records", lambda path: read.append(path.parent.name) or read_records(path))
    watched = Watched([tmp_path], None)
    before = watched.tag()
    watched.news(before)
    assert (len(opened), len(read)) == (20, 20)
    with (tmp_path / "run-7" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(record(4, 0.5)) + "\n")
    assert watched.tag() != before
    watched.news(watched.tag())
    assert (len(opened), read[20:]) == (20, ["run-7"])


def test_the_charts_of_a_long_run_are_as_large_as_those_of_a_shorter_one(tmp_path):
    sizes = {}
    for rounds in (2000, 20_000):
        groups = group_runs(load_results(find_runs([make(tmp_path / str(rounds), 1, rounds=rounds)], pytest.fail)))
        sizes[rounds] = len(json.dumps(chart_data(groups, [None])))
    assert sizes[20_000] < 1.3 * sizes[2000]
