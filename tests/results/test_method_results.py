"""The results of a method over its seeds."""

import pytest
from run_folders import comparison, method_results

from fedmim.experiments.metrics_file import read_records
from fedmim.report.page import write_page
from fedmim.report.terminal_table import comparison_table
from fedmim.results import loading
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.method_results import by_label
from fedmim.results.results_json import write_json


def test_mean_and_deviation_over_seeds_are_those_of_the_sample():
    method = method_results("fedavg", [0.2], [0.4], [0.6])
    assert method.over_seeds("final_accuracy") == pytest.approx((0.4, 0.2))
    assert method_results("fedavg", [0.2]).over_seeds("final_accuracy") == (0.2, 0.0)
    assert method_results("fedavg", [0.2], [0.6]).over_seeds("rounds_to_target") is None


def test_metrics_can_be_counted_to_another_target():
    method = method_results("fedavg", [0.2, 0.6, 0.8], [0.4, 0.7, 0.9], target=0.5)
    assert method.over_seeds("rounds_to_target") == (2.0, 0.0)
    assert method.at_target(0.75).over_seeds("rounds_to_target") == (3.0, 0.0)
    assert method.at_target(0.85).missing("rounds_to_target") == 1
    assert method.at_target(0.85).text("rounds_to_target") == "1 of 2 never"
    assert method.by_seed("final_accuracy") == {0: 0.8, 1: 0.9}


def test_the_records_of_a_run_are_read_once_for_all_that_is_made_of_them(tmp_path, monkeypatch):
    folders = comparison(tmp_path / "runs", [("fedavg", None, {}), ("fedmim", None, {})], seeds=(0, 1))
    read = []
    monkeypatch.setattr(loading, "read_records", lambda path: read.append(path.parent) or read_records(path))
    runs = load_results(folders)
    methods = by_label(runs, 0.5)
    write_json(methods, 0.5, tmp_path / "results.json")
    write_page(group_runs(runs, 0.5), tmp_path / "report.html")
    comparison_table(methods, 0.5)
    assert read == [folder.path for folder in folders]


def test_references_come_last():
    runs = [run for name in ("local", "fedavg", "centralised", "fedmim") for run in method_results(name, [0.5]).runs]
    assert [line.label for line in by_label(runs, None)] == ["FedAvg", "FedMIM", "Local only", "Centralised"]
