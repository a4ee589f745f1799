"""Runs that diverge: never crowned, never averaged, and told by the exit code, the table, the page and results.json."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file

import fedmim
from fedmim.cli import main
from fedmim.divergence import diverged, stalled_rounds
from fedmim.experiments.run_folder import RunFolder
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.method_results import by_label

SMALL = ["--rounds", "5", "--clients", "4", "--local-steps", "5", "--batch-size", "none", "--model", "logistic"]
SMALL += ["--split", "iid", "--participation", "1", "--engine", "serial"]
NEVER_FINITE = ["--lr", "1e9", "--clip-norm", "none"]

REJECTED = {"refused": 2, "train_loss": None}
ACCEPTED = {"refused": 0, "train_loss": 1.0}
PARTLY = {"refused": 1, "train_loss": 1.0}


@pytest.mark.parametrize(
    ("rounds", "stalled", "verdict"),
    [
        ([], 0, False),
        ([REJECTED], 1, True),
        ([REJECTED, REJECTED], 2, True),
        ([ACCEPTED, REJECTED, REJECTED], 2, False),
        ([ACCEPTED, REJECTED, REJECTED, REJECTED], 3, True),
        ([REJECTED, REJECTED, REJECTED, ACCEPTED], 0, False),
        ([REJECTED, REJECTED, REJECTED, PARTLY], 0, False),
        ([PARTLY] * 5, 0, False),
    ],
)
def test_a_run_has_diverged_when_its_last_three_rounds_accepted_nothing(rounds, stalled, verdict):
    assert (stalled_rounds(rounds), diverged(rounds)) == (stalled, verdict)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Data on which a learning rate of 1e9 gives infinite outputs in the second step: 1e9 * 1e15 * 1e15 overflows.

    At a learning rate of 0.1 without weight decay it trains: 0.1 * 1e15 * 1e15 does not.
    """
    path = tmp_path_factory.mktemp("data") / "own.safetensors"
    x, y = 1e15 * torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    save_file({"x_train": x, "y_train": y, "x_test": x.clone(), "y_test": y.clone()}, path)
    return ["--data", f"tensors:{path}"]


