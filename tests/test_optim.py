"""LocalOptimizer in a plain PyTorch loop is the simulator's local training, for every method."""

from __future__ import annotations

import copy

import pytest
import torch
from every_method import EVERY_METHOD
from problems import BUSY, classification
from torch.nn.functional import cross_entropy

import fedmim
from fedmim.errors import UserError
from fedmim.models import FlatModel
from fedmim.optim import LocalOptimizer
from fedmim.simulation.engines import serial
from fedmim.simulation.randomness import client_generator, minibatches
from fedmim.simulation.training import Work

TASK = classification()  # float64
SETTINGS = fedmim.Settings(**BUSY)


def server_state_after_three_rounds(algorithm):
    """A state whose slots are no longer zero, and what the clients then hold."""
    run = fedmim.rounds(algorithm, TASK, SETTINGS)
    for _ in range(3):
        next(run)
    return run.server.state, run.server.clients


def plain_loop(algorithm, down, slots, client, round):
    """What a user writes, with the simulator's minibatches."""
    model = copy.deepcopy(TASK.model)
    x, y = TASK.clients[client]
    batches = list(minibatches(len(x), SETTINGS, client_generator(SETTINGS.seed, round, client)))

    def full_gradient():
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()

    optimizer = LocalOptimizer(
        model.parameters(),
        algorithm,
        down,
        lr=SETTINGS.lr_at(round),
        steps=len(batches),
        slots=slots,
        weight_decay=SETTINGS.weight_decay,
        clip_norm=SETTINGS.clip_norm,
        full_gradient=full_gradient,
    )
    for index in batches:

        def closure(index=index):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[index]), y[index])
            loss.backward()
            return loss

        if algorithm.gradients > 1:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    upload, kept = optimizer.finish()
    return upload, kept, torch.cat([p.detach().reshape(-1) for p in model.parameters()])


@pytest.mark.parametrize("name", EVERY_METHOD)
def test_a_plain_loop_uploads_and_keeps_what_the_simulators_client_does(name):
    algorithm = EVERY_METHOD[name]
    state, clients = server_state_after_three_rounds(algorithm)
    down, flat = algorithm.broadcast(state), FlatModel(TASK.model, TASK.loss)
    work = Work(TASK, SETTINGS, 3, SETTINGS.lr_at(3), range(7), down, flat.buffers, clients.get, clients.is_new)
    for reply in serial(algorithm, flat, work):
        slots = None if clients.is_new(reply.client) else clients.get(reply.client)
        upload, kept, model = plain_loop(algorithm, down, slots, reply.client, 3)
        assert upload.keys() == reply.upload.keys()
        assert kept.keys() == reply.slots.keys()
        for mine, theirs in ((upload, reply.upload), (kept, reply.slots)):
            for vector in mine:
                torch.testing.assert_close(mine[vector], theirs[vector], rtol=1e-12, atol=1e-13)
        received = algorithm.receive(upload, down, SETTINGS.lr_at(3), reply.steps)
        assert torch.equal(model, received["params"])  # FedMIM's closing z + m2 included


def one_step(algorithm, **options):
    model = copy.deepcopy(TASK.model)
    down = algorithm.broadcast(algorithm.init(FlatModel(model, TASK.loss).params))
    optimizer = LocalOptimizer(model.parameters(), algorithm, down, **({"lr": 0.1, "steps": 1} | options))
    cross_entropy(model(TASK.clients[1][0]), TASK.clients[1][1]).backward()
    return optimizer, model


def test_fedavg_is_plain_sgd():
    optimizer, model = one_step(fedmim.FedAvg(), weight_decay=0.01)
    other = copy.deepcopy(TASK.model)
    sgd = torch.optim.SGD(other.parameters(), lr=0.1, weight_decay=0.01)
    cross_entropy(other(TASK.clients[1][0]), TASK.clients[1][1]).backward()
    optimizer.step()
    sgd.step()
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-13, atol=1e-15)


def test_a_second_gradient_asks_for_a_closure():
    optimizer, _ = one_step(fedmim.FedSAM())
    with pytest.raises(UserError, match=r"closure: FedSAM .* optimizer.step\(closure\)"):
        optimizer.step()


def test_a_gradient_over_all_data_asks_for_a_closure():
    optimizer, _ = one_step(fedmim.MimeLite())
    optimizer.step()
    with pytest.raises(UserError, match=r"full_gradient: MimeLite needs the gradient over all"):
        optimizer.finish()


def test_the_number_of_steps_must_be_the_one_announced():
    optimizer, _ = one_step(fedmim.FedMIM(), steps=2)
    optimizer.step()
    with pytest.raises(UserError, match="steps: only 1 of 2 steps were taken"):
        optimizer.finish()
    optimizer.step()
    with pytest.raises(UserError, match="steps: all 2 steps of the round are already taken"):
        optimizer.step()
    optimizer.finish()


def test_a_rate_that_changes_within_the_round_is_rejected():
    optimizer, _ = one_step(fedmim.FedAvg())
    optimizer.param_groups[0]["lr"] = 0.05
    with pytest.raises(UserError, match="lr: must not change within a round"):
        optimizer.step()


def test_another_model_than_the_servers_is_rejected():
    down = {"params": torch.zeros(7)}
    with pytest.raises(UserError, match="params: have 43 elements, but the server sent 7"):
        LocalOptimizer(TASK.model.parameters(), fedmim.FedAvg(), down, lr=0.1, steps=1)


def test_groups_of_parameters_are_rejected():
    with pytest.raises(UserError, match="not parameter groups"):
        LocalOptimizer(
            [{"params": TASK.model.parameters()}], fedmim.FedAvg(), {"params": torch.zeros(43)}, lr=1, steps=1
        )


def test_frozen_parameters_stay_as_they_are():
    model = copy.deepcopy(TASK.model)
    model[0].weight.requires_grad_(False)
    before = model[0].weight.clone()
    down = {"params": FlatModel(model, TASK.loss).params.clone()}
    optimizer = LocalOptimizer(model.parameters(), fedmim.FedAvg(), down, lr=0.1, steps=1)
    cross_entropy(model(TASK.clients[1][0]), TASK.clients[1][1]).backward()
    optimizer.step()
    optimizer.finish()
    assert torch.equal(model[0].weight, before)
