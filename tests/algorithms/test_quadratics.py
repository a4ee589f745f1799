"""On heterogeneous quadratics the limits are known: the common optimum, or FedAvg's bias in closed form."""

from __future__ import annotations

import pytest
import torch
from problems import Quadratics, quadratic_settings

import fedmim

PROBLEM = Quadratics.draw(clients=10, dimension=3, seed=1)


def distance_to_optimum(algorithm, **settings):
    params = fedmim.simulate(algorithm, PROBLEM.task(), quadratic_settings(**settings)).params
    return (params - PROBLEM.optimum).norm().item()


def test_the_optimum_of_the_helper_has_no_gradient():
    apart = PROBLEM.optimum - PROBLEM.optima
    gradient = torch.einsum("nij,nj->i", PROBLEM.curvatures, apart)
    assert gradient.norm() < 1e-12
    assert (PROBLEM.optima - PROBLEM.optimum).norm(dim=1).min() > 0.1  # no client's optimum is the common one


@pytest.mark.parametrize("seed", [0, 1])
def test_scaffold_reaches_the_optimum_at_partial_participation(seed):
    assert distance_to_optimum(fedmim.Scaffold(), participation=0.3, rounds=350, seed=seed) < 1e-8


@pytest.mark.parametrize("seed", [0, 1])
def test_feddyn_reaches_the_optimum_at_partial_participation(seed):
    assert distance_to_optimum(fedmim.FedDyn(alpha=1.0), participation=0.3, rounds=600, seed=seed) < 1e-8


def test_fedavg_does_not_reach_the_optimum_at_partial_participation():
    assert distance_to_optimum(fedmim.FedAvg(), participation=0.3, rounds=350) > 1e-2


def contractions(steps, lr):
    """I - (I - eta H_i)^K for each client."""
    identity = torch.eye(3, dtype=torch.float64)
    return identity - torch.linalg.matrix_power(identity - lr * PROBLEM.curvatures, steps)


@pytest.mark.parametrize("steps", [1, 5, 20])
def test_fedavg_stops_at_the_biased_point_of_the_closed_form(steps):
    pulls = contractions(steps, 0.1)
    expected = torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, PROBLEM.optima))
    settings = quadratic_settings(participation=1.0, rounds=300, local_steps=steps)
    reached = fedmim.simulate(fedmim.FedAvg(), PROBLEM.task(), settings).params
    torch.testing.assert_close(reached, expected, rtol=1e-12, atol=1e-12)
    bias = (reached - PROBLEM.optimum).norm()
    assert bias < 1e-10 if steps == 1 else bias > 1e-2  # one step is gradient descent, which has none


def test_fedavg_weighted_by_samples_stops_where_those_weights_say():
    counts = torch.arange(1, 11)
    task = PROBLEM.task()
    clients = [(x.repeat(n, 1, 1), y.repeat(n)) for (x, y), n in zip(task.clients, counts.tolist(), strict=True)]
    task = fedmim.Task(task.model, clients, task.test, task.loss)
    pulls = contractions(5, 0.1) * counts[:, None, None]
    expected = torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, PROBLEM.optima))
    settings = quadratic_settings(participation=1.0, rounds=300, weighting="samples")
    torch.testing.assert_close(fedmim.simulate(fedmim.FedAvg(), task, settings).params, expected, rtol=1e-11, atol=1e-11)


def test_fedmim_and_fedcm_have_fedavgs_fixed_point_at_the_rate_a_eta():
    """Where nothing moves the increments are zero, so FedMIM stops at FedAvg's point for the rate A * eta."""
    for algorithm, rate in ((fedmim.FedMIM((0.5,), (0.9,)), 0.05), (fedmim.FedCM(alpha=0.5), 0.05)):
        pulls = contractions(5, rate)
        expected = torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, PROBLEM.optima))
        settings = quadratic_settings(participation=1.0, rounds=300)
        reached = fedmim.simulate(algorithm, PROBLEM.task(), settings).params
        torch.testing.assert_close(reached, expected, rtol=1e-10, atol=1e-10)
