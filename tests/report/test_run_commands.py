"""The commands on the page make the same runs again: they are parsed as the command line does."""

import shlex
from dataclasses import replace

import pytest
from run_folders import comparison, fill, record

from fedmim.algorithms import PAPER
from fedmim.commands.compare import compare_command
from fedmim.commands.run import run
from fedmim.experiments.config import defaults
from fedmim.experiments.config_file import DEMO, ConfigFile, new_comparison
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.report.run_commands import commands_for
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

OWN = """
from dataclasses import dataclass
from fedmim import Algorithm

@dataclass(frozen=True)
class Mine(Algorithm):
    title = "Mine"
    factor: float = 0.5
"""


class AskedError(Exception):
    """What a command line asks for."""


@pytest.fixture
def asked(monkeypatch):
    """Parse a command: the runs it would make, one for each seed."""

    def existing_folders(comparison, path, resume):
        raise AskedError([run for _, run in comparison.jobs()])

    def create(path, run):
        raise AskedError([run])

    def parse(command):
        program, name, *words = shlex.split(command)
        assert program == "fedmim"
        with monkeypatch.context() as patch:
            patch.setattr("fedmim.commands.compare.existing_folders", existing_folders)
            patch.setattr(RunFolder, "create", create)
            patch.setattr("fedmim.commands.run.check_runs", lambda *_: None)
            with pytest.raises(AskedError) as stop:
                {"compare": compare_command, "run": run}[name](words)
        return stop.value.args[0]

    return parse


def made(folder, parse):
    (group,) = group_runs(load_results(find_runs([folder], pytest.fail)))
    return [run for command in commands_for(group) for run in parse(command)], commands_for(group)


def same(runs, folders):
    """The same runs, whatever their order and, unless it can be written, their label."""
    bare = [replace(run.replace(data_dir=None), label="") for run in runs]
    others = [replace(folder.run.replace(data_dir=None), label="") for folder in folders]
    key = str
    return sorted(bare, key=key) == sorted(others, key=key)


ENTRIES = [
    ("fedavg", None, {}),
    ("fedavg", "fast", {"lr": 0.3, "clip_norm": "none"}),
    ("fedmim", "FedMIM (alpha=[0.9], beta=[])", {"alpha": [0.9], "beta": []}),
    ("feddyn", "it's, really", {"alpha": 1e-05, "local_steps": 7}),
    ("fedadam", None, {"server_lr": 0.05}),
]


def test_a_comparison_is_one_command_that_gives_the_same_runs(tmp_path, asked):
    common = {"split": "pathological:2", "clients": 7, "batch_size": "none", "augment": False, "data_dir": "/somewhere"}
    folders = comparison(tmp_path / "a", ENTRIES, seeds=(3, 5), rounds=4, target=0.77, **common)
    runs, lines = made(tmp_path / "a", asked)
    assert len(lines) == 1
    assert "--target 0.77" in lines[0]
    assert "somewhere" not in lines[0]
    assert same(runs, folders)
    assert [run.label for run in runs[:3]] == ["FedAvg", "fast", "FedMIM (alpha=[0.9], beta=[])"]


def test_the_demo_is_made_by_its_own_short_command(tmp_path, asked):
    file = ConfigFile.read(str(DEMO))
    demo = new_comparison(file, file.variants(), {}, {}, (0, 1), None)
    for name, each in demo.jobs():
        fill(RunFolder.create(tmp_path / "a" / name, each), [record(1, 0.5)])
    runs, lines = made(tmp_path / "a", asked)
    assert lines == ["fedmim compare --seeds 0,1"]
    assert sorted(map(str, runs)) == sorted(str(each) for _, each in demo.jobs())


def test_the_papers_methods_at_one_learning_rate_need_no_list(tmp_path, asked):
    folders = comparison(tmp_path / "a", [(name, None, {}) for name in PAPER], rounds=200, target=0.9)
    runs, lines = made(tmp_path / "a", asked)
    assert lines == ["fedmim compare --data digits"]
    assert same(runs, folders)


def test_a_single_run_is_made_by_run(tmp_path, asked):
    values = defaults("cifar10") | {"rounds": 2, "lr": 1.0, "alpha": [0.5, 0.2], "history": "catch-up", "seed": 4}
    folder = RunFolder.create(tmp_path / "a", Run.make("fedmim", values, 'it\'s "mine" (really)'))
    fill(folder, [record(1, 0.5), record(2, 0.6)])
    runs, lines = made(tmp_path / "a", asked)
    assert lines[0].startswith("fedmim run --method fedmim --data cifar10")
    assert runs == [folder.run]


def test_labels_that_cannot_be_written_in_a_list_fall_back_to_single_runs(tmp_path, asked):
    folders = comparison(tmp_path / "a", [("fedavg", "a (1)", {}), ("fedavg", "a (2)", {})], rounds=2)
    runs, lines = made(tmp_path / "a", asked)
    assert len(lines) == 2
    assert sorted(map(str, runs)) == sorted(str(folder.run) for folder in folders)


def test_methods_with_different_seeds_have_a_command_for_each_set_of_seeds(tmp_path, asked):
    folders = comparison(tmp_path / "a", [("fedavg", None, {}), ("fedmim", None, {})], seeds=(0, 1), rounds=2)
    folders += comparison(tmp_path / "b", [("scaffold", None, {})], rounds=2)
    runs, lines = made(tmp_path, asked)
    assert len(lines) == 2
    assert same(runs, folders)


def test_a_users_own_method_is_named_by_its_file(tmp_path, asked):
    (tmp_path / "own.py").write_text(OWN)
    own = f"{tmp_path / 'own.py'}:Mine"
    folders = comparison(tmp_path / "a", [("fedavg", None, {}), (own, None, {"factor": 0.25})], rounds=2)
    runs, _ = made(tmp_path / "a", asked)
    assert same(runs, folders)
