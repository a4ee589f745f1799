"""Results: figures of runs, derived by hand from a few records."""

import json

import numpy as np
import pytest
from PIL import Image

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.report.plot import comparison_plot, smooth
from fedmim.report.results import Method, summarise, write_json
from fedmim.report.style import COLOURS, colour_of, styles
from fedmim.report.table import comparison_table, notes


def records_of(accuracies, consistency=0.5, refused=0):
    return [
        {
            "round": number,
            "test_accuracy": accuracy,
            "test_loss": 1.0,
            "train_loss": 1.0,
            "consistency": consistency,
            "lr": 0.1,
            "clients": [0],
            "bytes_up": 10,
            "bytes_down": 30,
            "refused": refused,
            "seconds": 0.5,
        }
        for number, accuracy in enumerate(accuracies, start=1)
    ]


def method_of(name, *runs, target=0.5, label=None, tmp_path=None):
    records = tuple(records_of(run) for run in runs)
    folders = tuple((tmp_path or __import__("pathlib").Path()) / f"{name}-seed{seed}" for seed in range(len(runs)))
    summaries = tuple(summarise(each, target) for each in records)
    run = Run.make(name, defaults("digits"), label)
    return Method(run, folders, tuple(range(len(runs))), records, summaries)


def test_a_summary_by_hand():
    summary = summarise(records_of([None, 0.2, None, 0.6, None, 0.4]), target=0.5)
    assert summary.final_accuracy == 0.4
    assert summary.last_ten_accuracy == pytest.approx(0.4)
    assert summary.best_accuracy == 0.6
    assert summary.rounds_to_target == 4
    assert summary.bytes_to_target == 4 * 40
    assert (summary.bytes_up, summary.bytes_down, summary.seconds) == (60, 180, 3.0)


def test_the_last_ten_evaluations_are_averaged_not_the_last_ten_rounds():
    accuracies = [value for number in range(20) for value in (None, number / 20)]
    assert summarise(records_of(accuracies), None).last_ten_accuracy == pytest.approx(sum(range(10, 20)) / 200)


def test_a_target_that_is_never_reached_has_no_round():
    summary = summarise(records_of([0.1, 0.2]), target=0.5)
    assert summary.rounds_to_target is None
    assert summary.bytes_to_target is None


def test_a_run_without_accuracy_or_accepted_clients_still_has_a_summary():
    summary = summarise(records_of([None, None], consistency=None, refused=3), target=0.5)
    assert summary.final_accuracy is None
    assert summary.consistency is None
    assert summary.refused == 6


def test_mean_and_deviation_over_seeds_are_those_of_the_sample():
    method = method_of("fedavg", [0.2], [0.4], [0.6])
    assert method.over_seeds("final_accuracy") == pytest.approx((0.4, 0.2))
    assert method_of("fedavg", [0.2]).over_seeds("final_accuracy") == (0.2, 0.0)
    assert method_of("fedavg", [0.2], [0.6]).over_seeds("rounds_to_target") is None


def test_the_json_holds_what_the_summaries_say(tmp_path):
    method = method_of("fedmim", [0.2, 0.6], [0.1, 0.4], tmp_path=tmp_path)
    write_json([method], 0.5, tmp_path / "results.json")
    written = json.loads((tmp_path / "results.json").read_text())
    (line,) = written["methods"]
    assert written["target"] == 0.5
    assert line["hyper_parameters"]["alpha"] == [0.6, 0.3]
    assert [run["final_accuracy"] for run in line["runs"]] == [0.6, 0.4]
    assert line["mean"]["final_accuracy"] == pytest.approx(0.5)
    assert line["mean"]["rounds_to_target"] is None
    assert line["runs"][0]["folder"] == "fedmim-seed0"


def cells(table):
    return [[str(cell) for cell in column.cells] for column in table.columns]


def test_the_table_shows_the_figures_in_their_columns():
    table = comparison_table([method_of("fedavg", [0.2, 0.4]), method_of("fedmim", [0.3, 0.8])], target=0.5)
    columns = dict(zip([str(column.header) for column in table.columns], cells(table), strict=True))
    assert columns["final"] == ["40.00", "80.00"]
    assert columns["to 50%"] == ["never", "2"]
    assert columns["seconds"] == ["1.0", "1.0"]


def test_the_table_says_how_many_seeds_never_reached_the_target_and_gives_the_spread():
    table = comparison_table([method_of("fedavg", [0.2, 0.6], [0.1, 0.4])], target=0.5)
    columns = dict(zip([str(column.header) for column in table.columns], cells(table), strict=True))
    assert columns["to 50%"] == ["1 of 2 never"]
    assert columns["final"] == ["50.00 ± 14.14"]
    assert "2 seeds" in notes(0.5, 2)


def test_refused_uploads_appear_when_there_are_any():
    method = method_of("fedavg", [0.2])
    assert "refused" not in [str(column.header) for column in comparison_table([method], None).columns]
    records = (records_of([0.2], refused=4),)
    refusing = Method(method.run, method.folders, method.seeds, records, (summarise(records[0], None),))
    table = comparison_table([refusing], None)
    assert str(table.columns[-1].header) == "refused"
    assert cells(table)[-1] == ["4"]


def test_smoothing_is_the_mean_of_a_window_that_grows_at_first_and_looks_back_at_last():
    values = np.arange(80.0) ** 2
    smoothed = smooth(values)
    assert smoothed[0] == values[0]
    assert smoothed[1] == pytest.approx(values[:3].mean())
    assert smoothed[40] == pytest.approx(values[38:43].mean())
    assert smoothed[-1] == pytest.approx(values[-3:].mean())
    assert smooth(np.array([3.0])).tolist() == [3.0]


def test_every_built_in_method_has_its_own_colour_and_variants_differ_in_dashes():
    assert len(set(COLOURS.values())) == len(COLOURS) == 9
    assert colour_of("own.py:Mine") == colour_of("own.py:Mine")
    variants = styles(["fedmim"] * 12)
    assert variants[0].colour == COLOURS["fedmim"]
    assert len({(style.colour, style.dash) for style in variants}) == 12


def test_consistency_that_is_zero_throughout_is_drawn_without_a_warning(tmp_path):
    records = (records_of([0.1, 0.2], consistency=0.0),)
    method = method_of("fedavg", [0.1])
    single = Method(method.run, method.folders, method.seeds, records, (summarise(records[0], None),))
    comparison_plot([single], "one client a round", tmp_path / "comparison.png")


def test_the_plot_is_a_picture_even_with_few_or_no_evaluations(tmp_path):
    methods = [method_of("fedavg", [None, 0.5], [None, 0.4]), method_of("fedmim", [None, None])]
    comparison_plot(methods, "a title with $ and <b>", tmp_path / "comparison.png")
    with Image.open(tmp_path / "comparison.png") as image:
        assert image.size == (1650, 690)
        assert np.asarray(image.convert("L")).std() > 5
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.png"]
