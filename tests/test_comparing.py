"""fedmim.compare and fedmim.tune: the commands for methods and tasks in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedmim
from fedmim.cli import main
from fedmim.errors import UserError
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sources import forget_data

SETTINGS = fedmim.Settings(rounds=3, participation=0.5, batch_size=5)


@dataclass(frozen=True)
class Mine(fedmim.FedAvg):
    """A method that is in no file of the user's."""

    title: ClassVar[str] = "Mine"

    mu: float = 0.5


class Unpicklable:
    """An input transform that cannot be sent to another process."""

    def __reduce__(self):
        raise TypeError("cannot pickle a lock")

    def __call__(self, x):
        return x


def make_task(first=0.0, **options):
    torch.manual_seed(0)
    clients = [(torch.randn(10 + i, 3), torch.arange(10 + i) % 2) for i in range(6)]
    clients[0][0][0, 0] += first
    return fedmim.Task(nn.Linear(3, 2), clients, test=(torch.randn(20, 3), torch.arange(20) % 2), **options)


def compare(*args, **options):
    return fedmim.compare(*args, **{"progress": False, "jobs": 1} | options)


def test_each_run_is_that_of_simulate(tmp_path):
    own = replace(SETTINGS, lr=0.2)
    found = compare([fedmim.FedAvg(), (Mine(mu=0.1), own)], make_task(), SETTINGS, seeds=(0, 1), out=tmp_path / "out")
    assert [(run.run.label, run.seed) for run in found.runs] == [
        ("FedAvg", 0),
        ("Mine (mu=0.1, lr=0.2)", 0),
        ("FedAvg", 1),
        ("Mine (mu=0.1, lr=0.2)", 1),
    ]
    for run, algorithm, settings in zip(
        found.runs, [fedmim.FedAvg(), Mine(mu=0.1)] * 2, [SETTINGS, own] * 2, strict=True
    ):
        expected = fedmim.simulate(algorithm, make_task(), replace(settings, seed=run.seed))
        assert [each["test_accuracy"] for each in run.records] == [each.test_accuracy for each in expected.history]
        assert [each["consistency"] for each in run.records] == [each.consistency for each in expected.history]


def test_the_results_print_as_a_table_and_in_a_notebook(tmp_path):
    found = compare({"one": fedmim.FedAvg(), "<two>": fedmim.FedMIM()}, make_task(), SETTINGS, out=tmp_path / "out")
    final = [f"{100 * run.records[-1]['test_accuracy']:.2f}" for run in found.runs]
    lines = str(found).splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["one", final[0]], ["<two>", final[1]]]
    assert repr(found) == str(found)
    assert f"<tr><td>&lt;two&gt;</td><td>{final[1]}</td>" in found._repr_html_()
    assert [each.label for each in found.results] == ["one", "<two>"]
    assert found.summary()["final_accuracy"].tolist() == [run.records[-1]["test_accuracy"] for run in found.runs]


def test_the_parts_of_the_results_print_in_one_line_each(tmp_path):
    found = compare([fedmim.FedAvg()], make_task(), SETTINGS, seeds=(0, 4), out=tmp_path / "out")
    assert repr(found.results) == "[MethodResults(FedAvg, seeds 0, 4)]"
    assert repr(found.runs[1]) == f"RunResult(FedAvg, seed 4, 3 records, {tmp_path / 'out' / 'fedavg-seed4'})"
    assert repr(found.runs[1].records) == "<3 records>"


