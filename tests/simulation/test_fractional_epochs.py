"""A part of an epoch: how many steps, on which samples, and the same in every engine."""

from __future__ import annotations

import pytest
import torch
from problems import SIZES, busy, classification

import fedmim
from fedmim.simulation.randomness import client_generator


def numbered_task(sizes, seen):
    """Clients whose samples are the numbers 100 * client + 0, 1, 2, ...; `seen` gets every minibatch."""

    def prepare(x):
        seen.append(x.flatten().long().tolist())
        return x / 1000

    clients = [
        (100.0 * client + torch.arange(n).view(n, 1).float(), torch.zeros(n, dtype=torch.long))
        for client, n in enumerate(sizes)
    ]
    test = torch.full((1, 1), -1.0), torch.zeros(1, dtype=torch.long)
    return fedmim.Task(torch.nn.Linear(1, 2), clients, test, prepare=prepare)


@pytest.mark.parametrize(("epochs", "steps"), [(0.5, {0: 2, 1: 1}), (1.5, {0: 5, 1: 2}), (0.01, {0: 1, 1: 1})])
def test_a_client_takes_the_first_part_of_its_shuffled_data(epochs, steps):
    sizes, seen = (9, 3), list[list[int]]()  # with batches of 3: 3 minibatches per epoch, and 1
    settings = fedmim.Settings(rounds=2, participation=1.0, local_epochs=epochs, batch_size=3, eval_every=2)
    fedmim.simulate(fedmim.FedAvg(), numbered_task(sizes, seen), settings, fedmim.Execution(engine="serial"))
    expected = []
    for t in range(2):
        for client, n in enumerate(sizes):  # the client with more steps comes first; ties: more samples
            generator = client_generator(settings.seed, t, client)
            order = [int(i) for _ in range(2) for i in torch.randperm(n, generator=generator)]
            expected += [[100 * client + i for i in order[3 * k : 3 * k + 3]] for k in range(steps[client])]
    assert [batch for batch in seen if batch != [-1]] == [[0, 1], *expected]  # the model is tried on two samples


@pytest.mark.parametrize("work", [None, "uniform:0,2"])
@pytest.mark.parametrize("epochs", [0.4, 1.5])
def test_engines_agree_for_unequal_clients(epochs, work):
    def final(engine):
        task, protocol = classification(), busy(local_epochs=epochs, work=work, engine=engine, workers=2)
        assert [len(x) for x, _ in task.clients] == list(SIZES)
        return fedmim.simulate(fedmim.Scaffold(), task, *protocol).params

    serial = final("serial")
    assert torch.equal(serial, final("processes"))
    assert torch.allclose(serial, final("vectorised"), rtol=1e-9, atol=1e-12)


def test_half_of_two_minibatches_is_the_run_with_one_step():
    half, one = (
        fedmim.simulate(fedmim.FedAvg(), classification((8, 7, 5)), *busy(**values)).params
        for values in ({"local_epochs": 0.5}, {"local_steps": 1})
    )
    assert torch.equal(half, one)
