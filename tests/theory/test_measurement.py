"""The estimators give the constants of problems for which they are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import classification
from torch.nn.utils import parameters_to_vector

import fedmim
from fedmim.errors import UserError
from fedmim.theory import FederationShape, Inertia, Theorem1
from fedmim.theory.measurement import MeasuredConstants, MeasuredPoint, Objective, measure
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic import NonConvexProblem
from fedmim.theory.synthetic_runs import RecordingMethod, plain_settings

SETTINGS = plain_settings(FederationShape(8, 4, 4), lr=0.2, rounds=20)
VECTORISED = fedmim.Execution(engine="vectorised")
INERTIA = Inertia((0.6, 0.3), (0.9, 0.1))


def test_on_quadratics_all_constants_are_found():
    problem = QuadraticProblem.draw(clients=8, dimension=3)
    found = measure(problem.task(), SETTINGS, INERTIA, points=3, iterations=30)
    last = fedmim.simulate(fedmim.FedMIM(), problem.task(), SETTINGS).params
    assert [point.round for point in found.points] == [0, 10, 20]
    assert 0.98 < found.L / problem.smoothness <= 1 + 1e-12
    assert found.sigma == 0
    assert found.points[0].value == pytest.approx(float(problem.value(problem.start)))
    assert found.points[-1].value == pytest.approx(float(problem.value(last)))
    assert found.points[-1].gradient == pytest.approx(float(problem.gradient(last).square().sum()))
    local = problem.gradients(last.expand(8, -1))
    assert found.points[-1].local_gradients == pytest.approx(float(local.square().sum(1).mean()))
    drift = torch.einsum("nij,nj->i", problem.curvatures, local) / 8
    assert found.drift == pytest.approx(float(drift.norm()))
    assert found.federation == FederationShape(8, 4, 4)
    for b in (1.2, 2.0):
        assert found.heterogeneity(b) <= problem.heterogeneity(b)


def test_c_is_the_largest_mean_gradient_of_a_round():
    """Against the gradients that a recording method records; noise included, at a falling learning rate."""
    task = NonConvexProblem.draw(clients=6, sigma=1.0).task()
    settings = replace(SETTINGS, lr_decay=0.9, rounds=8)
    method = RecordingMethod(fedmim.FedMIM(INERTIA.alpha, INERTIA.beta))
    fedmim.simulate(method, task, settings, VECTORISED)
    means = torch.stack(method.taken).unflatten(0, (8, 4)).mean((1, 2))
    found = measure(task, settings, INERTIA, VECTORISED, points=2, clients=1, iterations=1)
    assert found.C / float(means.square().sum(1).max()) == pytest.approx(1, rel=1e-9)


@pytest.mark.parametrize(("batch", "tolerance"), [(1, 1e-9), (5, 0.2)])
def test_sigma_is_the_variance_of_a_minibatch_drawn_without_replacement(batch, tolerance):
    """s^2 / b (n - b) / (n - 1), from each sample's own gradient; with b = 1 an epoch has them all."""
    task = classification(sizes=(20,) * 40)
    objective = Objective(task)
    w = parameters_to_vector(task.model.parameters()).detach()
    expected = 0.0
    for client in range(40):
        single = torch.stack([objective.minibatch_gradient(w, client, torch.tensor([n])) for n in range(20)])
        spread = float((single - single.mean(0)).square().sum(1).mean())
        expected += spread / batch * (20 - batch) / 19 / 40
    settings = replace(SETTINGS, batch_size=batch, rounds=1, lr=1e-6)
    found = measure(task, settings, Inertia(), points=2, clients=40, iterations=1)
    assert found.points[0].noise == pytest.approx(expected, rel=tolerance)


def test_weight_decay_is_part_of_the_function():
    task = classification(sizes=(7, 5))
    w = parameters_to_vector(task.model.parameters()).detach()
    plain, decayed = Objective(task), Objective(task, weight_decay=0.3)
    (value, gradient), (more, steeper) = (each.value_and_gradient(w, 0) for each in (plain, decayed))
    assert more == pytest.approx(value + 0.15 * float(w @ w))
    torch.testing.assert_close(steeper, gradient + 0.3 * w)
    v = torch.ones_like(w)
    torch.testing.assert_close(decayed.curve(w, 1, v), plain.curve(w, 1, v) + 0.3 * v)


