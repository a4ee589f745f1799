"""The numbers behind the charts: sums from the start, thinned where there are too many."""

import pytest
from run_folders import comparison, fill, method_results, record

from fedmim.report.chart_data import LEAST, LINES, chart_data, drawn_labels, extremes, thinned
from fedmim.report.page import page
from fedmim.results.grouping import RunGroup, group_runs
from fedmim.results.loading import load_results


def test_bytes_and_seconds_are_sums_from_the_start(tmp_path):
    folders = comparison(tmp_path, [("fedavg", None, {})], rounds=3)
    (run,) = chart_data(group_runs(load_results(folders)), [None])["problems"][0]["lines"][0]["runs"]
    assert run["bytes"] == [3000, 6000, 9000]
    assert run["seconds"] == [0.25, 0.5, 0.75]
    assert run["time"] is None


def test_the_simulated_time_is_a_sum_from_the_start_and_the_page_has_an_axis_for_it(tmp_path):
    folders = comparison(tmp_path, [("fedavg", None, {}), ("fedmim", None, {})], rounds=3)
    assert "Simulated time</button>" not in page(group_runs(load_results(folders)))
    fill(folders[1], [record(t, 0.5) | {"simulated_time": 2.0 * t} for t in (1, 2, 3)])
    groups = group_runs(load_results(folders))
    lines = chart_data(groups, [None])["problems"][0]["lines"]
    assert [line["runs"][0]["time"] for line in lines] == [None, [2.0, 6.0, 12.0]]
    assert "Simulated time</button>" in page(groups)


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
    runs = chart_data(group_runs(load_results(folders)), [None])["problems"][0]["lines"][0]["runs"]
    assert [len(run["round"]) for run in runs] == [LEAST + 2, LEAST + 2]  # and two extremes between them
    assert runs[0]["round"][-1] == 300


def test_a_spike_between_evenly_spaced_points_is_kept_and_marked_as_lying_between(tmp_path):
    (folder,) = comparison(tmp_path, [("fedavg", None, {})], rounds=5000)
    losses = {1234: 1e6, 4001: 1e-6}
    fill(folder, [record(t, 0.5 if t % 5 == 0 else None, loss=losses.get(t, 1.0)) for t in range(1, 5001)])
    (run,) = chart_data(group_runs(load_results([folder])), [None])["problems"][0]["lines"][0]["runs"]
    between = {run["round"][place] for place in run["between"]}
    assert {1234, 4001} <= between
    even = [number for number in run["round"] if number not in between]
    assert even == list(range(5, 5001, 5))
    assert max(run["train_loss"]) == 5e5  # half of the test loss
    assert len(run["round"]) < 1200
    assert run["seconds"][-1] == 2500  # 0.5 each, of all rounds


def test_extremes_are_those_of_the_mean_over_the_seeds():
    rows = [[0.5] * 40, [0.5] * 40]
    rows[0][7], rows[1][7] = 0.9, 0.1  # cancel out
    rows[0][30] = 0.6
    runs = [[record(t, value) for t, value in enumerate(row, start=1)] for row in rows]
    assert set(extremes(runs, 1)) == {0, 30}


def test_losses_near_the_largest_float_are_drawn():
    runs = [[record(t, None, loss=1.7e308) for t in range(1, 4)]] * 2
    assert set(extremes(runs, 1)) <= {0, 1, 2}


@pytest.mark.parametrize("count", [LINES, LINES + 3])
def test_of_very_many_labels_the_best_are_drawn_in_their_order(count):
    lines = tuple(method_results("fedavg", [number / 1000], label=str(number)) for number in reversed(range(count)))
    group = RunGroup((), None, lines, (), ())
    assert drawn_labels(group) == [str(number) for number in reversed(range(count - LINES, count))]


def test_the_curves_of_runs_that_stopped_end_with_the_shortest(tmp_path):
    folders = comparison(tmp_path, [("fedavg", None, {"until": 0.6})], seeds=(0, 1), rounds=9)
    for folder, rounds in zip(folders, (5, 3), strict=True):
        fill(folder, [record(t, 0.6 if t == rounds else 0.1) for t in range(1, rounds + 1)])
    (line,) = chart_data(group_runs(load_results(folders)), [None])["problems"][0]["lines"]
    assert [run["round"] for run in line["runs"]] == [[1, 2, 3], [1, 2, 3]]
    assert [run["accuracy"] for run in line["runs"]] == [[0.1, 0.1, 0.1], [0.1, 0.1, 0.6]]
    assert line["behind"] == []
