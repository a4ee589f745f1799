"""The user's own model and data, file.py:Name, in every command."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fedmim
from fedmim.cli import main
from fedmim.experiments.config import Config, Problem, defaults
from fedmim.experiments.own_code import OwnCode
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sources import forget_data

NET = """
from math import prod
from torch import nn

class Net(nn.Sequential):  # the built-in mlp
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(prod(input_shape), 64), nn.ReLU(), nn.Linear(64, classes))

def broken(input_shape): raise ValueError("no\\nluck")
def needs(width): ...
def wrong(): return 3
constant = 3
"""
TASK = """
import numpy as np
import torch
from torch import nn
import fedmim

def make_task(seed):
    sizes = [8 + i for i in range(6)]
    clients = [(torch.randn(n, 3) + seed, torch.from_numpy(np.random.randint(0, 2, n))) for n in sizes]
    return fedmim.Task(nn.Linear(3, 2), clients, test=(torch.randn(20, 3), torch.arange(20) % 2))

def regression():
    x = torch.randn(20, 3)
    return fedmim.Task(nn.Linear(3, 1), [(x, x[:, :1])] * 4, (x, x[:, :1]), loss=nn.functional.mse_loss)

class Lock:
    def __reduce__(self): raise TypeError("cannot pickle a lock")
    def __call__(self, x): return x

def unpicklable():
    x, y = torch.randn(20, 3), torch.arange(20) % 2
    return fedmim.Task(nn.Linear(3, 2), [(x, y)] * 4, (x, y), prepare=Lock())

