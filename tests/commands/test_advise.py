"""`fedmim advise`: a method, its settings and the experiment behind them; one line for wrong values."""

import io

import pytest
from rich.console import Console

from fedmim.cli import main
from fedmim.commands.advise import show_advice
from fedmim.reproduction.advice import Wanted, advise
from fedmim.reproduction.evidence import Evidence


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
    told = "use fedmim with lr=0.25\n  0.0 points behind the best on average, in 2 of 2 settings\n"
    assert f"{told}about as good in these settings: fedavg\ntune" in shown.getvalue()


def test_every_table_has_the_advised_method_and_fedavg_and_the_best_of_the_nearest_setting_is_named():
    def rows(steps, accuracies):
        setting = ("family", "cpu", "cifar10", "x", "iid", 0.1, steps)
        return [Evidence(*setting, method, 0.1, "", accuracy, 1.0, 3) for method, accuracy in accuracies.items()]

    six = dict.fromkeys(("fedcm", "feddyn", "fedadam", "fedsam", "fednova", "fedexp"))
    near = rows(10, {name: 60.0 - place for place, name in enumerate(six)} | {"fedavg": 40.0})
    far = rows(20, {name: 50.0 - 10 * place for place, name in enumerate(six)} | {"fedmim": 52.0, "fedavg": 30.0})
    farther = rows(40, {name: 40.0 - place for place, name in enumerate(six)} | {"fedmim": 50.0})
    shown = io.StringIO()
    show_advice(advise(Wanted(0.1, "iid", 10), [*near, *far, *farther]), 100, Console(file=shown, width=200))
    tables, end = shown.getvalue().split("use fedmim with lr=0.1\n")
    methods = [[line.split()[0] for line in table.splitlines()[2:]] for table in tables.strip().split("\n\n")]
    assert methods == [
        ["fedcm", "feddyn", "fedadam", "fedsam", "fednova", "fedavg"],
        ["fedmim", "fedcm", "feddyn", "fedadam", "fedavg"],
        ["fedmim", "fedcm", "feddyn", "fedadam", "fedsam"],
    ]
    told = "  0.0 points behind the best on average, in 2 of 3 settings\n"
    assert end.startswith(f"{told}best in the nearest setting: fedcm with lr=0.1\n")


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
