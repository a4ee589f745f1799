"""The accuracy axis: what is drawn is shown, or the figure says what is cut off."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from run_folders import method_results

from fedmim.report.curves import draw_curve, finish_axes

LOOK = {"color": "black", "label": "a"}
STEEP = [0.1, 0.2, 0.85, *np.linspace(0.86, 0.95, 60)]  # in three rounds through most of the axis


def drawn_axes(*methods):
    axes = Figure().subplots()
    for method in methods:
        draw_curve(axes, method.records, "test_accuracy", LOOK)
    finish_axes(axes, [records for method in methods for records in method.records], "test_accuracy")
    return axes


def lowest(axes):
    """The lowest point of the lines and bands."""
    bands = [path.vertices[:, 1].min() for each in axes.collections for path in each.get_paths()]
    return min(*bands, *(line.get_ydata().min() for line in axes.lines))


def notes(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    "curves",
    [
        ([0.15, *np.linspace(0.22, 0.36, 19)], [0.11, *np.linspace(0.22, 0.36, 19)]),  # the first is far below
        (STEEP[:20], [0.05, *STEEP[1:20]]),  # most of the axis for two points, but they have markers
        (np.linspace(0.2, 0.9, 80), np.linspace(0.1, 0.9, 80)),  # no marker, and no steep start
    ],
)
def test_every_marker_and_band_of_a_curve_is_shown(curves):
    axes = drawn_axes(method_results("fedavg", *curves))
    low, high = axes.get_ylim()
    assert low < lowest(axes) == min(map(min, curves))
    assert high > max(map(max, curves))
    assert notes(axes) == []


def test_a_long_curve_whose_start_would_take_most_of_the_axis_is_cut_off_with_a_note():
    axes = drawn_axes(method_results("fedavg", STEEP, [0.05, *STEEP[1:]]))
    low, _ = axes.get_ylim()
    shown = np.mean(np.asarray(axes.lines[1].get_ydata()) >= low)
    assert 0.93 < shown < 1
    assert notes(axes) == [f"values below {100 * low:.0f} % are cut off"]
    assert (100 * low) == pytest.approx(round(100 * low))  # the note is exact


def test_a_reference_is_a_horizontal_line_against_bytes():
    axes = Figure().subplots()
    method = method_results("centralised", [0.5, 0.8], [0.5, 0.6], up=0, down=0)
    draw_curve(axes, method.records, "test_accuracy", LOOK, "bytes")
    (line,) = axes.lines
    assert list(line.get_ydata()) == pytest.approx([0.7, 0.7])
    assert list(line.get_xdata()) == [0, 1]  # the whole width
