"""Methods around methods by name: on the command line, in TOML files, in run folders and in searches."""

from __future__ import annotations

import json
import tomllib

import pytest

import fedmim
from fedmim.cli import main
from fedmim.errors import UserError
from fedmim.experiments.comparison import Comparison
from fedmim.experiments.config import defaults
from fedmim.experiments.config_file import ConfigFile
from fedmim.experiments.methods import label_all, parse_list, split_name
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.search import space_of
from fedmim.report.run_commands import commands_for
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

BOTH = "feddyn+leap(alpha=[0.3,0.2])+sharp(radius=0.05)"
SMALL = ["--rounds", "2", "--clients", "10", "--local-epochs", "1", "--quiet"]


def make(text):
    ((method, own),) = parse_list(text)
    return Run.make(method, defaults("digits") | own)


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("fedavg+leap", fedmim.Leap(fedmim.FedAvg())),
        ("feddyn + leap", fedmim.Leap(fedmim.FedDyn())),
        (BOTH, fedmim.Sharp(fedmim.Leap(fedmim.FedDyn(), (0.3, 0.2)), 0.05)),
        ("feddyn(alpha=0.2)+leap(alpha=[0.5], ahead=2)", fedmim.Leap(fedmim.FedDyn(0.2), (0.5,), 2.0)),
        ("feddyn+leap(leap.alpha=[0.5])", fedmim.Leap(fedmim.FedDyn(), (0.5,))),
        ("fedavg+sharp+leap(alpha=[0.1])", fedmim.Leap(fedmim.Sharp(fedmim.FedAvg()), (0.1,))),
    ],
)
def test_a_composition_is_written_with_plus_signs(text, algorithm):
    assert make(text).algorithm == algorithm


def test_settings_of_the_run_may_stand_in_any_brackets():
    run = make("feddyn(seed=3)+leap(alpha=[0.5], lr=0.7)+sharp(rounds=7)")
    assert run.algorithm == fedmim.Sharp(fedmim.Leap(fedmim.FedDyn(), (0.5,)))
    settings = run.config.settings
    assert (settings.seed, settings.lr, settings.rounds) == (3, 0.7, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedavg+lep", "wrapper of fedavg: 'lep' is not known; did you mean 'leap'"),
        ("fedmim+leap", "FedMIM already has inertia"),
        ("fedavg+leap+leap", r"FedAvg \+ leap already has inertia"),
        ("fedsam+sharp", "FedSAM is already sharpness-aware"),
        ("fedavg+leap(radius=1)", "'radius' is not known"),
        ("fedavg(lr=1)+leap(lr=2)", "lr is given twice for fedavg"),
        ("fedavg+", "a name is missing|not known"),
        ("+leap", "is not known|a name is missing"),
        ("leap", "'leap' is not known"),
    ],
)
def test_a_composition_that_cannot_be_is_one_line(text, message):
    with pytest.raises(UserError, match=message):
        make(text)


def test_a_plus_in_the_path_of_a_users_file_is_part_of_the_path():
    assert split_name("a+b/my+own.py:Mine+leap+sharp") == ("a+b/my+own.py:Mine", ["leap", "sharp"])
    assert split_name("a+b/my+leap.py:Mine") == ("a+b/my+leap.py:Mine", [])


def test_a_run_is_the_same_after_its_toml():
    run = make(BOTH)
    again = Run.from_toml(tomllib.loads(run.to_toml()), "here")
    assert again == run
    assert again.identity() == run.identity()
    assert run.identity() != make("feddyn+leap(alpha=[0.3,0.1])+sharp(radius=0.05)").identity()
    assert json.loads(make("feddyn+leap").identity())[:2] == ["feddyn+leap", {}]  # defaults are left out
    assert run.hyper_parameters() == {
        "alpha": 0.1,
        "leap.alpha": (0.3, 0.2),
        "leap.ahead": 0.0,
        "sharp.radius": 0.05,
    }


def test_labels_name_what_sets_a_composition_apart():
    labels = label_all(parse_list("feddyn+leap,feddyn+leap(alpha=[0.3,0.2],lr=0.2),feddyn(alpha=1)+leap(alpha=[0.5])"))
    assert labels == [
        "FedDyn + leap",
        "FedDyn + leap (alpha=[0.3,0.2], lr=0.2)",
        "FedDyn + leap (alpha=1, leap.alpha=[0.5])",
    ]


def test_a_file_has_tables_for_compositions(tmp_path):
    (tmp_path / "c.toml").write_text(
        'methods = ["fedavg+leap"]\n["fedavg+leap"]\nlr = 0.5\nleap.alpha = [0.2]\n'
        '[[variants]]\nmethod = "feddyn+leap"\nleap = {ahead = 1.0}\n'
    )
    file = ConfigFile.read(str(tmp_path / "c.toml"))
    (first, own), (second, other) = file.variants()
    assert file.values(first, None)["leap.alpha"] == [0.2]
    assert file.values(first, None)["lr"] == 0.5
    assert (first, own, second, other) == ("fedavg+leap", {}, "feddyn+leap", {"leap.ahead": 1.0})


def test_commands_train_resume_compare_and_say_how_to_repeat_a_composition(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--method", "feddyn+leap", "--leap.alpha", "0.2,0.1", "--alpha", "0.3"]
    assert main(["run", *words, *SMALL, "--out", "a"]) == 0
    assert RunFolder.open(tmp_path / "a").run.with_code().algorithm == fedmim.Leap(fedmim.FedDyn(0.3), (0.2, 0.1))
    assert main(["run", "--resume", "--rounds", "3", "--quiet", "--out", "a"]) == 0
    assert main(["run", "--resume", "--leap.alpha", "0.5", "--quiet", "--out", "a"]) == 2
    assert "leap.alpha cannot change when a run is resumed" in capsys.readouterr().err
    assert main(["compare", "--methods", f"fedavg,{BOTH}", *SMALL, "--out", "b"]) == 0
    compared = Comparison.open(tmp_path / "b")
    assert [run.algorithm for run in compared.runs] == [fedmim.FedAvg(), make(BOTH).algorithm]
    assert main(["compare", "--resume", "--methods", "scaffold+sharp", "--quiet", "--out", "b"]) == 0
    assert main(["report", "a", "b", "-o", "page.html"]) == 0
    (group,) = group_runs(load_results(find_runs([tmp_path / "b"], pytest.fail)))
    (command,) = commands_for(group)
    assert f"fedavg,{BOTH},scaffold+sharp" in command


def test_a_search_is_over_the_method_and_what_is_around_it():
    assert {"lr", "alpha", "leap.alpha", "leap.ahead", "sharp.radius"} == set(space_of("feddyn+leap+sharp", set()))
    assert {"lr", "leap.alpha", "leap.ahead"} == set(space_of("feddyn+leap", {"alpha"}))


def test_the_list_of_methods_has_all_of_them_and_what_they_cost(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["methods"]) == 0
    lines = {line.split()[0]: line.split()[-4:] for line in capsys.readouterr().out.splitlines() if line.split()}
    assert lines["fedmim"] == ["1", "2d", "d", "-"]
    assert lines["scaffold"] == ["1", "2d", "d", "d"]
    assert lines["fedsmoo"] == ["2", "2d", "2d", "2d"]
    assert lines["NAME+leap"] == ["same"] * 4
    assert main(["methods", "feddyn+leap"]) == 0
    shown = capsys.readouterr().out
    assert "x <- x - eta (g - h_i" in shown
    assert "+leap, with options --leap.NAME" in shown
    assert "--ahead" in shown
    assert main(["methods", "fedmim+leap"]) == 2
