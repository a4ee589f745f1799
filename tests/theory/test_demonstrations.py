"""The demonstrations find what the theorems say, at a size for tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from fedmim.theory.demonstrations import (
    DEMONSTRATIONS,
    demonstrate_bound,
    demonstrate_heterogeneity,
    demonstrate_paths,
    demonstrate_polyak,
    demonstrate_quadratics,
    demonstrate_round,
    demonstrate_speedup,
)
from fedmim.theory.demonstrations.pictures import AHEAD, ALPHA, DRAWN, LR, STEPS
from fedmim.theory.local_paths import record_paths
from fedmim.theory.plotting import fit_power_law

PAGES = [Path(__file__).parents[2] / "docs" / name for name in ("pictures.md", "theory.md")]


def done(demonstrate, path, **sizes):
    """The result, drawn, with as many rounds as were announced."""
    announced, told = [], []

    def on_start(rounds):
        announced.append(rounds)
        return lambda: told.append(None)

    result = demonstrate(on_start, **sizes)
    assert announced == [len(told)]
    result.draw(path / "figure.png")
    assert (path / "figure.png").stat().st_size > 20_000
    assert all(isinstance(line, str) for line in result.findings())
    return result


def test_a_fitted_power_law_has_the_exponent_and_the_factor_of_its_points():
    exponent, factor = fit_power_law([1, 2, 4, 8], [3 * x**-0.5 for x in (1, 2, 4, 8)])
    assert (exponent, factor) == (pytest.approx(-0.5), pytest.approx(3))


def test_no_bound_is_broken(tmp_path):
    result = done(demonstrate_bound, tmp_path, cases=3, rounds=5, curve_rounds=20)
    assert all(value <= 1 + 1e-9 for values in result.ratios.values() for value in values)
    for measured, bound in result.curves.values():
        assert (measured < bound).all()


def test_the_error_falls_as_the_root_of_s_k_t(tmp_path):
    """From S = 1 to 16; the full demonstration goes to 64 and to more rounds."""
    sizes = {"actives": (1, 4, 16), "rounds": 128, "more_rounds": (), "steps": (1, 8), "steps_rounds": 48}
    result = done(demonstrate_speedup, tmp_path, **sizes)
    exponent, _ = result.fit()
    assert exponent == pytest.approx(-0.5, abs=0.12)
    assert result.exponent_in_s() == pytest.approx(exponent)  # one T and one K
    alike, unlike = ([run.mean_error for run in runs] for runs in result.by_steps.values())
    assert alike[0] / alike[1] > 1.1 * unlike[0] / unlike[1]  # local steps pay where clients agree


def test_under_pl_the_error_falls_exponentially_to_a_floor_in_proportion_to_the_learning_rate(tmp_path):
    result = done(demonstrate_polyak, tmp_path, rounds=160, times_cap=(5.0, 12.0), actives=())
    assert result.floor_fit()[0] == pytest.approx(1, abs=0.3)
    for fall in result.by_lr:
        assert 0.9 * 2 * result.mu < fall.decay < 1.1 * 2 * 1.0  # between gradient flow's 2 mu and 2 L
        assert fall.run.at_u[0] > 30 * fall.floor


def test_the_floor_moves_as_g_squared_and_drift_as_a_squared(tmp_path):
    sizes = {"spreads": (0.5, 2.0), "rounds_with_some": 12, "rounds_with_all": 90}
    result = done(demonstrate_heterogeneity, tmp_path, **sizes)
    for exponent in result.exponents().values():
        assert exponent == pytest.approx(2, abs=0.02)
    assert result.drift_ratio("FedMIM") == pytest.approx(0.01, rel=0.1)
    assert result.drift_ratio("FedCM") == pytest.approx(0.01, rel=0.1)


def test_the_simulator_rests_where_the_analysis_says(tmp_path):
    result = done(demonstrate_quadratics, tmp_path, lrs=(0.3, 1.0), rounds=40, grid=8)
    assert result.stable["FedAvg"] > 500 * result.caps["FedAvg"]
    assert result.stable["FedMIM"] > 9 * result.stable["FedAvg"]
    own_steps = result.seen["FedAvg"][0], result.seen["FedMIM"][1]  # of the learning rates 0.3 and 0.1
    assert own_steps[0] == pytest.approx(own_steps[1] * 2.7, rel=0.2)


def test_inertia_lowers_the_bias_by_a_and_control_variates_remove_it(tmp_path):
    """Where each method converges: more rounds of the same runs come there."""
    result = done(demonstrate_paths, tmp_path)
    for name, method in DRAWN.items():
        long = record_paths(method, result.problem, STEPS, LR, rounds=120)
        assert (long.models[-1] - result.limit(name)).norm() < 1e-6
    bias = {name: result.distance(result.limit(name)) for name in DRAWN}
    assert bias["SCAFFOLD"] == 0
    assert bias["FedMIM"] == bias["FedAvg + leap"] < (1 - sum(ALPHA)) * bias["FedAvg"]


def test_the_round_that_is_shown_has_the_parts_of_the_recursion(tmp_path):
    """The leap's x_{t+1} is the mean minus ahead D, from z = x_t + (1 + ahead) D; FedMIM's is the mean, from x_t."""
    result = done(demonstrate_round, tmp_path)
    inertia = result.inertia(result.leap)
    torch.testing.assert_close(result.leap.local[-1, 0, 0], result.leap.models[-2] + (1 + AHEAD) * inertia)
    torch.testing.assert_close(result.leap.models[-1], result.leap.means[-1] - AHEAD * inertia)
    torch.testing.assert_close(result.fedmim.local[-1, :, 0], result.fedmim.models[-2].expand(2, -1))
    torch.testing.assert_close(result.fedmim.models[-1], result.fedmim.means[-1])


@pytest.mark.skipif(not PAGES[0].exists(), reason="the documentation is not part of this copy")
def test_every_figure_of_the_documentation_has_its_demonstration():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    shown = re.findall(r"\(images/theory-(\w+)\.png\)", text)
    assert shown == list(DEMONSTRATIONS)
    assert all((PAGES[0].parent / "images" / f"theory-{name}.png").exists() for name in shown)
