"""Charts for papers: the right files, in the right size, the same ones each time."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from run_folders import comparison, fill, record

from fedmim.errors import UserError
from fedmim.report.charts import SIZES, write_charts
from fedmim.report.curves import along, draw_curve
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results

ENTRIES = [("fedavg", None, {}), ("fedmim", "$a_1$ <b> & fast", {"lr": 0.3})]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return group_runs(
        load_results(comparison(tmp_path_factory.mktemp("figures") / "runs", ENTRIES, seeds=(0, 1), rounds=30))
    )


def test_every_chart_is_drawn_against_every_axis(runs, tmp_path):
    told = []
    write_charts(runs, tmp_path / "out", formats=["svg"], told=told.append)
    charts = [
        f"{y}-{x}"
        for y in ("accuracy", "test-loss", "train-loss", "consistency")
        for x in ("rounds", "bytes", "seconds")
    ]
    expected = {f"{chart}.svg" for chart in [*charts, "clients"]}
    assert {path.name for path in told} == expected == {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("size", SIZES)
def test_a_figure_has_the_width_of_its_column_at_300_dots_an_inch(runs, size, tmp_path):
    write_charts(runs, tmp_path, charts=["accuracy"], axes=["rounds"], formats=["png", "svg", "pdf"], size=size)
    width, height = SIZES[size]
    with Image.open(tmp_path / "accuracy-rounds.png") as image:
        assert image.size == (round(300 * width), round(300 * height))
        assert np.asarray(image.convert("L")).std() > 5
    text = (tmp_path / "accuracy-rounds.svg").read_text()
    assert f'width="{72 * width:g}pt"' in text
    assert (tmp_path / "accuracy-rounds.pdf").read_bytes().startswith(b"%PDF")
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_charts(runs, tmp_path, charts=["accuracy"], axes=["rounds"], formats=["png", "svg", "pdf"], size=size)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_several_problems_have_a_folder_each(tmp_path):
    for split in ("iid", "dirichlet:0.5"):
        comparison(tmp_path / "runs" / split[0], ENTRIES[:1], rounds=3, split=split)
    folders = group_runs(load_results(find_runs([tmp_path / "runs"], pytest.fail)))
    write_charts(folders, tmp_path / "out", charts=["accuracy"], axes=["bytes"], formats=["svg"])
    files = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.svg"))
    assert files == ["digits-dirichlet-0.5/accuracy-bytes.svg", "digits-iid/accuracy-bytes.svg"]


def test_bytes_and_seconds_along_the_axis_are_sums_from_the_start():
    records = [record(1, 0.5, up=1, down=2, seconds=0.5), record(2, 0.5, up=10, down=20, seconds=0.25)]
    assert along(records, "rounds").tolist() == [1, 2]
    assert along(records, "bytes").tolist() == [3, 33]
    assert along(records, "seconds").tolist() == [0.5, 0.75]


def test_only_runs_with_a_simulated_time_are_drawn_against_it(tmp_path):
    folders = comparison(tmp_path / "runs", [("fedavg", None, {}), ("fedmim", None, {})], rounds=3)
    fill(folders[1], [record(t, 0.1 * t) | {"simulated_time": 2.0 * t} for t in (1, 2, 3)])
    runs = load_results(folders)
    assert along(runs[1].records, "time").tolist() == [2.0, 6.0, 12.0]
    told = []
    write_charts(group_runs(runs), tmp_path / "out", charts=["accuracy"], formats=["svg"], told=told.append)
    assert [path.stem for path in told] == [f"accuracy-{axis}" for axis in ("rounds", "bytes", "seconds", "time")]
    drawn = (tmp_path / "out" / "accuracy-time.svg").read_text()
    assert "simulated time" in drawn
    figure = Figure()
    axes = figure.subplots()
    for run in runs:
        draw_curve(axes, [run.records], "test_accuracy", {"color": "red", "label": run.run.label}, "time")
    assert [line.get_xdata().tolist() for line in axes.lines] == [[2.0, 6.0, 12.0]] * 2  # raw and smoothed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"charts": ["acuracy"]}, "'accuracy'"),
        ({"axes": ["weeks"]}, "x: "),
        ({"axes": ["time"]}, "x: no run has a simulated time"),
        ({"formats": ["gif"]}, "png"),
        ({"size": "a4"}, "column"),
    ],
)
def test_a_name_that_means_nothing_is_an_error_before_anything_is_drawn(runs, options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        write_charts(runs, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
