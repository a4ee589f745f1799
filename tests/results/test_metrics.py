"""Metrics of runs, derived by hand from a few records; every table has its columns from the registry."""

import csv
import io
import json

import pytest
from run_folders import comparison, record

from fedmim.report.page import write_page
from fedmim.report.terminal_table import comparison_table, notes
from fedmim.report.verdict import verdict
from fedmim.reproduction.experiment import PaperExperiment
from fedmim.reproduction.layout import Layout, TableEntry
from fedmim.reproduction.plan import cells
from fedmim.reproduction.scale import Scale
from fedmim.reproduction.tables import comma_separated
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.method_results import by_label
from fedmim.results.metrics import METRICS, Metric, columns, summarise
from fedmim.results.results_json import as_json


def records_of(accuracies, **fields):
    return [record(number, accuracy, **fields) for number, accuracy in enumerate(accuracies, start=1)]


def test_a_summary_by_hand():
    summary = summarise(records_of([None, 0.2, None, 0.6, 0.5, 0.4]), target=0.5)
    assert summary["final_accuracy"] == 0.4
    assert summary["last_ten_accuracy"] == pytest.approx(0.45)  # of rounds 5 and 6, the last third
    assert summary["last_ten_evaluations"] == 2
    assert summary["best_accuracy"] == 0.6
    assert summary["rounds_to_target"] == 4
    assert summary["bytes_to_target"] == 4 * 40
    assert (summary["bytes_up"], summary["bytes_down"], summary["seconds"]) == (60, 180, 3.0)
    assert summary["simulated_time"] is summary["simulated_time_to_target"] is None


def test_simulated_time_is_summed_until_the_target():
    records = [each | {"simulated_time": 1.5} for each in records_of([None, 0.2, None, 0.6, 0.5, 0.4])]
    summary = summarise(records, target=0.5)
    assert (summary["simulated_time"], summary["simulated_time_to_target"]) == (9.0, 6.0)
    assert summarise(records, target=0.7)["simulated_time_to_target"] is None


@pytest.mark.parametrize(
    ("rounds", "every", "averaged"),
    [
        (150, 1, range(141, 151)),  # ten evaluations are ten rounds
        (100, 2, range(82, 101, 2)),  # the last ten evaluations, not the last ten rounds
        (300, 10, range(210, 301, 10)),  # ten evaluations fill the last third
        (150, 10, range(110, 151, 10)),  # the last ten evaluations would start at round 60
        (20, 10, [20]),  # the other evaluation is that of a model trained half as long
        (12, 1, range(9, 13)),
        (2, 1, [2]),
    ],
)
def test_the_accuracy_is_a_mean_of_the_last_ten_evaluations_but_of_none_before_the_last_third(rounds, every, averaged):
    accuracies = [number / 1000 if number % every == 0 else None for number in range(1, rounds + 1)]
    summary = summarise(records_of(accuracies), None)
    assert summary["last_ten_accuracy"] == pytest.approx(sum(averaged) / len(averaged) / 1000)
    assert summary["last_ten_evaluations"] == len(averaged)


def test_a_run_in_progress_without_a_late_evaluation_has_its_last_one():
    summary = summarise(records_of([0.1, None, None, None, None, None, None]), None)
    assert (summary["last_ten_accuracy"], summary["last_ten_evaluations"]) == (0.1, 1)
    assert summarise(records_of([None]), None)["last_ten_evaluations"] is None


def results_of(tmp_path, *rounds):
    """Methods that are evaluated every round, with these numbers of rounds."""
    lines = []
    for number, count in enumerate(rounds):
        folders = comparison(tmp_path / str(number), [("fedavg", f"m{number}", {})], rounds=count)
        lines += by_label(load_results(folders), None)
    return lines


def headings(methods):
    return [str(each.header) for each in comparison_table(methods, None).columns]


def test_tables_say_how_many_evaluations_a_mean_is_of(tmp_path):
    ten = results_of(tmp_path / "ten", 40)
    assert "last 10" in headings(ten)
    assert "last 10: test accuracy in %, mean over the last ten evaluations." in notes(ten, None)
    four = results_of(tmp_path / "four", 12)
    assert "last 4" in headings(four)
    assert "mean over the last 4 evaluations (at most ten, and none before the last third" in notes(four, None)
    assert "mean over the last evaluation (" in notes(results_of(tmp_path / "one", 2), None)
    assert "averaged" not in headings(ten) + headings(four)


