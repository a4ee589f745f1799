"""`fedmim advise`: a method, its settings and the experiment behind them; one line for wrong values."""

import io
import shlex

import pytest
from rich.console import Console

from fedmim.algorithms import WRAPPERS
from fedmim.cli import main
from fedmim.commands.advise import run_command, show_advice
from fedmim.commands.method_flags import WITHOUT, method_parts, method_values
from fedmim.commands.run import RunOptions
from fedmim.experiments.methods import hyper_parameters, make_method
from fedmim.flags import parse
from fedmim.reproduction.advice import Wanted, advise
from fedmim.reproduction.evidence import Evidence, load_evidence
from fedmim.simulation.settings import Settings


def test_advice_names_the_method_its_settings_and_the_evidence(capsys):
    assert main(["advise"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "dirichlet:0.1, 10 % per round" in printed
    assert "fedmim reproduce" in printed
    assert "use " in printed
    assert "note:" not in printed


def test_clients_without_state_and_other_numbers_of_clients_than_were_measured(capsys):
    assert main(["advise", "--clients", "1000", "--participation", "0.02", "--stateless"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "nothing was measured with 1000" in printed
    assert "scaffold" not in printed
    assert "feddyn" not in printed
    assert main(["advise", "--clients", "5"]) == 0
    assert "nothing was measured with 5" in " ".join(capsys.readouterr().out.split())


def test_the_method_has_its_settings_in_the_nearest_experiment_and_is_shown_with_those_level_with_it():
    def rows(steps, lr, accuracies):
        setting = ("family", "cpu", "cifar10", "x", "iid", 0.1, steps)
        return [Evidence(*setting, method, lr, "", accuracy, 1.0, 3) for method, accuracy in accuracies.items()]

    near = rows(10, 0.25, {"fedmim": 50.0, "fedavg": 49.5, "fedadam": 48.5})
    far = rows(40, 0.5, {"fedmim": 50.0, "fedavg": 49.5, "fedadam": 48.5})
    shown = io.StringIO()
    show_advice(advise(Wanted(0.1, "iid", 10), [*far, *near]), 100, Console(file=shown, width=200))
    command = "fedmim run --method fedavg --lr 0.25"
    told = f"use fedavg\n  {command}\n  0.5 points behind the best on average over these 2 settings\n"
    assert f"{told}  level with it, but not cheaper: fedmim\ntune" in shown.getvalue()


def test_every_table_has_the_advised_method_and_fedavg_and_the_best_of_the_nearest_setting_is_named():
    def rows(steps, accuracies):
        setting = ("family", "cpu", "cifar10", "x", "iid", 0.1, steps)
        return [Evidence(*setting, method, 0.1, "", accuracy, 1.0, 3) for method, accuracy in accuracies.items()]

    five = ("fedcm", "feddyn", "fedadam", "fednova", "fedexp")
    near = rows(10, dict(zip(five, (60.0, 48.0, 47.0, 46.0, 45.0), strict=True)) | {"fedmim": 44.0, "fedavg": 30.0})
    far = rows(20, {"fedmim": 52.0, "fedavg": 30.0})
    shown = io.StringIO()
    show_advice(advise(Wanted(0.1, "iid", 10), [*near, *far]), 100, Console(file=shown, width=200))
    tables, end = shown.getvalue().split("K: local steps")
    methods = [[line.split()[0] for line in table.splitlines()[2:]] for table in tables.strip().split("\n\n")]
    assert methods == [[*five, "fedmim", "fedavg"], ["fedmim", "fedavg"]]
    assert "use fedmim\n" in end
    assert "\nbest in the nearest setting: fedcm with lr=0.1\n" in end


def test_a_look_ahead_is_advised_with_a_warning():
    def shown(hyper_parameters):
        setting = ("family", "cpu", "cifar10", "x", "iid", 0.1, 10)
        file = io.StringIO()
        own = [Evidence(*setting, "fedavg+leap", 0.1, hyper_parameters, 50.0, 1.0, 3)]
        show_advice(advise(Wanted(0.1, "iid", 10), own), 100, Console(file=file, width=200))
        return file.getvalue()

    assert "compare it with leap.ahead=0" in shown("leap.alpha=(0.9,); leap.ahead=3.0")
    assert "compare it" not in shown("leap.alpha=(0.9,); leap.ahead=0.0")


def test_the_command_trains_with_the_settings_of_the_evidence():
    """Of each method and each set of hyper-parameters."""
    rows = {(each.method, each.hyper_parameters): each for each in load_evidence()}
    assert len(rows) > 100
    for each in rows.values():
        program, command, *words = shlex.split(run_command(each))
        assert (program, command) == ("fedmim", "run")
        usual, _ = make_method(each.method, {}, each.method)
        parts = {"run": RunOptions(), "settings": Settings(), **method_parts(usual)}
        flags = parse("fedmim run", "", words, parts, prefixed=WRAPPERS, without=WITHOUT)
        settings = flags.values["settings"]
        assert (flags.values["run"]["method"], settings["lr"]) == (each.method, each.lr)
        algorithm, _ = make_method(each.method, method_values(flags), each.method)
        own = {"server_lr": settings["server_lr"], **hyper_parameters(algorithm)}
        assert each.hyper_parameters == "; ".join(f"{name}={value}" for name, value in own.items() if value is not None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--participation", "0"], "participation: must be above 0"),
        (["--local-steps", "0"], "local_steps: must be a whole number of at least 1"),
        (["--local-steps", "1" + "0" * 400], "local_steps: must be a whole number of at most"),
        (["--participation", "nan"], "participation: must be above 0"),
        (["--split", "dirichlet:nan"], "split: must be iid or dirichlet:NUMBER"),
        (["--split", "natural"], "split: must be iid or dirichlet:NUMBER"),
        (["--vectors", "1"], "vectors: no method needs so few"),
    ],
)
def test_a_wrong_value_is_one_line(words, message, capsys):
    assert main(["advise", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
