"""Live data: items are read at every step, by random transforms that depend on (seed, round, client) alone."""

# ruff: noqa: NPY002 (transforms of users draw from NumPy's global state)
from __future__ import annotations

import copy
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import busy, classification, network, samples
from torch.utils.data import Dataset
from worker_runs import assert_same_bits, finished

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.randomness import client_generator, key, minibatches


class Shaken(Dataset):
    """Items with noise from each of the three global generators."""

    def __init__(self, x, y, strength=0.1):
        self.x, self.y, self.strength = x, y, strength

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        noise = torch.rand(()).item() + np.random.rand() + random.random()
        return self.x[index] + self.strength * noise, int(self.y[index])


def live(strength=0.1, **options):
    plain = classification()
    clients = [Shaken(x, y, strength) for x, y in plain.clients]
    return fedmim.Task.from_datasets(plain.model, clients, plain.test, live=True, **options)


@pytest.mark.parametrize("name", ["FedMIM", "MimeLite"])
def test_without_randomness_it_is_the_run_of_the_tensors(name):
    method = getattr(fedmim, name)()
    assert_same_bits(*(finished(method, task, engine="serial") for task in (classification(), live(strength=0.0))))


def test_a_round_is_that_of_plain_loops_with_seeded_generators():
    settings = busy(participation=1.0, rounds=2, clip_norm=None)[0]
    run = fedmim.rounds(fedmim.FedAvg(), live(), settings, fedmim.Execution("serial"))
    next(run), next(run)
    module = network()
    with torch.random.fork_rng(devices=[]):
        for t in range(2):
            locals_ = [naive_client(module, settings, t, client) for client in range(7)]
            module.load_state_dict({name: sum(each[name] for each in locals_) / 7 for name in locals_[0]})
    expected = torch.nn.utils.parameters_to_vector(module.parameters())
    torch.testing.assert_close(run.params, expected, rtol=1e-12, atol=1e-13)


def naive_client(module, settings, t, client):
    module = copy.deepcopy(module)
    data = Shaken(*classification().clients[client])
    seed = key("live", settings.seed, t, client)
    torch.manual_seed(seed), np.random.seed(seed), random.seed(seed)
    for index in minibatches(len(data), settings, client_generator(settings.seed, t, client)):
        items = [data[i] for i in index.tolist()]
        module.zero_grad()
        outputs = module(torch.stack([x for x, _ in items]))
        F.cross_entropy(outputs, torch.tensor([y for _, y in items])).backward()
        with torch.no_grad():
            for p in module.parameters():
                p -= settings.lr_at(t) * (p.grad + settings.weight_decay * p)
    return module.state_dict()


def test_worker_processes_read_the_same_bits():
    task = live()
    assert_same_bits(*(finished(fedmim.Scaffold(), task, engine=engine) for engine in ("serial", "processes")))


def test_every_round_reads_new_items_and_a_resumed_run_the_same(tmp_path):
    task, (settings, execution) = live(strength=1.0), busy(engine="serial")
    whole = fedmim.rounds(fedmim.FedMIM(), task, settings, execution)
    list(whole)
    part = fedmim.rounds(fedmim.FedMIM(), task, settings, execution, folder=tmp_path)
    next(part), next(part)
    part.save()
    resumed = fedmim.rounds(fedmim.FedMIM(), task, settings, execution, folder=tmp_path, resume=True)
    list(resumed)
    assert torch.equal(resumed.params, whole.params)
    other = fedmim.simulate(fedmim.FedMIM(), task, replace(settings, seed=1), execution)
    assert not torch.equal(other.params, whole.params)


def test_reading_leaves_the_global_generators_as_they_were():
    torch.manual_seed(3), np.random.seed(3), random.seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    finished(fedmim.FedAvg(), live(), engine="serial")
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_the_vectorised_engine_rejects_it_and_auto_takes_another():
    with pytest.raises(UserError, match=r"^engine: vectorised cannot train .* its data is live; use serial"):
        finished(fedmim.FedAvg(), live(), engine="vectorised")
    assert finished(fedmim.FedAvg(), live(), engine="auto")[0].engine == "serial"


@pytest.mark.parametrize("split", ["iid", "dirichlet:0.5"])
def test_a_live_dataset_is_split_as_its_tensors_are(split):
    x, y = samples(60, 0)
    options = {"split": split, "clients": 5}
    plain = fedmim.Task.from_dataset(network(), (x, y), (x, y), **options)
    task = fedmim.Task.from_dataset(network(), Shaken(x, y, 0.0), (x, y), live=True, **options)
    assert_same_bits(*(finished(fedmim.FedAvg(), each, engine="serial") for each in (plain, task)), clients=5)


def test_test_data_is_read_once_and_must_not_be_random():
    x, y = samples(20, 0)
    with pytest.raises(UserError, match=r"^test: item 0 is different .*; test data must not be random"):
        fedmim.Task.from_dataset(network(), Shaken(x, y), Shaken(x, y), live=True, clients=4)


class OwnGenerator(Shaken):
    def __init__(self, x, y):
        super().__init__(x, y)
        self.generator = torch.Generator().manual_seed(0)

    def __getitem__(self, index):
        return self.x[index] + torch.rand((), generator=self.generator), int(self.y[index])


def test_transforms_with_a_generator_of_their_own_are_rejected():
    with pytest.raises(UserError, match=r"^client 0: item 0 is different .* draw all random numbers from these"):
        fedmim.Task.from_datasets(network(), [OwnGenerator(*samples(5, 0))], samples(5, 1), live=True)


def test_items_that_do_not_fit_are_found_at_once():
    with pytest.raises(UserError, match=r"^client 0: an item is a dict; name its columns"):
        fedmim.Task.from_datasets(network(), [[{"x": 1, "y": 2}]], samples(5, 1), live=True)


def test_a_ragged_minibatch_is_padded_on_its_own():
    def pad(items):
        words = [torch.tensor(words) for words, _ in items]
        return torch.nn.utils.rnn.pad_sequence(words, batch_first=True), torch.tensor([y for _, y in items])

    task = fedmim.Task.from_datasets(network(), [[([1.0], 0), ([1.0, 2.0], 1)]], samples(5, 1), live=True, collate=pad)
    assert task.data(0).read([0])[0].shape == (1, 1)
    assert task.data(0).read([1, 0])[0].shape == (2, 2)
