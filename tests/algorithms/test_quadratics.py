"""On heterogeneous quadratics the limits are known: the common optimum, or FedAvg's bias in closed form."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from problems import Quadratics, quadratic_protocol

import fedmim

PROBLEM = Quadratics.draw(clients=10, dimension=3, seed=1)


def distance_to_optimum(algorithm, **settings):
    params = fedmim.simulate(algorithm, PROBLEM.task(), *quadratic_protocol(**settings)).params
    return (params - PROBLEM.optimum).norm().item()


def test_the_optimum_of_the_helper_has_no_gradient():
    apart = PROBLEM.optimum - PROBLEM.optima
    gradient = torch.einsum("nij,nj->i", PROBLEM.curvatures, apart)
    assert gradient.norm() < 1e-12
    assert (PROBLEM.optima - PROBLEM.optimum).norm(dim=1).min() > 0.1  # no client's optimum is the common one


@pytest.mark.parametrize("seed", [0, 1])
def test_scaffold_reaches_the_optimum_at_partial_participation(seed):
    assert distance_to_optimum(fedmim.Scaffold(), participation=0.3, rounds=150, seed=seed) < 1e-8


@pytest.mark.parametrize("seed", [0, 1])
def test_feddyn_reaches_the_optimum_at_partial_participation(seed):
    settings = {"participation": 0.3, "rounds": 350, "lr": 0.3, "local_steps": 3}
    assert distance_to_optimum(fedmim.FedDyn(alpha=1.0), seed=seed, **settings) < 1e-8


def test_fedavg_does_not_reach_the_optimum_at_partial_participation():
    assert distance_to_optimum(fedmim.FedAvg(), participation=0.3, rounds=150) > 1e-2


def biased_point(steps, rate, weights=None):
    """FedAvg's fixed point, (sum_i P_i)^-1 sum_i P_i b_i with P_i = I - (I - eta H_i)^K, weighted where asked."""
    identity = torch.eye(3, dtype=torch.float64)
    pulls = identity - torch.linalg.matrix_power(identity - rate * PROBLEM.curvatures, steps)
    if weights is not None:
        pulls = pulls * weights[:, None, None]
    return torch.linalg.solve(pulls.sum(0), torch.einsum("nij,nj->i", pulls, PROBLEM.optima))


def limit(algorithm, rounds, task=None, **settings):
    protocol = quadratic_protocol(participation=1.0, rounds=rounds, lr=0.3, **settings)
    return fedmim.simulate(algorithm, task or PROBLEM.task(), *protocol).params


@pytest.mark.parametrize(("steps", "rounds"), [(1, 200), (5, 50), (20, 20)])
def test_fedavg_stops_at_the_biased_point_of_the_closed_form(steps, rounds):
    reached = limit(fedmim.FedAvg(), rounds, local_steps=steps)
    torch.testing.assert_close(reached, biased_point(steps, 0.3), rtol=1e-12, atol=1e-12)
    bias = (reached - PROBLEM.optimum).norm()
    assert bias < 1e-10 if steps == 1 else bias > 1e-2  # one step is gradient descent, which has none


def test_fedavg_weighted_by_samples_stops_where_those_weights_say():
    counts = torch.tensor([1, 2] * 5)
    task = PROBLEM.task()
    clients = [(x.repeat(n, 1, 1), y.repeat(n)) for (x, y), n in zip(task.clients, counts.tolist(), strict=True)]
    reached = limit(fedmim.FedAvg(), 50, dataclasses.replace(task, clients=clients), weighting="samples")
    torch.testing.assert_close(reached, biased_point(5, 0.3, counts), rtol=1e-12, atol=1e-12)
    assert (reached - biased_point(5, 0.3)).norm() > 1e-2


@pytest.mark.parametrize("algorithm", [fedmim.FedMIM((0.5,), (0.9,)), fedmim.FedMIM((0.3, 0.2), ()), fedmim.FedCM(0.5)])
def test_inertial_methods_stop_at_fedavgs_point_of_the_rate_a_eta(algorithm):
    """Where the model stands still there are no increments, and a client's own step is A * eta."""
    torch.testing.assert_close(limit(algorithm, 120), biased_point(5, 0.5 * 0.3), rtol=1e-10, atol=1e-10)