def test_a_table_of_means_of_different_numbers_of_evaluations_has_a_column_for_them(tmp_path):
    mixed = results_of(tmp_path, 12, 40)
    assert "last 4 to 10" in headings(mixed)
    (column,) = [each for each in comparison_table(mixed, None).columns if each.header == "averaged"]
    assert [str(cell) for cell in column.cells] == ["4", "10"]
    assert [run["last_ten_evaluations"] for line in as_json(mixed, None)["methods"] for run in line["runs"]] == [4, 10]


def test_a_target_that_is_never_reached_has_no_round():
    summary = summarise(records_of([0.1, 0.2]), target=0.5)
    assert summary["rounds_to_target"] is None
    assert summary["bytes_to_target"] is None


def test_a_run_without_accuracy_or_accepted_clients_still_has_a_summary():
    summary = summarise(records_of([None, None], consistency=None, refused=3), target=0.5)
    assert summary["final_accuracy"] is None
    assert summary["consistency"] is None
    assert summary["refused"] == 6


def test_a_new_entry_of_the_registry_is_a_column_on_the_terminal_on_the_page_in_json_and_in_the_papers_csv(
    tmp_path, monkeypatch
):
    metric = Metric(
        "seconds_per_round",
        lambda records, _: sum(each["seconds"] for each in records) / len(records),
        heading="s per round",
        card="Fastest rounds",
        meaning="mean time of a round",
        form="{:.3f}",
    )
    monkeypatch.setitem(METRICS, metric.name, metric)
    runs = load_results(
        comparison(tmp_path, [("fedavg", None, {})], seeds=(0, 1), rounds=4)
    )  # 0.25 s and 0.26 s a round
    (method,) = by_label(runs, 0.5)

    (column,) = [each for each in comparison_table([method], 0.5).columns if each.header == "s per round"]
    assert [str(cell) for cell in column.cells] == ["0.255"]
    assert "s per round: mean time of a round." in notes([method], 0.5)

    groups = group_runs(runs, 0.5)
    write_page(groups, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert '<th class="number" title="mean time of a round">S\u00a0per\u00a0round</th>' in page
    assert ">0.250</td>" in page
    assert ">0.260</td>" in page
    assert ("Fastest rounds", "0.255") in [(card.heading, card.figure) for card in verdict(groups[0])]

    (line,) = json.loads(json.dumps(as_json([method], 0.5)))["methods"]
    assert line["mean"][metric.name] == pytest.approx(0.255)
    assert [run[metric.name] for run in line["runs"]] == pytest.approx([0.25, 0.26])

    experiment = PaperExperiment.read("consistency")
    cell = next(cell for cell in cells(experiment, Scale.read("cpu"), {}, (0, 1), {}) if cell.runs)
    (row,) = csv.DictReader(io.StringIO(comma_separated(Layout(experiment, [TableEntry(cell, method, ())]))))
    assert float(row[metric.name]) == pytest.approx(0.255)
    assert float(row[f"{metric.name}_std"]) == pytest.approx(0.00707107)


def test_the_figures_of_the_clients_are_those_of_the_last_evaluation_and_shown_only_if_there_are_any():
    found = {"clients_mean": 0.5, "clients_worst": 0.25, "clients_std": 0.0, "personal_mean": 0.75}
    plain = [record(t, 0.6) for t in (1, 2, 3)]
    evaluated = [plain[0] | dict.fromkeys(found, 0.1), plain[1] | found, plain[2]]
    with_clients, without = summarise(evaluated, None), summarise(plain, None)
    assert {name: with_clients[name] for name in found} == found
    assert {name: without[name] for name in found} == dict.fromkeys(found)
    headings = list(columns("terminal", [with_clients, without], None).values())
    assert headings[3:7] == ["clients", "worst tenth", "std", "personal"]  # also if one of them is zero
    assert not set(headings[3:7]) & set(columns("terminal", [without], None).values())
