"""The synthetic problems have the constants that they claim."""

from __future__ import annotations

import pytest
import torch

from fedmim.models import FlatModel
from fedmim.theory import FederationShape, Inertia
from fedmim.theory.quadratics import QuadraticProblem
from fedmim.theory.synthetic import NonConvexProblem
from fedmim.theory.synthetic_runs import run_fedmim

KINDS = [QuadraticProblem, NonConvexProblem]


def points(problem, count=200, scale=3.0):
    generator = torch.Generator().manual_seed(7)
    return scale * torch.randn(count, len(problem.start), generator=generator, dtype=torch.float64)


def client_gradients(problem, x):
    """At points that all clients share, (M, N, d)."""
    return problem.gradients(x.unsqueeze(1).expand(-1, problem.clients, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_that_the_simulator_sees(kind):
    problem = kind.draw(clients=5)
    task = problem.task()
    model = FlatModel(task.model, task.loss)
    for x in points(problem, 3):
        seen = [model.loss_and_gradient(x.clone(), *task.samples(client)) for client in range(5)]
        torch.testing.assert_close(problem.values(x), torch.stack([loss for loss, _ in seen]))
        torch.testing.assert_close(client_gradients(problem, x[None])[0], torch.stack([g for _, g in seen]))
        torch.testing.assert_close(problem.gradient(x), torch.stack([g for _, g in seen]).mean(0))


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_points_break_the_smoothness_and_some_nearly_reach_it(kind):
    problem = kind.draw(clients=5)
    x = points(problem, 300, 1.0)
    step = 1e-3 * points(problem, 300, 1.0).roll(1, 0)
    change = client_gradients(problem, x + step) - client_gradients(problem, x)
    stretch = change.norm(dim=-1) / step.norm(dim=-1)[:, None]
    assert 0.8 * problem.smoothness < stretch.max() <= problem.smoothness * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_no_point_is_below_the_lowest_value(kind):
    problem = kind.draw(clients=5)
    x = points(problem, 5000, 1.0)
    assert problem.value(x).min() > problem.lowest
    low = x[problem.value(x).argmin()].clone()
    for _ in range(3000):
        low -= 0.5 * problem.gradient(low)
    assert float(problem.value(low)) == pytest.approx(problem.lowest, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("extra", [1.05, 2.0])
def test_the_dissimilarity_holds_everywhere_and_nearly_with_equality_somewhere(kind, extra):
    problem = kind.draw(clients=8)
    b = extra * getattr(problem, "least_b", 1.0)
    g2 = problem.heterogeneity(b) ** 2

    def room(x):
        return g2 + b**2 * problem.gradient(x).square().sum(-1) - client_gradients(problem, x).square().sum(-1).mean(-1)

    spread = points(problem, 5000, 2.0)
    assert room(spread).min() >= 0
    x = spread[room(spread).argmin()].clone().requires_grad_()
    optimiser = torch.optim.LBFGS([x], max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = room(x[None])[0]
        loss.backward()
        return loss

    optimiser.step(closure)
    least = float(room(x.detach()[None]))
    assert -1e-9 <= least < (1e-6 if kind is QuadraticProblem else 0.2) * g2


@pytest.mark.parametrize("kind", KINDS)
def test_the_noise_of_a_gradient_has_no_mean_and_the_variance_it_should(kind):
    problem = kind.draw(clients=8, sigma=3.0)
    run = run_fedmim(problem, FederationShape(8, 8, 10), Inertia((0.5,), (0.5,)), 1e-3, rounds=30, record=True)
    clean = torch.stack([problem.gradients(at, who) for at, who in zip(run.points, run.clients, strict=True)])
    noise = run.taken - clean  # (30, 10, 8, d)
    draws = noise[..., 0].numel()
    assert float(noise.square().sum(-1).mean()) == pytest.approx(9.0, rel=5 * (2 / (4 * draws)) ** 0.5)
    assert float(noise.mean((0, 1, 2)).norm()) < 5 * 3 / draws**0.5
    after, before = noise[:, 1:], noise[:, :-1]
    assert float((after * before).sum(-1).mean().abs()) < 5 * 4.5 / draws**0.5  # each step draws anew
