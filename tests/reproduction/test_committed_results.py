"""What the repository shows of the paper's experiments: the tables are those of the runs beside them, to the letter,
and the document quotes the tables."""

import csv
import re
from pathlib import Path

import pytest

from fedmim.experiments.sweep import Sweep
from fedmim.reproduction.experiment import ABLATIONS, OF_THE_PAPER, PaperExperiment
from fedmim.reproduction.layout import Layout, finished_entries
from fedmim.reproduction.plan import ReproductionPlan
from fedmim.reproduction.scale import Scale
from fedmim.reproduction.tables import write_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "cpu"
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="not in the source distribution")
SHOWN = [name for name in OF_THE_PAPER + ABLATIONS if (RESULTS / f"{name}.md").exists()]


def test_there_are_results():
    assert {"table1", "table3", "participation", "consistency"} <= set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_tables_are_those_of_the_committed_runs(name, tmp_path):
    experiment, scale = PaperExperiment.read(name), Scale.read("cpu")
    plan = ReproductionPlan((experiment,), scale, scale.seeds, {}, Sweep(RESULTS))
    done = finished_entries(plan.cells(), plan.sweep.archive, scale.targets)
    for path in write_tables(Layout(experiment, done), scale, tmp_path):
        assert path.read_text(encoding="utf-8") == (RESULTS / path.name).read_text(encoding="utf-8")


def test_the_document_quotes_the_tables():
    number = re.compile(r"\d+\.\d\d ± \d+\.\d\d")
    tables = {found for name in SHOWN for found in number.findall((RESULTS / f"{name}.md").read_text(encoding="utf-8"))}
    quoted = set(number.findall((ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")))
    assert len(quoted) > 50
    assert quoted <= tables


@pytest.mark.parametrize("scale", ["cpu", "mnist1d"])
def test_the_ranks_of_the_family_are_those_of_its_accuracies(scale):
    """Counted again, naively, from the accuracy of each seed; the runs themselves are not in the repository."""
    folder = ROOT / "results" / scale
    if not (folder / "family.md").exists():
        assert scale == "cpu"
        return
    accuracy: dict[tuple[str, ...], dict[str, float]] = {}
    for row in csv.DictReader((folder / "family-seeds.csv").read_text(encoding="utf-8").splitlines()):
        block = accuracy.setdefault((row["data"], row["column"], row["seed"]), {})
        block[row["row"]] = float(row["accuracy"] or 0)
    shown = dict(
        re.findall(r"^\| (.+?) \| (\d+\.\d\d) \| \d+ of \d+ ", (folder / "family.md").read_text("utf-8"), re.M)
    )
    assert shown
    for name, rank in shown.items():
        places = [
            1 + sum(each > own[name] for each in others) + sum(each == own[name] for each in others) / 2
            for own in accuracy.values()
            for others in [[own[other] for other in shown if other != name]]
        ]
        assert sum(places) / len(places) == pytest.approx(float(rank), abs=0.005), name