@pytest.fixture(autouse=True)
def as_in_a_terminal():
    """Python's own filter of warnings, which shows a text of a place once; the command prints them to stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        yield


def test_a_run_in_which_nothing_was_accepted_ends_with_an_exit_code_and_a_line_of_its_own(data, tmp_path, capsys):
    words = ["run", "--method", "fedavg", *data, *SMALL, *NEVER_FINITE, "--quiet", "--label", "hot", "--seed", "7"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 3
    *rounds, told = capsys.readouterr().err.splitlines()
    assert [line.partition(": every upload was rejected")[0] for line in rounds] == [
        f"fedmim: warning: hot, seed 7: round {round}" for round in range(1, 6)
    ]
    assert told.startswith("fedmim: hot, seed 7: diverged: every upload of rounds 1 to 5 was rejected")
    assert "smaller lr" in told


def test_the_table_says_diverged_in_place_of_figures(data, tmp_path, capsys):
    words = ["run", "--method", "fedavg", *data, *SMALL, *NEVER_FINITE, "--out", str(tmp_path / "out")]
    main(words)
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("FedAvg"))
    assert row.split()[1:4] == ["diverged", "diverged", "diverged"]


def test_warnings_of_two_runs_in_one_process_are_both_shown(data, tmp_path, capsys):
    words = ["run", "--method", "fedavg", *data, *SMALL, *NEVER_FINITE, "--quiet", "--rounds", "1"]
    for name in ("a", "b"):
        main([*words, "--out", str(tmp_path / name)])
        assert "FedAvg, seed 0: round 1: every upload was rejected" in capsys.readouterr().err


def test_a_comparison_with_one_diverged_run_is_a_result_that_says_so(data, tmp_path):
    out = tmp_path / "out"
    methods = "fedavg(label='cool'),fedavg(lr=1e9,clip_norm='none',label='hot')"
    assert main(["compare", "--methods", methods, *data, *SMALL, "--quiet", "--out", str(out)]) == 0
    lines = {line["label"]: line for line in json.loads((out / "results.json").read_text())["methods"]}
    hot, cool = lines["hot"], lines["cool"]
    assert (hot["runs"][0]["diverged"], cool["runs"][0]["diverged"]) == (1, 0)
    assert hot["mean"]["last_ten_accuracy"] is hot["mean"]["best_accuracy"] is hot["mean"]["consistency"] is None
    assert hot["mean"]["bytes_up"] > 0
    assert cool["mean"]["last_ten_accuracy"] is not None
    page = (out / "report.html").read_text()
    assert "Diverged" in page
    assert "hot: seed 0" in page


def test_a_comparison_in_which_every_run_diverged_is_an_error(data, tmp_path, capsys):
    words = ["compare", "--methods", "fedavg,fedprox", *data, *SMALL, *NEVER_FINITE, "--quiet"]
    assert main([*words, "--out", str(tmp_path / "out")]) == 3
    told = capsys.readouterr().err
    assert "warning: FedProx, seed 0: diverged" in told
    assert "all 2 runs diverged" in told
    assert (tmp_path / "out" / "report.html").exists()


def test_a_run_may_stop_when_it_diverges_and_be_resumed_to_the_bits_of_one_that_went_on(data, tmp_path, capsys):
    words = ["run", "--method", "fedavg", *data, *SMALL, *NEVER_FINITE, "--quiet"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    assert main([*words, "--on-divergence", "stop", "--out", str(stopped)]) == 3
    assert main([*words, "--out", str(whole)]) == 3
    assert len(RunFolder.open(stopped).metrics()) == 3
    assert "of rounds 1 to 3" in capsys.readouterr().err
    before = (stopped / "metrics.jsonl").read_bytes()
    assert main(["run", "--resume", "--quiet", "--out", str(stopped)]) == 3  # it is still to stop
    assert (stopped / "metrics.jsonl").read_bytes() == before
    assert main(["run", "--resume", "--on-divergence", "continue", "--quiet", "--out", str(stopped)]) == 3
    assert (stopped / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert len(RunFolder.open(stopped).metrics()) == 5


def test_a_run_that_stops_alone_lets_the_others_go_on_and_is_not_averaged_away(data, tmp_path):
    """Of three seeds one stops: no mean over the two others takes their name."""
    out = tmp_path / "out"
    words = ["compare", "--methods", "fedavg", "--seeds", "0,1,2", *data, *SMALL, "--quiet", "--out", str(out)]
    assert main(words) == 0
    folders = [RunFolder.open(path.parent) for path in sorted(out.rglob("config.toml"))]
    lines = [json.loads(line) for line in (folders[1].path / "metrics.jsonl").read_text().splitlines()]
    rejected = [line | {"refused": 4, "train_loss": None, "consistency": None} for line in lines[:3]]
    (folders[1].path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in rejected))
    results = load_results(folders)
    (line,) = by_label(results, None)
    assert line.over_seeds("last_ten_accuracy") is None
    assert line.text("last_ten_accuracy") == "1 of 3 diverged"
    (group,) = group_runs(results)
    assert [run.seed for run in group.lines[0].runs] == [0, 1, 2]


def test_a_comparison_goes_on_past_a_run_that_stops(data, tmp_path, capsys):
    out = tmp_path / "out"
    methods = "fedavg(lr=1e9,clip_norm='none',label='hot'),fedavg(label='cool')"
    words = ["compare", "--methods", methods, *data, *SMALL, "--quiet", "--on-divergence", "stop", "--out", str(out)]
    assert main(words) == 0
    assert "warning: hot, seed 0: diverged: every upload of rounds 1 to 3" in capsys.readouterr().err
    done = [len(RunFolder.open(out / f"{name}-seed0").metrics()) for name in ("hot", "cool")]
    assert done == [3, 5]


def test_the_option_is_no_part_of_a_runs_identity(data, tmp_path):
    out = tmp_path / "out"
    words = ["run", "--method", "fedavg", *data, *SMALL, "--quiet"]
    assert main([*words, "--on-divergence", "stop", "--out", str(out)]) == 0
    stop = RunFolder.open(out).run
    assert stop.config.execution.on_divergence == "stop"
    assert stop.identity() == stop.replace(on_divergence="continue").identity()


def test_simulate_stops_with_a_warning_and_the_rounds_so_far():
    clients = [(torch.full((4, 3), torch.nan), torch.arange(4) % 2)] * 2
    task = fedmim.Task(torch.nn.Linear(3, 2), clients, (torch.zeros(2, 3), torch.arange(2)))
    execution = fedmim.Execution("serial", on_divergence="stop")
    with warnings.catch_warnings(record=True) as told:
        result = fedmim.simulate(fedmim.FedAvg(), task, fedmim.Settings(rounds=9, participation=1.0), execution)
    assert str(told[-1].message).startswith("FedAvg, seed 0: diverged: every upload of rounds 1 to 3 was rejected")
    assert [record.round for record in result.history] == [1, 2, 3]


def test_a_trial_that_diverges_is_not_the_best_of_a_search(data, tmp_path):
    """The start is at a learning rate that accepts nothing, the other trials are not."""
    space = tmp_path / "space.toml"
    space.write_text("[all.lr]\nlow = 1e-3\nhigh = 1e9\nlog = true\nfirst = [0.1]\n")
    words = ["tune", "fedavg", *data, *SMALL, "--clip-norm", "none", "--trials", "2", "--space", str(space)]
    config = tmp_path / "start.toml"
    config.write_text("lr = 1e9\n")
    assert main([*words, "--config", str(config), "--out", str(tmp_path / "out")]) == 0
    (trials,) = (tmp_path / "out").rglob("trials.csv")
    states = [line.split(",")[1] for line in trials.read_text().splitlines()[1:]]
    assert states == ["pruned", "complete"]
    (best,) = (tmp_path / "out").rglob("best.toml")
    assert "lr = 0.1" in best.read_text()
