"""Damaged runs: each is left out and named, and the others are shown, by `report`, `plot` and `watch` alike."""

import os
from pathlib import Path

import pytest
from run_folders import comparison, fill, record

from fedmim.cli import main
from fedmim.report.watch import Watched
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

ENTRIES = [("fedavg", None, {}), ("scaffold", None, {}), ("fedmim", None, {})]
DAMAGED = "fedavg-seed0/metrics.jsonl: line 3 is damaged"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A comparison of three methods, the records of the first damaged in the third line."""
    monkeypatch.chdir(tmp_path)
    comparison(tmp_path / "runs", ENTRIES, rounds=5)
    path = tmp_path / "runs" / "fedavg-seed0" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "garbage\n", *lines[3:]]))
    return tmp_path / "runs"


def test_the_page_shows_the_other_runs_and_names_the_damaged_one(runs, capsys):
    assert main(["report", "runs", "-o", "page.html"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("page.html: 2 runs, ")
    assert output.err.count("\n") == 1
    assert output.err.startswith("fedmim: skipped: runs/fedavg-seed0/metrics.jsonl: line 3 is damaged (not JSON")
    text = Path("page.html").read_text()
    assert DAMAGED in text
    assert 'data-label="FedMIM"' in text
    assert 'data-label="FedAvg"' not in text


def test_figures_are_drawn_of_the_other_runs(runs, capsys):
    assert main(["plot", "runs", "--y", "accuracy", "--x", "rounds", "--formats", "svg"]) == 0
    output = capsys.readouterr()
    assert output.out == "figures/accuracy-rounds.svg\n"
    assert DAMAGED in output.err


def test_where_no_run_can_be_read_there_is_no_page(runs, capsys):
    for path in runs.rglob("metrics.jsonl"):
        path.write_text("[]\n")
    assert main(["report", "runs", "-o", "new/page.html"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[3] == "fedmim: runs/fedavg-seed0: none of the runs here can be read"
    assert not Path("new").exists()


def test_a_resumed_run_names_the_damage_and_changes_nothing(runs, capsys):
    path = runs / "fedavg-seed0" / "metrics.jsonl"
    before = path.read_bytes()
    assert main(["run", "--resume", "--out", str(runs / "fedavg-seed0"), "--quiet"]) == 2
    error = capsys.readouterr().err
    assert (DAMAGED in error, error.count("\n")) == (True, 1)
    assert path.read_bytes() == before


def test_a_damaged_comparison_costs_its_order_and_target_alone(runs):
    for text in ("variants = 3", "variants = ['a']", "seeds = [[", "\0", "target = 'high'\nseeds = [0]\nvariants = []"):
        (runs / "comparison.toml").write_text(text)
        warnings = []
        folders = find_runs([runs], warnings.append)
        assert len(folders) == 3
        (warning,) = warnings
        assert "comparison.toml" in warning
        assert warning.endswith("the order and the target of the comparison are unknown")
        (group,) = group_runs(load_results(folders, warnings.append))
        assert group.target == 0.9  # the usual one of digits


def test_folders_and_files_that_cannot_be_read_are_named_and_not_waited_for(runs, capsys, monkeypatch):
    for name in ("pipe", "pipe-of-records", "closed"):
        (runs / name).mkdir()
    os.mkfifo(runs / "pipe" / "config.toml")
    (runs / "pipe-of-records" / "config.toml").write_bytes((runs / "fedmim-seed0" / "config.toml").read_bytes())
    os.mkfifo(runs / "pipe-of-records" / "metrics.jsonl")
    os.mkfifo(runs / "pipe-of-records" / "clients.json")
    (runs / "loop").symlink_to(runs)
    (runs / "scaffold-seed0" / "clients.json").unlink()
    os.mkfifo(runs / "scaffold-seed0" / "clients.json")

    def closed(path):  # permissions do not bind root, which runs tests in containers
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", closed)
    assert main(["report", "runs", "-o", "page.html"]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("page.html: 2 runs, ")
    told = output.err.replace("fedmim: skipped: runs/", "").splitlines()
    assert [line.split(":")[0] for line in told] == [
        "closed",
        "pipe",
        "fedavg-seed0/metrics.jsonl",
        "pipe-of-records/metrics.jsonl",
    ]
    text = Path("page.html").read_text()
    assert "closed: Permission denied" in text
    assert "scaffold-seed0/clients.json: is damaged" in text


def test_a_live_page_says_what_is_left_out(runs):
    watched = Watched([runs], None)
    assert DAMAGED in watched.page()
    assert DAMAGED in watched.news("a")
    whole = (runs / "fedmim-seed0" / "metrics.jsonl").read_text()
    (runs / "fedavg-seed0" / "metrics.jsonl").write_text(whole)
    news = watched.news("b")
    assert "skipped" not in news.lower()
    assert 'data-label=\\"FedAvg\\"' in news


def test_numbers_near_the_largest_make_a_page_and_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    huge = {"loss": 1.7e308, "consistency": 1.7e308, "up": 2**62, "down": 2**62, "seconds": 1e18}
    for folder in comparison(tmp_path / "runs", ENTRIES[:2], seeds=(0, 1), rounds=12):
        fill(folder, [record(t, 1.7e308 if t % 2 else -1.0, **huge) for t in range(1, 13)])
    assert main(["report", "runs", "-o", "page.html"]) == 0
    assert main(["plot", "runs", "--formats", "svg"]) == 0
