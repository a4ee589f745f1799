"""The public point is what a client without gradients sends: nothing of its data, all of the method's inertia."""

from __future__ import annotations

import math

import pytest
import torch
from every_method import EVERY_METHOD
from problems import busy, classification

import fedmim
from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.public_point import MOST_REPORTED_STEPS, PublicPoints, distance
from fedmim.simulation.training import Work


def zero_loss(outputs, targets):
    return 0 * outputs.sum()


def trained(algorithm, **overrides):
    """A run after three rounds, so that momentum and increments are not zero."""
    run = fedmim.rounds(algorithm, classification(), *busy(**overrides))
    for _ in range(3):
        next(run)
    return run


def points_of(run):
    state, settings = run.state, run.settings
    down = run.algorithm.broadcast(state)
    return PublicPoints(run.algorithm, settings, down, run.server.buffers, settings.lr_at(state.round)), down


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_new_client_with_zero_gradients_sends_its_public_point(name):
    algorithm = EVERY_METHOD[name]
    run = trained(algorithm)
    points, down = points_of(run)
    idle = classification(loss=zero_loss)
    lr, server = run.settings.lr_at(3), run.server
    zeros = server.clients.zeros
    clients = [3, 1, 4]  # they take 8, 4 and 2 steps
    work = Work(idle, run.settings, 3, lr, clients, down, server.buffers, lambda _: zeros, lambda _: True)
    steps = set()
    for reply in serial(algorithm, FlatModel(idle.model, idle.loss), work):
        received = algorithm.receive(reply.upload, down, lr, reply.steps)
        point = points.at(int(reply.steps))
        assert point.keys() == {*received, "buffers"}
        for key, vector in received.items():
            torch.testing.assert_close(vector, point[key], rtol=1e-12, atol=1e-14)
        assert points.distance({**received, "buffers": reply.buffers}, reply.steps) < 1e-12
        steps.add(reply.steps)
    assert steps == {8.0, 4.0, 2.0}


def test_fedmims_point_is_the_model_plus_the_inertia_whatever_the_number_of_steps():
    algorithm = fedmim.FedMIM(alpha=(0.5, 0.2), beta=(0.9, 0.1))
    run = trained(algorithm, weight_decay=0.0)
    increments = run.state.slots
    expected = run.state.params + 0.5 * increments["increment_0"] + 0.2 * increments["increment_1"]
    points, _ = points_of(run)
    for steps in (1, 2, 7):
        torch.testing.assert_close(points.at(steps)["params"], expected, rtol=1e-12, atol=1e-14)


def test_fedavgs_point_is_the_decayed_model():
    run = trained(fedmim.FedAvg())
    settings = run.settings
    points, _ = points_of(run)
    factor = (1 - settings.lr_at(3) * settings.weight_decay) ** 6
    torch.testing.assert_close(points.at(6)["params"], factor * run.state.params, rtol=1e-12, atol=0.0)


def test_clients_with_any_data_and_any_history_have_the_same_point():
    """The point of SCAFFOLD's clients does not contain their control variates."""
    run = trained(fedmim.Scaffold(), participation=1.0, local_steps=3)
    points, _ = points_of(run)
    x = run.state.params
    lr, decay, control = run.settings.lr_at(3), run.settings.weight_decay, run.state.slots["control"]
    expected = x
    for _ in range(3):
        expected = expected - lr * (decay * expected + control)
    torch.testing.assert_close(points.at(3)["params"], expected, rtol=1e-12, atol=1e-14)
    change = (x - expected) / (3 * lr) - control
    torch.testing.assert_close(points.at(3)["control_change"], change, rtol=1e-11, atol=1e-13)


def test_the_distance_is_the_norm_over_all_vectors_jointly_also_in_pieces():
    generator = torch.Generator().manual_seed(1)
    ours = {"params": torch.randn(150_000, generator=generator), "small": torch.randn(2, generator=generator)}
    zero = {name: torch.zeros_like(vector) for name, vector in ours.items()}
    expected = torch.cat([*ours.values()]).double().norm().item()
    assert distance(ours, zero) == pytest.approx(expected, rel=1e-12)
    assert distance({"params": torch.full((4,), 1e38)}, {"params": torch.zeros(4)}) == pytest.approx(2e38)
    huge = torch.full((4,), 1e300, dtype=torch.float64)
    assert distance({"params": huge}, {"params": torch.zeros(4, dtype=torch.float64)}) == math.inf


def test_a_client_that_reports_an_absurd_number_of_steps_is_infinitely_far_away():
    run = trained(fedmim.FedAvg())
    points, _ = points_of(run)
    vectors = {"params": run.state.params, "buffers": run.server.buffers}
    assert points.distance(vectors, MOST_REPORTED_STEPS + 1.0) == math.inf


def test_where_the_settings_fix_the_number_of_steps_a_client_cannot_choose_it():
    run = trained(fedmim.FedAvg(), local_steps=2)
    points, _ = points_of(run)
    vectors = {"params": run.state.params, "buffers": run.server.buffers}
    assert points.distance(vectors, 1e12) == points.distance(vectors, 2)
