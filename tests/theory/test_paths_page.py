"""The interactive page of docs/pictures.md, in a browser: its paths are those of the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmim.algorithms import FedAvg, FedMIM, Leap, Scaffold
from fedmim.theory.local_paths import record_paths, two_clients

PAGE = Path(__file__).parents[2] / "docs" / "assets" / "paths.html"
METHODS = {
    "fedavg": FedAvg(),
    "scaffold": Scaffold(),
    "fedmim": FedMIM((0.5, 0.2), (0.7,)),
    "leap": Leap(FedAvg(), (0.5, 0.2), 0.7),
}
pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="not in the source distribution")


@pytest.fixture(scope="module")
def page(chromium):
    """The page; it must ask for nothing else and raise no error."""
    asked, errors = [], []
    opened = chromium.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.goto(PAGE.as_uri())
    yield opened
    opened.close()
    assert asked == [PAGE.as_uri()]
    assert errors == []


@pytest.mark.parametrize("method", METHODS)
def test_the_page_computes_the_paths_of_the_simulator(method, page):
    values = {"method": method, "alpha": [0.5, 0.2], "ahead": 0.7, "steps": 4, "lr": 0.3, "rounds": 6}
    computed = page.evaluate("values => paths(values)", values)
    run = record_paths(METHODS[method], two_clients(), steps=4, lr=0.3, rounds=6)
    np.testing.assert_allclose(computed["models"], run.models, atol=1e-12)
    np.testing.assert_allclose(computed["local"], run.local, atol=1e-12)


def test_the_page_knows_the_global_optimum(page):
    np.testing.assert_allclose(page.evaluate("OPTIMUM"), two_clients().optimum, atol=1e-12)


def test_a_slider_changes_the_drawing_and_weights_stay_below_one(page):
    before = page.inner_html("#plot")
    page.locator("input[name=alpha1]").fill("0.9")
    assert page.inner_html("#plot") != before
    weights = [float(page.locator(f"input[name={name}]").input_value()) for name in ("alpha1", "alpha2")]
    assert sum(weights) == pytest.approx(0.95)
