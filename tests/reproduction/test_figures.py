"""The paper's figures: nothing is cut off."""

from types import SimpleNamespace

import pytest

from fedmim.report.curves import legend_and_title, panel_grid
from fedmim.reproduction.experiment import ABLATIONS, OF_THE_PAPER, PaperExperiment
from fedmim.reproduction.figures import looks_of


@pytest.mark.parametrize("name", OF_THE_PAPER + ABLATIONS)
@pytest.mark.parametrize("columns", [1, 3])
def test_title_and_legend_lie_within_the_figure(name, columns):
    experiment = PaperExperiment.read(name)
    figure, grid = panel_grid(1, columns)
    for row in reversed(experiment.rows):  # a method that the first panel lacks comes late
        grid[0, 0].plot([0, 1], [0, 1], label=row.label)
    legend_and_title(figure, experiment.title, [row.label for row in experiment.rows])
    figure.canvas.draw()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [row.label for row in experiment.rows]
    for part in (legend, figure._suptitle):
        extent = part.get_window_extent()
        assert extent.x0 >= 0
        assert extent.x1 <= figure.bbox.width
        assert extent.y0 >= 0
        assert extent.y1 <= figure.bbox.height


def test_a_legend_of_two_lines_has_them_nearly_equal():
    experiment = PaperExperiment.read("participation")  # seven methods, of which six would fit the width
    figure, grid = panel_grid(1, 2)
    for row in experiment.rows:
        grid[0, 0].plot([0, 1], [0, 1], label=row.label)
    legend_and_title(figure, experiment.title, [row.label for row in experiment.rows])
    (legend,) = figure.legends
    assert legend._ncols == 4


@pytest.mark.parametrize("name", ["resnet", "decay", "table1"])
def test_no_two_lines_look_alike(name):
    """A method with a wrapper has the colour of the method alone, and other dashes."""
    rows = PaperExperiment.read(name).rows
    looks = looks_of([SimpleNamespace(cell=SimpleNamespace(row=row)) for row in rows])
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(rows)
