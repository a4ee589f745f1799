"""Run folders may be anybody's: reading them runs none of the code they name."""

import json
from pathlib import Path

import pytest

from fedmim.cli import main
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

OWN = """
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from fedmim import Algorithm

Path(__file__).with_suffix(".ran").touch()

@dataclass(frozen=True)
class Mine(Algorithm):
    title: ClassVar[str] = "My method"
    factor: float = 0.5
    steps: tuple[float, ...] = (0.1, 0.2)
    loud: bool = True
"""
SMALL = ["--rounds", "2", "--clients", "10", "--local-epochs", "1", "--model", "logistic", "--quiet"]


@pytest.fixture
def foreign(tmp_path, monkeypatch):
    """A comparison with a method of one's own, of which the file then changes hands."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    methods = "fedavg,own.py:Mine(factor=0.25),own.py:Mine+leap(alpha=[0.5])"
    assert main(["compare", "--methods", methods, *SMALL, "--out", "b"]) == 0
    evil = tmp_path / "evil.py"
    evil.write_text(OWN)
    for path in [*Path("b").rglob("*.toml")]:
        path.write_text(path.read_text().replace(str(tmp_path / "own.py"), str(evil)))
    return tmp_path


def test_report_plot_and_watch_run_no_code_of_a_folder(foreign):
    assert main(["report", "b", "-o", "page.html"]) == 0
    assert "My method" in Path("page.html").read_text()
    assert main(["plot", "b", "--y", "accuracy", "--x", "rounds", "--out", "figures"]) == 0
    from fedmim.report.watch import Watched

    assert "My method" in Watched([Path("b")], None).page()
    assert not Path("evil.ran").exists()


def test_what_a_folder_tells_of_a_method_is_shown(foreign):
    (group,) = group_runs(load_results(find_runs([Path("b")], pytest.fail)))
    run, leap = [run.run for run in group.runs if run.run.method != "fedavg"]
    assert run.hyper_parameters() == {"factor": 0.25, "steps": [0.1, 0.2], "loud": True}
    assert run.label == "My method (factor=0.25)"
    assert leap.hyper_parameters()["leap.alpha"] == [0.5]
    assert leap.label == "My method + leap (alpha=[0.5])"


def test_training_goes_on_with_the_code(foreign, capsys):
    assert main(["compare", "--resume", "--rounds", "3", "--json", "--out", "b"]) == 0
    assert Path("evil.ran").exists()
    lines = json.loads(capsys.readouterr().out)["methods"]
    assert lines[1]["hyper_parameters"] == {"factor": 0.25, "steps": [0.1, 0.2], "loud": True}
    for run in [path.parent for path in Path("b").rglob("config.toml") if "my-method" in str(path)]:
        assert main(["run", "--resume", "--rounds", "4", "--quiet", "--out", str(run)]) == 0