def test_the_curvature_is_that_of_finite_differences_on_a_network():
    task = classification(sizes=(9, 4))
    objective = Objective(task)
    w = parameters_to_vector(task.model.parameters()).detach()
    v = torch.randn(w.shape, generator=torch.Generator().manual_seed(0), dtype=w.dtype)
    ahead, behind = (objective.value_and_gradient(w + step * v, 0)[1] for step in (1e-5, -1e-5))
    torch.testing.assert_close(objective.curve(w, 0, v), (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-8)
    hessian = torch.stack([objective.curve(w, 0, row) for row in torch.eye(len(w), dtype=w.dtype)])
    largest = float(torch.linalg.eigvalsh(hessian).abs().max())
    found = objective.sharpness(w, 0, 300, torch.Generator().manual_seed(1))
    assert found == pytest.approx(largest, rel=1e-3)


def test_large_clients_are_taken_in_parts_to_the_same_result(monkeypatch):
    task = classification(sizes=(23,))
    w = parameters_to_vector(task.model.parameters()).detach()
    whole = Objective(task).value_and_gradient(w, 0), Objective(task).curve(w, 0, w)
    monkeypatch.setattr("fedmim.theory.measurement.SAMPLES_AT_ONCE", 7)
    parts = Objective(task).value_and_gradient(w, 0), Objective(task).curve(w, 0, w)
    assert parts[0][0] == pytest.approx(whole[0][0])
    torch.testing.assert_close(parts[0][1], whole[0][1])
    torch.testing.assert_close(parts[1], whole[1])


def measured(*pairs):
    """Points with these (||grad f||^2, mean ||grad f_i||^2)."""
    points = tuple(MeasuredPoint(i, 1.0 + i, a, m, 0.5, 2.0, 0.3) for i, (a, m) in enumerate(pairs))
    return MeasuredConstants(points, C=1.0, drift=0.1, federation=FederationShape(10, 5, 2), lr=0.1)


def test_g_covers_every_point_for_every_b_and_the_choices_are_where_the_deciding_point_changes():
    found = measured((4.0, 10.0), (1.0, 5.0), (0.1, 3.0))
    assert found.heterogeneity(1.0) == pytest.approx(6**0.5)
    assert found.heterogeneity(2.0) == pytest.approx(2.6**0.5)  # max(-6, 1, 2.6)
    assert found.heterogeneity(30**0.5) == 0
    squares = [b**2 for b in found.choices_of_b()]
    assert squares == pytest.approx(sorted({1.0, 10 / 4, 5.0, 30.0, 5 / 3, 7 / 3.9, 2 / 0.9}))
    for b in found.choices_of_b():
        assert all(p.local_gradients <= found.heterogeneity(b) ** 2 + b**2 * p.gradient + 1e-9 for p in found.points)


def test_equal_clients_have_no_g_and_b_of_one():
    found = measured((4.0, 4.0), (1.0, 1.0))
    assert found.choices_of_b() == [1.0]
    assert found.heterogeneity(1.0) == 0


def test_the_lowest_value_is_zero_unless_the_run_went_below():
    found = measured((4.0, 10.0), (1.0, 5.0))
    assert (found.lowest, found.gap) == (0.0, 1.0)
    assert found.mu == pytest.approx(1 / (2 * 2.0))  # min(4 / 2, 1 / 4)
    below = replace(found, points=(*found.points, replace(found.points[0], value=-3.0)))
    assert (below.lowest, below.gap, below.mu) == (-3.0, 4.0, None)


def test_the_constants_go_straight_into_the_theorem():
    found = measured((4.0, 10.0), (1.0, 5.0))
    constants = found.constants(1.5)
    assert (constants.L, constants.B, constants.C) == (2.0, 1.5, 1.0)
    assert Theorem1(constants, found.federation, INERTIA, 1e-3).at(10) > 0


def test_what_cannot_be_measured_is_an_error():
    task = NonConvexProblem.draw(clients=3).task()
    with pytest.raises(UserError, match="weighting: the theorems weight all clients equally"):
        measure(task, replace(SETTINGS, weighting="samples"), Inertia())
    with pytest.raises(UserError, match="points: must be at least 2"):
        measure(task, SETTINGS, Inertia(), points=1)


class Halves(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, left, right):
        return self.model(torch.cat([left, right], dim=1))


def test_structured_inputs_have_the_objective_of_one_tensor():
    plain = classification(sizes=(20, 9))
    pairs = [((x[:, :1], x[:, 1:]), y) for x, y in plain.clients]
    one, other = Objective(plain), Objective(replace(plain, model=Halves(plain.model), clients=pairs, test=pairs[0]))
    w = parameters_to_vector(plain.model.parameters()).detach()
    for client in range(2):
        value, gradient = one.value_and_gradient(w, client)
        other_value, other_gradient = other.value_and_gradient(w, client)
        assert value == pytest.approx(other_value, rel=1e-14)
        torch.testing.assert_close(gradient, other_gradient, rtol=1e-13, atol=1e-14)
        index = torch.tensor([3, 1])
        found = [each.minibatch_gradient(w, client, index) for each in (one, other)]
        torch.testing.assert_close(*found, rtol=1e-13, atol=1e-14)
