"""The picture that a comparison ends with, and the smoothing of its curves."""

import numpy as np
import pytest
from PIL import Image
from run_folders import method_results

from fedmim.report.comparison_plot import comparison_plot
from fedmim.report.curves import smooth


def test_smoothing_is_the_mean_of_a_window_that_grows_at_first_and_looks_back_at_last():
    values = np.arange(80.0) ** 2
    smoothed = smooth(values)
    assert smoothed[0] == values[0]
    assert smoothed[1] == pytest.approx(values[:3].mean())
    assert smoothed[40] == pytest.approx(values[38:43].mean())
    assert smoothed[-1] == pytest.approx(values[-3:].mean())
    assert smooth(np.array([3.0])).tolist() == [3.0]


def test_consistency_that_is_zero_throughout_is_drawn_without_a_warning(tmp_path):
    method = method_results("fedavg", [0.1, 0.2], consistency=0.0)
    comparison_plot([method], "one client per round", tmp_path / "comparison.png")


def test_the_plot_is_a_picture_even_with_few_or_no_evaluations(tmp_path):
    methods = [method_results("fedavg", [None, 0.5], [None, 0.4]), method_results("fedmim", [None, None])]
    comparison_plot(methods, "a title with $ and <b>", tmp_path / "comparison.png")
    with Image.open(tmp_path / "comparison.png") as image:
        assert image.size == (1650, 690)
        assert np.asarray(image.convert("L")).std() > 5
    assert [path.name for path in tmp_path.iterdir()] == ["comparison.png"]
