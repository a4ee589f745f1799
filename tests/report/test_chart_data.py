"""The numbers behind the charts: sums from the start, thinned where there are too many."""

from run_folders import comparison, record

from fedmim.report.chart_data import LEAST, chart_data, thinned
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_runs


def test_bytes_and_seconds_are_sums_from_the_start(tmp_path):
    folders = comparison(tmp_path, [("fedavg", None, {})], rounds=3)
    (run,) = chart_data(group_runs(load_runs(folders)), [None])["problems"][0]["lines"][0]["runs"]
    assert run["bytes"] == [3000, 6000, 9000]
    assert run["seconds"] == [0.25, 0.5, 0.75]


def test_thinning_keeps_the_last_record_and_spaces_the_others_evenly():
    records = [record(t, 0.5) for t in range(1, 1001)]
    assert thinned(records, 1000) == list(range(1000))
    assert thinned(records, 4) == [249, 499, 749, 999]


def test_thinning_prefers_rounds_with_an_evaluation():
    records = [record(t, 0.5 if t % 10 == 0 else None) for t in range(1, 1001)]
    assert thinned(records, 100) == [t - 1 for t in range(10, 1001, 10)]
    assert thinned(records, 3) == [329, 659, 999]


def test_many_runs_share_a_budget_of_points(tmp_path, monkeypatch):
    folders = comparison(tmp_path, [("fedavg", None, {})], seeds=(0, 1), rounds=300)
    monkeypatch.setattr("fedmim.report.chart_data.POINTS", 2)
    runs = chart_data(group_runs(load_runs(folders)), [None])["problems"][0]["lines"][0]["runs"]
    assert [len(run["round"]) for run in runs] == [LEAST, LEAST]
    assert runs[0]["round"][-1] == 300
