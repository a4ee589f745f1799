"""Early stopping in commands: what they print and write, and how a stopped comparison goes on."""

import json
from pathlib import Path

import pytest

from fedmim import load_summary
from fedmim.cli import main

SMALL = ["--data", "digits", "--split", "iid", "--clients", "10", "--participation", "0.5", "--model", "logistic"]
SMALL += ["--local-epochs", "0.5", "--rounds", "40"]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def command(capsys, *words):
    code = main(list(words))
    return code, capsys.readouterr()


def rounds_of(folder):
    return {
        run["folder"]: run["stopped"]
        for each in json.loads((folder / "results.json").read_text())["methods"]
        for run in each["runs"]
    }


def lines(path):
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in path.read_text().splitlines()]


def test_a_comparison_says_where_its_runs_stopped_and_goes_on_to_the_same_bits(capsys):
    words = ["compare", "--methods", "fedavg", "--seeds", "0,1", *SMALL]
    code, output = command(capsys, *words, "--until", "0.8", "--out", "stopped", "--jobs", "1")
    assert code in (0, None)
    stops, folder = rounds_of(Path("stopped")), Path("stopped")
    assert len(stops) == 2
    for name, stopped in stops.items():
        records = lines(folder / name / "metrics.jsonl")
        assert stopped == f"reached 0.8 in round {len(records)}"
        assert records[-1]["test_accuracy"] >= 0.8 > max(record["test_accuracy"] for record in records[:-1])
        assert stopped in (folder / "report.html").read_text()
    first, second = (stops[f"fedavg-seed{seed}"] for seed in (0, 1))
    assert f"FedAvg: seed 0 {first}; seed 1 {second}." in output.out
    assert sorted(load_summary(folder).stopped) == sorted(stops.values())
    assert load_summary(folder).finished.all()
    command(capsys, "compare", "--resume", "--out", "stopped", "--until", "none", "--rounds", "25", "--jobs", "1")
    command(capsys, "run", "--method", "fedavg", *SMALL, "--rounds", "25", "--seed", "1", "--out", "whole")
    assert lines(folder / "fedavg-seed1" / "metrics.jsonl") == lines(Path("whole/metrics.jsonl"))
    assert set(rounds_of(folder).values()) == {None}


def test_a_cosine_schedule_is_in_the_heading_and_works_with_every_default_of_lr_decay(capsys):
    _, output = command(capsys, "run", *SMALL, "--rounds", "2", "--lr-schedule", "cosine", "--out", "run")
    assert "0.5 epochs" in output.out
    assert "learning rate 0.1 (cosine)" in output.out
    code, _ = command(capsys, "run", "--data", "mnist1d", "--rounds", "1", "--lr-schedule", "constant", "--quiet")
    assert code in (0, None)