def test_the_commands_read_the_folder_but_cannot_resume_it(tmp_path, capsys):
    out = tmp_path / "out"
    compare([fedmim.FedAvg(), Mine()], make_task(), SETTINGS, out=out)
    assert {"comparison.toml", "results.json", "report.html", "comparison.png"} <= {each.name for each in out.iterdir()}
    assert main(["report", str(out), "--out", str(tmp_path / "page.html")]) == 0
    assert main(["plot", str(out), "--out", str(tmp_path / "plot.png")]) == 0
    assert set(fedmim.load_runs(out)["clients"]) == {6}
    capsys.readouterr()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for words in (["compare", "--out", str(out)], ["run", "--out", str(out / "mine-seed0")]):
        assert main([*words, "--resume", "--rounds", "9"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "was given in Python" in line
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_resumed_comparison_gives_the_same_bits_and_keeps_finished_runs(tmp_path):
    methods, longer = [fedmim.FedAvg(), Mine()], replace(SETTINGS, rounds=5)
    whole = compare(methods, make_task(), longer, seeds=(0, 1), out=tmp_path / "whole")
    compare(methods[:1], make_task(), SETTINGS, out=tmp_path / "part", resume=True)  # nothing is there yet
    again = compare(methods, make_task(), longer, seeds=(0, 1), out=tmp_path / "part", resume=True)
    for ours, theirs in zip(again.runs, whole.runs, strict=True):
        assert (ours.path / "model.safetensors").read_bytes() == (theirs.path / "model.safetensors").read_bytes()
    times = [path.stat().st_mtime_ns for path in sorted((tmp_path / "part").rglob("model.safetensors"))]
    compare(methods, make_task(), longer, seeds=(0, 1), out=tmp_path / "part", resume=True)
    assert times == [path.stat().st_mtime_ns for path in sorted((tmp_path / "part").rglob("model.safetensors"))]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"task": make_task(first=1e-3)}, "the task (its data or its model's initial weights) cannot change"),
        ({"settings": replace(SETTINGS, lr=0.3)}, "lr cannot change"),
        ({"methods": [fedmim.FedMIM()]}, "its comparison also has FedAvg"),
        ({"seeds": (1,)}, "its comparison also has seed 0"),
        ({"resume": False}, "already holds results; use resume=True"),
    ],
)
def test_another_comparison_is_not_resumed(change, problem, tmp_path):
    usual = {"methods": [fedmim.FedAvg()], "task": make_task(), "settings": SETTINGS, "out": tmp_path / "out"}
    compare(**usual)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UserError) as raised:
        compare(**usual | {"resume": True} | change)
    assert problem in str(raised.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("methods", "problem"),
    [
        ([], "methods: give at least one"),
        (["fedavg"], "each must be an Algorithm, or (Algorithm, Settings), got 'fedavg'"),
        ([fedmim.FedAvg(), fedmim.FedAvg()], "two have the same label"),
        ({1: fedmim.FedAvg()}, "a label must be a string, got 1"),
        (fedmim.FedAvg(), "methods: must be a list of algorithms, or a dict of labels and algorithms, got FedAvg()"),
        ("fedavg", "methods: must be a list of algorithms, or a dict of labels and algorithms, got 'fedavg'"),
    ],
)
def test_wrong_methods_are_rejected(methods, problem, tmp_path):
    with pytest.raises(UserError) as raised:
        compare(methods, make_task(), SETTINGS, out=tmp_path / "out")
    assert problem in str(raised.value)
    assert not (tmp_path / "out").exists()


TASK = "task: must be a fedmim.Task, got Linear Linear("
NO_SETTINGS = "settings: must be fedmim.Settings(...), got dict {'rounds': 3}"
NO_EXECUTION = "execution: must be fedmim.Execution(...), got Settings Settings("


@pytest.mark.parametrize(
    ("function", "wrong", "problem"),
    [
        (fedmim.compare, {"task": nn.Linear(3, 2)}, TASK),
        (fedmim.compare, {"settings": {"rounds": 3}}, NO_SETTINGS),
        (fedmim.compare, {"execution": SETTINGS}, NO_EXECUTION),
        (fedmim.compare, {"seeds": 3}, "seeds: must be a list of whole numbers, as in seeds=(0, 1, 2), got 3"),
        (fedmim.compare, {"seeds": [0.5]}, "seeds: must be a list of whole numbers"),
        (fedmim.tune, {"task": nn.Linear(3, 2)}, TASK),
        (fedmim.tune, {"settings": {"rounds": 3}}, NO_SETTINGS),
        (fedmim.tune, {"execution": SETTINGS}, NO_EXECUTION),
        (fedmim.tune, {"method": "fedavg"}, "method: must be a method such as fedmim.FedAvg(), got str 'fedavg'"),
        (
            fedmim.tune,
            {"method": fedmim.FedAvg},
            "method: must be a method such as fedmim.FedAvg(), got the class FedAvg",
        ),
        (fedmim.tune, {"space": {"lr": (0.1, 1.0)}}, "space: lr: must be a dict such as"),
        (fedmim.simulate, {"task": nn.Linear(3, 2)}, TASK),
        (fedmim.simulate, {"settings": {"rounds": 3}}, NO_SETTINGS),
        (fedmim.simulate, {"execution": SETTINGS}, NO_EXECUTION),
        (fedmim.simulate, {"algorithm": fedmim.FedAvg}, "algorithm: must be a method such as fedmim.FedAvg(), got the"),
    ],
)
def test_an_argument_of_another_type_is_told_in_one_line(function, wrong, problem, tmp_path):
    out = tmp_path / "out"
    method = {
        fedmim.compare: {"methods": [fedmim.FedAvg()], "out": out},
        fedmim.tune: {"method": fedmim.FedAvg(), "out": out},
        fedmim.simulate: {"algorithm": fedmim.FedAvg()},
    }
    with pytest.raises(UserError) as raised:
        function(**{"task": make_task(), "settings": SETTINGS} | method[function] | wrong)
    assert str(raised.value).startswith(problem)
    assert "\n" not in str(raised.value)
    assert not out.exists()


def test_seeds_may_be_numbers_of_numpy():
    assert [run.seed for run in compare([fedmim.FedAvg()], make_task(), SETTINGS, seeds=np.arange(2)).runs] == [0, 1]


