"""What the repository shows of the paper's experiments: the tables are those of the runs beside them, to the letter,
and the document quotes the tables."""

import csv
import re
from pathlib import Path

import pytest

from fedmim.experiments.search_results import read_trials
from fedmim.experiments.sweep import Sweep
from fedmim.reproduction.experiment import EXPERIMENTS, PaperExperiment
from fedmim.reproduction.layout import Layout, finished_entries
from fedmim.reproduction.plan import ReproductionPlan
from fedmim.reproduction.scale import Scale
from fedmim.reproduction.tables import write_tables

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "cpu"
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="not in the source distribution")
SHOWN = [name for name in EXPERIMENTS if (RESULTS / f"{name}.md").exists()]


def test_there_are_results():
    assert {"table1", "table3", "participation", "consistency"} <= set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_tables_are_those_of_the_committed_runs(name, tmp_path):
    experiment, scale = PaperExperiment.read(name), Scale.read("cpu")
    plan = ReproductionPlan((experiment,), scale, scale.seeds, {}, Sweep(RESULTS))
    done = finished_entries(plan.cells(), plan.sweep.archive, scale.targets)
    for path in write_tables(Layout(experiment, done), scale, tmp_path):
        assert path.read_text(encoding="utf-8") == (RESULTS / path.name).read_text(encoding="utf-8")


DOCUMENTS = [ROOT / "docs" / "reproduction.md", *sorted((ROOT / "docs" / "results").glob("*.md"))]
MEAN_AND_SPREAD = re.compile(r"\d+\.\d\d ± \d+\.\d\d")


def in_the_tables(pattern):
    """What a pattern finds in all committed tables."""
    return {found for name in SHOWN for found in pattern.findall((RESULTS / f"{name}.md").read_text(encoding="utf-8"))}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_document_quotes_the_tables(document):
    assert set(MEAN_AND_SPREAD.findall(document.read_text(encoding="utf-8"))) <= in_the_tables(MEAN_AND_SPREAD)


def test_the_documents_have_all_the_tables():
    """No page lost its numbers: how many means with a spread each quotes at least."""
    least = {"table1.md": 40, "table3.md": 18, "participation.md": 30, "ablations.md": 15}
    for name, count in least.items():
        text = (ROOT / "docs" / "results" / name).read_text(encoding="utf-8")
        assert len(MEAN_AND_SPREAD.findall(text)) >= count, name


def test_the_conclusions_fit_on_one_page():
    assert len((ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8").splitlines()) <= 90


def test_the_settings_of_the_family_are_those_that_its_searches_found():
    """Of the searches on MNIST-1D, the trials are in the repository; another number of seeds needs no search."""
    experiment, scale = PaperExperiment.read("family"), Scale.read("mnist1d")
    fitted, folder = scale.fitted(experiment), ROOT / "results" / "mnist1d"
    tuners = ReproductionPlan((fitted,), scale, scale.seeds, {}, Sweep(folder)).tuners(fitted)
    rows = list(csv.DictReader((folder / "family.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(tuners) == 270
    for row in rows:
        tuner = tuners[row["data"], row["column"], row["row"]]
        assert tuner.finished
        trials = [t for t in read_trials(tuner.folder / "trials.csv") if t["state"] == "complete"]
        best = max(trials, key=lambda trial: trial["accuracy"])
        assert best["lr"] == float(row["lr"])
        shown = dict(part.split("=") for part in row["hyper_parameters"].split("; ") if part)
        for name in tuner.search.space.keys() - {"lr"}:
            found = tuple(best[name]) if isinstance(best[name], list) else best[name]
            assert str(found) == shown[name], (row["row"], row["column"])


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
        re.findall(r"^\| ([^|]+) \| (\d+\.\d\d) \| \d+ of \d+ ", (folder / "family.md").read_text("utf-8"), re.M)
    )
    assert shown
    for name, rank in shown.items():
        places = [
            1 + sum(each > own[name] for each in others) + sum(each == own[name] for each in others) / 2
            for own in accuracy.values()
            if own.keys() >= shown.keys()  # rows and columns that were not run are not ranked
            for others in [[own[other] for other in shown if other != name]]
        ]
        assert sum(places) / len(places) == pytest.approx(float(rank), abs=0.00501), name  # shown with two digits
