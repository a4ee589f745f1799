"""`fedmim theory` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from fedmim.cli import main
from fedmim.theory import FederationShape, Inertia, ProblemConstants, Theorem1, best_lr, largest_lr


def rows(text):
    """The table as (row, cells), for lines with three words after the name."""
    words = (line.split() for line in text.splitlines())
    return [(" ".join(parts[:-3]), parts[-3:]) for parts in words if len(parts) > 3]


def test_the_bounds_of_three_methods_stand_side_by_side(tmp_path, capsys):
    words = ["--L", 4, "--sigma", 2, "--G", 0.5, "--B", 1.5, "--gap", 3, "--C", 7, "--mu", 2, "--accuracy", 2]
    words += ["--clients", 50, "--active", 5, "--steps", 3, "--rounds", 700, "--alpha", "0.4,0.2", "--beta", "0.3"]
    assert main(["theory", *map(str, words), "--out", str(tmp_path / "b")]) == 0
    text = capsys.readouterr().out
    listed = rows(text)
    table = dict(listed)
    constants, federation = ProblemConstants(4, 2, 0.5, 1.5, 3, 7, 2), FederationShape(50, 5, 3)
    methods = [Inertia(), Inertia((0.9,)), Inertia((0.4, 0.2), (0.3,))]
    assert table["A = 1 - sum alpha"] == ["1", "0.1", "0.4"]
    assert table["rho = sum beta"] == ["0", "0", "0.3"]
    assert table["largest learning rate"] == [f"{largest_lr(constants, federation, each):.3g}" for each in methods]
    bounds = [Theorem1(constants, federation, each, best_lr(constants, federation, each, 700)) for each in methods]
    assert [f"{bound.at(700):.3g}" for bound in bounds] in [
        words for name, words in listed if name == "bound at T = 700"
    ]
    assert table["floor Psi_1"] == [f"{bound.floor:.3g}" for bound in bounds]
    assert table["inertia"] == [f"{bound.terms['inertia']:.2g}" for bound in bounds]
    assert all(name in text for name in ("FedAvg", "FedCM", "FedMIM", "rounds to 2", "under PL"))
    assert "C assumed" not in text
    assert "Placeholders" not in text
    assert (tmp_path / "b" / "theory-bounds.png").stat().st_size > 20_000


def test_constants_that_were_not_given_are_called_placeholders(tmp_path, capsys):
    assert main(["theory", "--out", str(tmp_path)]) == 0
    assert "Placeholders of 1, not measured: L, sigma, G, B and gap." in capsys.readouterr().out
    assert main(["theory", "--L", "1", "--gap", "2", "--B", "1.5", "--out", str(tmp_path)]) == 0
    assert "Placeholders of 1, not measured: sigma and G." in capsys.readouterr().out


def test_without_c_the_assumed_value_is_told(tmp_path, capsys):
    assert main(["theory", "--out", str(tmp_path)]) == 0
    assert "C is assumed to be 2.11" in capsys.readouterr().out  # 2 + 1/10 + 1/100


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--B", "0.5"], "B: must be at least 1"),
        (["--lr", "0.1"], "lr: 0.1 breaks the condition"),
        (["--lr", "0"], "lr: must be a finite number above 0"),
        (["--alpha", "0.7,0.3"], "alpha: the weights must sum to less than 1"),
        (["--beta=-0.5"], "beta: the weights must be finite and not negative"),
        (["--active", "200"], "active: must be at most the number of clients"),
        (["--rounds", "0"], "rounds: must be at least 1"),
        (["--measure", "--data", "digit"], "did you mean 'digits'"),
        (["--measure", "--weighting", "samples"], "weighting: the theorems weight all clients equally"),
        (["--measure", "--points", "1"], "points: must be at least 2"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_setting_or_the_condition(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["theory", *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith("fedmim: ")
    assert message in errors[-1]
    assert list(tmp_path.iterdir()) == []


def test_measure_prints_the_constants_with_advice_and_keeps_them(tmp_path, capsys):
    words = ["theory", "--measure", "--model", "logistic", "--rounds", "4", "--clients", "20", "--points", "3"]
    words += ["--local-steps", "3", "--curvature-clients", "4", "--alpha", "0.5", "--out", str(tmp_path)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert all(f"\n{number}. " in text for number in range(1, 7))
    assert text.index("In practice:\n1. eta = 0.1, the run's") < text.index("What Theorem 1 guarantees:\n4. eta = ")
    kept = json.loads((tmp_path / "constants.json").read_text())
    assert [point["round"] for point in kept["points"]] == [0, 2, 4]
    assert kept["points"][0]["value"] == pytest.approx(2.3, abs=0.3)  # ten classes, log 10
    assert kept["federation"] == {"clients": 20, "active": 2, "steps": 3}
    assert kept["inertia"]["alpha"] == [0.5]
    assert len(kept["advice"]) == 6
    assert f"L {kept['problem']['L']:.3g}" in text


def test_the_help_teaches_without_importing_torch():
    for words in (["theory", "--help"], ["theory", "--measure", "--help"], ["theory", "--show", "--help"]):
        code = (
            f"import sys; from fedmim.cli import main\ntry: main({words!r})\n"
            "except SystemExit as stop: sys.exit(stop.code or 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        assert "--out" in done.stdout
    assert (
        "theory"
        in subprocess.run([sys.executable, "-m", "fedmim", "--help"], capture_output=True, text=True, timeout=60).stdout
    )