def test_jobs_get_the_task_and_the_method(tmp_path):
    one, two = (
        compare([Mine(), fedmim.FedMIM()], make_task(), SETTINGS, jobs=jobs, out=tmp_path / str(jobs))
        for jobs in (1, 2)
    )
    for ours, theirs in zip(one.runs, two.runs, strict=True):
        assert (ours.path / "model.safetensors").read_bytes() == (theirs.path / "model.safetensors").read_bytes()


def test_a_task_that_cannot_be_sent_says_so(capsys):
    task = make_task(prepare=Unpicklable())
    with pytest.raises(UserError, match="2 failed"):
        compare([fedmim.FedAvg(), fedmim.FedMIM()], task, SETTINGS, jobs=2)
    assert "cannot be sent to another process (cannot pickle a lock)" in capsys.readouterr().err
    assert len(compare([fedmim.FedAvg()], task, SETTINGS).runs) == 1


def test_without_a_folder_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path)
    found = compare([fedmim.FedAvg()], make_task(), replace(SETTINGS, seed=3))
    assert found.runs[0].seed == 3
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="needs the folder of the comparison"):
        found.summary()


def tune(*args, **options):
    return fedmim.tune(*args, **{"progress": False, "trials": 3} | options)


def test_tune_finds_the_best_trial_and_resumes(tmp_path):
    space = {"lr": {"low": 0.01, "high": 1.0, "log": True}, "mu": {"choices": [0.5, 0.1]}}
    whole = tune(Mine(), make_task(), SETTINGS, space=space, out=tmp_path / "whole")
    assert [each["trial"] for each in whole.trials] == [1, 2, 3]
    assert (whole.trials[0]["lr"], whole.trials[0]["mu"]) == (SETTINGS.lr, 0.5)
    best = max(whole.trials, key=lambda each: (each["state"] == "complete", each["accuracy"], -each["trial"]))
    assert whole.accuracy == best["accuracy"]
    assert whole.values == {"lr": best["lr"], "mu": best["mu"]}
    assert whole.algorithm == Mine(mu=best["mu"])
    assert whole.settings == replace(SETTINGS, lr=best["lr"])
    tune(Mine(), make_task(), SETTINGS, space=space, trials=2, out=tmp_path / "part")
    forget_data()
    again = tune(Mine(), make_task(), SETTINGS, space=space, out=tmp_path / "part")
    assert again == replace(whole, folder=tmp_path / "part")


def test_tune_does_not_see_the_test_data():
    task = make_task()
    other = replace(task, test=(task.test[0], 1 - task.test[1]))
    ours, theirs = (tune(fedmim.FedAvg(), each, SETTINGS) for each in (task, other))
    assert ours == theirs


def test_tune_rejects_other_tasks_and_tasks_without_accuracy(tmp_path):
    tune(fedmim.FedAvg(), make_task(), SETTINGS, trials=1, out=tmp_path / "out")
    with pytest.raises(UserError, match="contains a different search"):
        tune(fedmim.FedAvg(), make_task(first=1.0), SETTINGS, trials=1, out=tmp_path / "out")
    x = torch.randn(20, 3)
    task = fedmim.Task(nn.Linear(3, 1), [(x, x[:, :1])] * 3, (x, x[:, :1]), loss=nn.functional.mse_loss)
    with pytest.raises(UserError, match="tune: this task has no accuracy to optimise"):
        tune(fedmim.FedAvg(), task, SETTINGS, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="space: setting"):
        tune(fedmim.FedAvg(), make_task(), SETTINGS, space={"nothing": {"high": 1.0}})


def test_the_folder_records_the_task_by_its_content(tmp_path):
    compare([fedmim.FedAvg()], make_task(), SETTINGS, out=tmp_path / "out")
    problem = Comparison.open(tmp_path / "out").runs[0].config.problem
    saved = RunFolder.open(tmp_path / "out" / "fedavg-seed0").run.config.problem
    assert problem == saved
    assert problem.data.startswith("task:")
    assert (problem.split, problem.clients, problem.model) == ("natural", 6, "Linear")


def test_the_results_of_a_search_print_as_the_best_values_and_in_a_notebook_as_the_best_trials():
    ended = [("complete", 0.25), ("pruned", 0.75), ("complete", 0.5), ("fail", None)]
    rows = [
        {"trial": number, "state": state, "rounds": 3, "accuracy": accuracy, "lr": 0.1 * number}
        for number, (state, accuracy) in enumerate(ended, start=1)
    ]
    found = fedmim.TuneResults(fedmim.FedAvg(), SETTINGS, 0.5, {"lr": 0.3}, rows, None)
    assert repr(found) == "TuneResults(FedAvg, lr=0.3: accuracy 50.00 % on held-out data, best of 4 trials)"
    places = [found._repr_html_().index(f"<tr><td>{number}</td>") for number in (3, 1, 2, 4)]
    assert places == sorted(places)
    assert "<td>50.00 %</td>" in found._repr_html_()
