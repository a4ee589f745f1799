"""Runs with differential privacy on disk: epsilon is kept with the records and shown; other runs know nothing of it."""

from __future__ import annotations

import json

import pytest
from run_folders import comparison, record

from fedmim.cli import main
from fedmim.experiments.archive import Archive
from fedmim.experiments.config import defaults
from fedmim.experiments.metrics_file import read_records
from fedmim.experiments.run import Run
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.metrics import METRICS, shown_metrics, summarise

PRIVATE = {"local_steps": 2, "dp_noise": 2.0, "dp_clip": 0.5}
PROBLEM = ["--data", "digits", "--clients", "20", "--rounds", "3"]
FLAGS = [*PROBLEM, "--local-steps", "2", "--dp-noise", "2", "--dp-clip", "0.5", "--dp-clip-quantile", "0.5"]


def run_of(**settings):
    return Run.make("fedavg", {**defaults("digits"), "rounds": 3, **settings})


def test_a_private_run_records_epsilon_and_no_losses(tmp_path):
    assert main(["run", "--method", "fedavg", "--out", str(tmp_path / "run"), *FLAGS]) == 0
    records = list(read_records(tmp_path / "run" / "metrics.jsonl"))
    spent = [each["epsilon"] for each in records]
    assert spent == sorted(spent)
    assert spent[0] > 0
    assert all((each["train_loss"], each["consistency"]) == (None, None) for each in records)


def test_a_private_comparison_shows_epsilon_everywhere(tmp_path, capsys):
    assert main(["compare", "--methods", "fedavg,fedmim", "--out", str(tmp_path / "runs"), *FLAGS]) == 0
    assert "epsilon" in capsys.readouterr().out
    assert "psilon" in (tmp_path / "runs" / "report.html").read_text()
    content = json.loads((tmp_path / "runs" / "results.json").read_text())
    first = next(read_records(tmp_path / "runs" / "fedavg-seed0" / "metrics.jsonl"))
    assert all(method["mean"]["epsilon"] > first["epsilon"] for method in content["methods"])


def test_the_records_of_other_runs_have_no_epsilon_and_tables_no_column(tmp_path):
    assert main(["run", "--method", "fedavg", "--out", str(tmp_path / "run"), *PROBLEM]) == 0
    assert "epsilon" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    folders = comparison(tmp_path / "runs", [("fedavg", "FedAvg", {})], rounds=3)
    group = group_runs(load_results(folders))[0]
    assert summarise(group.runs[0].records, None)["epsilon"] is None
    assert METRICS["epsilon"] not in shown_metrics(group.lines[0].summaries)


def test_epsilon_is_that_of_the_last_round_and_shown_if_any_run_has_one():
    with_epsilon = [record(number, 0.5) | {"epsilon": 0.5 * number} for number in (1, 2, 3)]
    summaries = [summarise(with_epsilon, None), summarise([record(1, 0.5)], None)]
    assert [summary["epsilon"] for summary in summaries] == [1.5, None]
    assert METRICS["epsilon"] in shown_metrics(summaries)


def test_the_archive_keeps_epsilon(tmp_path):
    archive, run = Archive(tmp_path), run_of(**PRIVATE)
    records = [record(number, 0.5) | {"epsilon": 0.25 * number} for number in (1, 2, 3)]
    archive.add(run, records)
    assert [each["epsilon"] for each in archive.records(run)] == [0.25, 0.5, 0.75]
    archive.add(run_of(), [record(number, 0.5) for number in (1, 2, 3)])
    assert "epsilon" not in archive.records(run_of())[0]


@pytest.mark.parametrize("value", [-1.0, "1", True])
def test_an_epsilon_that_cannot_be_is_named(tmp_path, value):
    path = tmp_path / "metrics.jsonl"
    path.write_text(json.dumps(record(1, 0.5) | {"epsilon": value}) + "\n")
    with pytest.raises(ValueError, match="epsilon cannot be"):
        list(read_records(path))


def test_the_settings_of_aggregation_and_privacy_are_part_of_the_identity_only_if_set():
    assert run_of().identity() == '["fedavg", {}, {"batch_size": 5, "rounds": 3}]'
    changed = run_of(aggregation="median", min_replies=2)
    assert (
        changed.identity()
        == '["fedavg", {}, {"aggregation": "median", "batch_size": 5, "min_replies": 2, "rounds": 3}]'
    )
    assert json.loads(run_of(**PRIVATE).identity())[2]["dp_noise"] == 2.0