def broken(): raise ValueError("no\\nluck")
def invalid(): return fedmim.Task(nn.Linear(3, 1), [], None)
def needs(path): ...
def wrong(): return 3
"""
QUICK = ["--rounds", "2", "--participation", "0.5", "--quiet"]


@pytest.fixture(autouse=True)
def own_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    Path("task.py").write_text(TASK)


def content(folder):
    """The numbers and the model of a run, without times."""
    records = [{k: v for k, v in each.items() if k != "seconds"} for each in RunFolder.open(folder).metrics()]
    return records, (folder / "model.safetensors").read_bytes()


def failing(words, capsys):
    """The one line of a command that fails."""
    capsys.readouterr()
    assert main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1].startswith("fedmim: ")
    return lines[-1]


def test_an_own_model_that_is_the_built_in_one_gives_the_same_bits(tmp_path):
    common = ["--data", "digits", "--clients", "10", "--seed", "3", *QUICK]
    assert main(["run", "--model", "net.py:Net", "--out", "own", *common]) == 0
    assert main(["run", "--model", "mlp", "--out", "built-in", *common]) == 0
    assert content(Path("own")) == content(Path("built-in"))


def test_the_seed_determines_weights_and_data_and_the_global_states_stay():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    made = {seed: Config.of(defaults("task.py:make_task") | {"seed": seed}, "test").task() for seed in (0, 1)}
    assert torch.equal(torch.rand(1), expected)
    torch.manual_seed(1)
    first = torch.randn(8, 3) + 1
    assert torch.equal(made[1].clients[0][0], first)
    assert not torch.equal(made[0].model.weight, made[1].model.weight)


@pytest.mark.parametrize("own", [["--data", "task.py:make_task"], ["--model", "net.py:Net", "--data", "digits"]])
def test_a_run_with_own_code_resumes_from_any_folder_to_the_same_bits(own, tmp_path, monkeypatch):
    assert main(["run", *own, *QUICK, "--rounds", "4", "--out", "whole"]) == 0
    assert main(["run", *own, *QUICK, "--out", "part"]) == 0
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert main(["run", "--resume", "--out", "../part", "--rounds", "4", "--quiet"]) == 0
    assert content(Path("../part")) == content(Path("../whole"))


@pytest.mark.parametrize("name", ["data", "model"])
def test_a_file_that_has_changed_is_rejected_and_nothing_is_written(name, capsys, tmp_path):
    own = {"data": ["--data", "task.py:make_task"], "model": ["--model", "net.py:Net", "--data", "digits"]}[name]
    file = Path({"data": "task.py", "model": "net.py"}[name])
    assert main(["compare", "--methods", "fedavg", *own, *QUICK, "--out", "out"]) == 0
    assert main(["run", *own, *QUICK, "--out", "run"]) == 0
    file.write_text(file.read_text() + "\n# another comment\n")
    forget_data()  # as in another process
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    more = ["--resume", "--rounds", "3", "--quiet", "--out"]
    for words in (["run", *more, "run"], ["compare", *more, "out"]):
        assert f"{name}: {file.resolve()} has changed" in failing(words, capsys)
    line = failing(["run", *more, "run", own[0], own[1]], capsys)
    assert f"{name} (the content of {file.resolve()}) cannot change" in line
    locks = (".lock", "net.cpython", "task.cpython")
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert {path: each for path, each in after.items() if not any(part in str(path) for part in locks)} == {
        path: each for path, each in before.items() if not any(part in str(path) for part in locks)
    }


def test_identity_and_name_contain_the_content_of_the_file():
    def run():
        return Run.make("fedavg", defaults("task.py:make_task"))

    before, same = run(), run()
    Path("task.py").write_text(TASK + "\n")
    assert before.identity() == same.identity() != run().identity()
    assert before.name() != run().name()
    assert before.name().startswith("task.py-make-task-natural-fedavg-seed0-")


def test_what_only_reads_results_does_not_import_the_file(capsys):
    words = ["--methods", "fedavg,fedmim", "--data", "task.py:make_task", *QUICK, "--out", "out"]
    assert main(["compare", *words]) == 0
    Path("task.py").write_text("open('imported', 'w')")
    forget_data()  # as in another process
    capsys.readouterr()
    assert main(["report", "out", "--out", "page.html"]) == 0
    assert main(["plot", "out", "--out", "plot.png"]) == 0
    assert "task.py:make_task" in Path("page.html").read_text()
    assert set(fedmim.load_runs("out")["data"].str.partition("#")[0]) == {f"{Path('task.py').resolve()}:make_task"}
    assert "task.py has changed" in failing(["compare", "--resume", "--out", "out", "--rounds", "3"], capsys)
    assert not Path("imported").exists()
    Path("task.py").unlink()
    assert len(fedmim.load_summary("out")) == 2
    assert "task.py is not a file" in failing(["compare", "--resume", "--out", "out", "--rounds", "3"], capsys)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--data", "nothing.py:make_task"], "nothing.py is not a file"),
        (["--data", "task.py:nothing"], "task.py has no class or function named 'nothing'"),
        (["--data", "task.py:wrong"], "data: task.py:wrong must return a fedmim.Task, got int"),
        (["--data", "task.py:broken"], "data: task.py:broken raised ValueError: no luck"),
        (["--data", "task.py:invalid"], "data: task.py:invalid: clients: must not be empty"),
        (["--data", "task.py:needs"], "data: task.py:needs: needs the argument 'path'; it can only take seed"),
        (["--data", "task.py:make_task", "--clients", "5"], "clients: does not apply to task.py:make_task"),
        (["--data", "task.py:make_task", "--split", "iid"], "split: does not apply to task.py:make_task"),
        (["--data", "task.py:make_task", "--model", "mlp"], "model: does not apply to task.py:make_task"),
        (["--data", "task.py:make_task", "--no-augment"], "augment: does not apply to task.py:make_task"),
        (["--model", "nothing.py:Net"], "nothing.py is not a file"),
        (["--model", "net.py:nothing"], "net.py has no class or function named 'nothing'"),
        (["--model", "net.py:constant"], "net.py has no class or function named 'constant'"),
        (["--model", "net.py:wrong"], "model: net.py:wrong must return a torch.nn.Module, got int"),
        (["--model", "net.py:broken"], "model: net.py:broken raised ValueError: no luck"),
        (["--model", "net.py:needs"], "needs the argument 'width'; it can only take input_shape, classes, tokens"),
        (["--model", "syntax.py:Net"], "cannot be imported (SyntaxError"),
        (["--model", "exits.py:Net"], "cannot be imported (SystemExit: 2)"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_trace(flags, problem, capsys):
    Path("syntax.py").write_text("class")
    Path("exits.py").write_text("raise SystemExit(2)")
    for command in (["run"], ["compare", "--methods", "fedavg"]):
        assert problem in failing([*command, "--out", "out", *QUICK, *flags], capsys)
        assert not Path("out").exists()


def test_jobs_give_the_same_bits_with_own_code():
    both = ["--data", "task.py:make_task"], ["--model", "net.py:Net", "--data", "digits"]
    for own, name in zip(both, ("data", "model"), strict=True):
        for jobs in ("1", "2"):
            words = ["--methods", "fedavg", "--seeds", "0,1", *own, *QUICK]
            assert main(["compare", *words, "--jobs", jobs, "--out", f"{name}{jobs}"]) == 0
        for seed in (0, 1):
            folders = [Path(f"{name}{jobs}") / f"fedavg-seed{seed}" for jobs in (1, 2)]
            assert content(folders[0]) == content(folders[1])


def test_reproduce_takes_own_data_and_an_own_model(capsys):
    words = ["reproduce", "table2", "--columns", "E = 5", "--methods", "fedavg", "--fair", "common", "--seeds", "0"]
    words += ["--rounds", "2", "--participation", "0.5", "--jobs", "1"]
    assert main([*words, "--data", "task.py:make_task", "--out", "data"]) == 0
    assert main([*words, "--data", "digits", "--model", "net.py:Net", "--clients", "4", "--out", "model"]) == 0
    for out in ("data", "model"):
        assert "| FedAvg |" in Path(out, "table2.md").read_text()
        (folder,) = Path(out, "runs").glob("*/config.toml")
        assert {"data": "task.py:make_task#", "model": "net.py:Net#"}[out] in folder.read_text()
    words[words.index("common")] = "own"
    line = failing([*words, "--data", "task.py:make_task", "--clients", "3", "--out", "x"], capsys)
    assert "search for FedAvg: clients: does not apply to task.py:make_task" in line


def test_a_task_that_cannot_be_sent_to_jobs_is_one_line(capsys):
    words = ["compare", "--methods", "fedavg,fedmim", "--data", "task.py:unpicklable", *QUICK]
    assert main([*words, "--jobs", "2", "--out", "two"]) == 2
    assert (
        "jobs: cannot be sent to another process (cannot pickle a lock); use --jobs 1 (in Python: jobs=1)"
        in capsys.readouterr().err
    )
    assert main([*words, "--jobs", "1", "--out", "one"]) == 0


def test_own_data_can_be_tuned_on_held_out_samples_but_needs_an_accuracy(capsys):
    words = ["tune", "fedavg", "--rounds", "2", "--trials", "2", "--jobs", "1", "--data"]
    assert main([*words, "task.py:make_task"]) == 0
    assert "task.py:make_task#" in capsys.readouterr().out
    line = failing([*words, "task.py:regression", "--out", "none"], capsys)
    assert "tune: this task has no accuracy to optimise" in line
    assert not Path("none").exists()


def test_theory_measures_own_code():
    words = ["theory", "--measure", "--rounds", "2", "--points", "2", "--out"]
    assert main([*words, "data", "--data", "task.py:make_task"]) == 0
    assert main([*words, "model", "--model", "net.py:Net"]) == 0
    assert "net.py:Net#" in Path("model/constants.json").read_text()


def test_a_file_is_imported_again_after_it_changed():
    problem = Problem(data="digits", clients=10, model="net.py:Net")
    wide = problem.task().model[1]
    Path("net.py").write_text(NET.replace("64", "32"))
    forget_data()
    assert (wide.out_features, problem.task().model[1].out_features) == (64, 32)


def test_only_names_of_python_files_are_own_code():
    for name in ("mnist1d", "synthetic:1,1", "tensors:data.safetensors", "task.py", "task:12", "file.py:"):
        assert OwnCode.named(name) is None
    assert OwnCode.named("a/b.py:f#0123456789abcdef") == OwnCode(Path("a/b.py"), "f", "0123456789abcdef")
    assert defaults("folder:images.py:old")["split"] == "dirichlet:0.1"
