"""Going on with runs and comparisons: from what is saved, with the flags laid over it, and nothing written in vain."""

import json
import shutil
import tomllib

import pytest
import torch
from safetensors.torch import save_file

from fedmim.cli import main
from fedmim.commands.compare import read_comparison
from fedmim.experiments import sources
from fedmim.experiments.comparison import Comparison, existing_folders, run_folders
from fedmim.experiments.run_folder import RunFolder
from fedmim.files import folder_lock, holding

SMALL = ["--rounds", "2", "--clients", "20", "--local-epochs", "1", "--model", "logistic", "--quiet"]
FREE = ["--workers", "1", "--eval-every", "2", "--device", "cpu", "--engine", "serial"]


def content(folder):
    """Every file below a folder, with its bytes and the time it was written."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    assert main(["run", *SMALL, "--out", str(folder / "run")]) == 0
    assert main(["compare", "--methods", "fedavg,fedmim(lr=0.3)", *SMALL, "--out", str(folder / "compare")]) == 0
    return folder


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made, tmp_path / "made")


REFUSED = [
    ["run", "--lr", "0.7"],
    ["run", "--method", "fedavg"],
    ["run", "--alpha", "0.5"],
    ["run", "--rounds", "1"],
    ["run", "--config", "other.toml"],
    ["run", "--device", "abacus", "--rounds", "4"],
    ["run", "--clients", "19", "--rounds", "4"],
    ["compare", "--lr", "0.7"],
    ["compare", "--fedmim.alpha", "0.5"],
    ["compare", "--methods", "fedavg,fedmin"],
    ["compare", "--rounds", "1"],
    ["compare", "--config", "other.toml"],
    ["compare", "--device", "abacus", "--rounds", "4"],
    ["compare", "--methods", "scaffold(server_lr=-1)"],
    ["compare", "--target", "2"],
]


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_is_refused_has_changed_nothing(folder, words, capsys):
    before = content(folder)
    command, *flags = words
    assert main([command, "--resume", *flags, "--out", str(folder / command)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert content(folder) == before


@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_another_process_has_in_hand_is_left_as_it_is(folder, command, capsys):
    before = content(folder)
    with holding(folder_lock(folder / command)):
        assert main([command, "--resume", "--rounds", "4", "--quiet", "--out", str(folder / command)]) == 2
    assert "another process is using this folder" in capsys.readouterr().err
    assert content(folder) == before


def test_data_that_went_away_costs_no_model(folder, tmp_path, capsys):
    data = tmp_path / "own.safetensors"
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    save_file({"x_train": x, "y_train": y, "x_test": x.clone(), "y_test": y.clone()}, data)
    out = tmp_path / "own"
    assert main(["run", "--data", f"tensors:{data}", *SMALL, "--out", str(out)]) == 0
    data.rename(tmp_path / "elsewhere")
    before = content(out)
    sources.forget_data()  # as in another process
    assert main(["run", "--resume", "--rounds", "4", "--out", str(out)]) == 2
    assert "own.safetensors: there is no such file" in capsys.readouterr().err
    assert content(out) == before


def test_a_comparison_goes_on_from_what_is_saved(folder):
    out = folder / "compare"
    assert main(["compare", "--resume", "--rounds", "4", "--quiet", "--out", str(out)]) == 0
    saved = Comparison.open(out)
    assert [(run.label, run.config.settings.rounds) for run in saved.runs] == [("FedAvg", 4), ("FedMIM (lr=0.3)", 4)]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["fedavg-seed0", "fedmim-lr-0.3-seed0"]
    lines = json.loads((out / "results.json").read_text())["methods"]
    assert [line["settings"]["lr"] for line in lines] == [0.1, 0.3]
    assert len(RunFolder.open(out / "fedavg-seed0").metrics()) == 4


FILE = """
data = "digits"
local_epochs = 3
batch_size = 7
[fedmim]
alpha = [0.4, 0.1]
lr = 0.2
"""
MADE_WITH = [
    ["--local-epochs", "3", "--rounds", "5"],  # the demo, in which each method has settings of its own
    ["--methods", "fedavg,fedmim", "--local-epochs", "3", "--lr", "0.05", "--server-lr", "0.5", "--clients", "50"],
    ["--methods", "fedavg,fedmim", "--fedmim.alpha", "0.3,0.2", "--fedmim.beta", "", "--local-steps", "4"],
    ["--methods", "fedavg(local_epochs=2),fedmim(alpha=[0.5],label='one step'),feddyn+leap(alpha=[0.3],lr=0.2)"],
    ["--methods", "fedavg,fedmim", "--config", "settings.toml"],
    ["--methods", "fedavg,fedmim", "--config", "settings.toml", "--local-epochs", "2", "--fedmim.alpha", "0.2"],
    ["--data", "digits", "--methods", "fedprox", "--seeds", "3,1", "--target", "0.5", "--clip-norm", "none"],
]


@pytest.mark.parametrize("words", MADE_WITH, ids=" ".join)
def test_a_comparison_made_with_any_flags_is_resumed_without_them(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "settings.toml").write_text(FILE)
    made, *_ = read_comparison([*words, "--out", "c10"])
    folders = run_folders(made, tmp_path / "c10")
    resumed, *_ = read_comparison(["--resume", "--out", "c10"])
    assert resumed == made
    there = existing_folders(resumed, tmp_path / "c10", resume=True)  # raises if a run has other settings
    assert [folder.path for folder in there.values()] == [folder.path for folder in folders]


def test_methods_and_seeds_that_are_given_are_added(folder):
    out = folder / "compare"
    assert main(["compare", "--resume", "--methods", "scaffold", "--seeds", "1", "--quiet", "--out", str(out)]) == 0
    saved = Comparison.open(out)
    assert [run.label for run in saved.runs] == ["FedAvg", "FedMIM (lr=0.3)", "SCAFFOLD"]
    assert saved.seeds == (0, 1)
    assert (saved.runs[2].config.problem.clients, saved.runs[2].config.settings.rounds) == (20, 2)
    assert len([path for path in out.iterdir() if path.is_dir()]) == 6


@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_cannot_change_the_bits_may_change(folder, command, tmp_path):
    out = folder / command
    words = [command, "--resume", "--rounds", "4", "--quiet", *FREE, "--data-dir", str(tmp_path), "--out", str(out)]
    assert main(words) == 0
    runs = [RunFolder.open(path.parent) for path in sorted(out.rglob("config.toml"))]
    assert runs
    for each in runs:
        execution = each.run.config.execution
        assert (execution.workers, execution.engine, execution.data_dir) == (1, "serial", str(tmp_path))
        assert [bool(record["test_accuracy"]) for record in each.metrics()] == [True, True, False, True]


def test_tune_goes_on_with_another_execution(tmp_path):
    words = ["tune", "fedavg", *SMALL[:-1], "--out", str(tmp_path)]
    assert main([*words, "--trials", "1"]) == 0
    assert main([*words, "--trials", "2", *FREE[:2], *FREE[4:], "--data-dir", str(tmp_path)]) == 0
    (search,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len((search / "trials.csv").read_text().splitlines()) == 3


def test_reproduce_goes_on_with_another_execution(tmp_path):
    grid = ["--data", "digits", "--methods", "fedavg", "--split", "iid", "--seeds", "0", "--fair", "common"]
    words = ["reproduce", "table1", *grid, *SMALL[:-1], "--out", str(tmp_path)]
    assert main(words) == 0
    (run,) = (tmp_path / "runs").iterdir()
    before = content(run)
    assert main([*words, *FREE[:2], *FREE[4:], "--data-dir", str(tmp_path)]) == 0
    assert content(run) == before


def test_a_label_none_is_a_label_and_a_new_one_is_kept(folder):
    assert main(["run", "--resume", "--label", "none", "--quiet", "--out", str(folder / "run")]) == 0
    assert tomllib.loads((folder / "run" / "config.toml").read_text())["label"] == "none"
