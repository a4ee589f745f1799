"""A method of one's own, with client state, in one file: every command and engine takes it as it stands."""

import json
from pathlib import Path

import pytest

from fedmim.cli import main

FILE = '''
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedmim import Algorithm, Local, Plan


@dataclass(frozen=True)
class Leashed(Algorithm):
    """Local SGD that starts a part of the way back to where the client ended last.

        client   x <- x - eta g, from x_t + a (x_i - x_t), where x_i is its last model

    The author, this year.
    """

    title: ClassVar[str] = "Leashed"
    client_slots: ClassVar[tuple[str, ...]] = ("offset",)

    a: float = 0.1
    """How far back."""

    def plan(self, local: Local) -> Plan:
        return Plan(start=local.down["params"] + self.a * local.slots["offset"], rate=local.lr)

    def finish(self, w, local):
        return {"params": w}, {"offset": w - local.down["params"]}
'''
SMALL = ["--rounds", "3", "--clients", "12", "--participation", "0.5", "--local-epochs", "1", "--model", "logistic"]


@pytest.fixture
def method(tmp_path, monkeypatch):
    (tmp_path / "leashed.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return "leashed.py:Leashed"


def consistency(capsys):
    return json.loads(capsys.readouterr().out)["methods"][-1]["mean"]["consistency"]


def test_every_engine_trains_it_to_the_same_models(method, capsys):
    found = []
    for engine in ("serial", "vectorised", "processes"):
        words = ["run", "--method", method, "--a", "0.2", *SMALL, "--engine", engine, "--json", "--out", engine]
        assert main(words) == 0
        found.append(consistency(capsys))
    assert found[0] == found[2] == pytest.approx(found[1], rel=1e-4)
    assert main(["run", "--method", method, "--a", "0.0", *SMALL, "--json", "--out", "other"]) == 0
    assert consistency(capsys) != pytest.approx(found[0], rel=1e-2)  # its state has a say


def test_every_command_takes_it(method, capsys):
    assert main(["methods", method]) == 0
    shown = capsys.readouterr().out
    assert "x <- x - eta g" in shown
    assert "How far back" in shown
    assert main(["compare", "--methods", f"fedavg,{method}", *SMALL, "--json", "--out", "b"]) == 0
    before = consistency(capsys)
    assert main(["compare", "--resume", "--rounds", "5", "--json", "--out", "b"]) == 0
    assert consistency(capsys) != before
    assert main(["report", "b", "-o", "page.html"]) == 0
    grid = ["--data", "digits", "--split", "iid", "--seeds", "0", "--fair", "common", "--methods", method]
    assert main(["reproduce", "table1", *grid, *SMALL, "--out", "results"]) == 0
    assert "Leashed" in Path("results/table1.md").read_text()
