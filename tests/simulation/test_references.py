"""Reference runs: SGD on the pooled data, and clients that train alone. Both against loops written by hand."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import naive_methods as naive
import pytest
import torch
from every_method import WITH_REFERENCES
from problems import SIZES, busy, classification, network, samples
from torch import nn
from torch.nn.utils import vector_to_parameters
from torch.utils.data import Dataset

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.randomness import client_generator, minibatches
from fedmim.simulation.references import own_model, pooled, pooled_settings


def accuracy_and_loss(task, w):
    vector_to_parameters(w, (module := network()).parameters())
    x, y = task.test
    outputs = module(x)
    return (outputs.argmax(1) == y).double().mean().item(), nn.functional.cross_entropy(outputs, y).item()


def test_the_pool_takes_the_steps_of_an_average_round():
    task = classification()
    assert pooled_settings(task, busy()[0]).local_steps == 17  # 4/7 of 2 * (1 + 2 + 2 + 4 + 1 + 2 + 3) = 30
    assert pooled_settings(task, busy(local_steps=3)[0]).local_steps == 12  # 4 clients
    assert pooled_settings(task, busy(local_steps=3, participation=0.01)[0]).local_steps == 3
    assert pooled_settings(task, busy(batch_size=None)[0]).batch_size == 7  # 46 samples of 7 clients
    assert pooled_settings(classification((1,)), busy(local_epochs=1)[0]).local_steps == 1


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes"])
def test_centralised_equals_a_loop_of_sgd_on_the_pooled_data(engine):
    task, (settings, execution) = classification(), busy(engine=engine, server_lr=0.5)
    x, y = torch.cat([x for x, _ in task.clients]), torch.cat([y for _, y in task.clients])
    fed = naive.Federation(task, settings)
    w, run = fed.start(), fedmim.rounds(fedmim.Centralised(), task, settings, execution)
    for t, record in enumerate(run):
        order = minibatches(46, replace(settings, local_steps=17), client_generator(settings.seed, t, 0))
        for index in order:
            w = w - fed.lr(t) * (fed.clip(fed.raw_gradient(w, (x[index], y[index]))) + settings.weight_decay * w)
        assert len(order) == 17
        assert (run.params - w).abs().max() < 1e-10
        assert (record.test_accuracy, record.test_loss) == pytest.approx(accuracy_and_loss(task, w))
        assert (record.bytes_up, record.bytes_down, record.consistency) == (0, 0, None)
    assert record.round == 5


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes"])
def test_local_equals_each_client_training_alone(engine):
    task, (settings, execution) = classification(), busy(engine=engine)
    fed = naive.Federation(task, settings)
    own = {i: fed.start() for i in range(7)}
    run = fedmim.rounds(fedmim.LocalOnly(), task, settings, execution)
    for t, record in enumerate(run):
        for i in fed.active(t):
            for batch in fed.batches(t, i):
                g = fed.clip(fed.raw_gradient(own[i], batch))
                own[i] = own[i] - fed.lr(t) * (g + settings.weight_decay * own[i])
        accuracies, losses = zip(*(accuracy_and_loss(task, own[i]) for i in fed.active(t)), strict=True)
        assert record.test_accuracy == pytest.approx(fmean(accuracies), abs=1e-12)
        assert record.test_loss == pytest.approx(fmean(losses), rel=1e-9)
        assert (record.bytes_up, record.bytes_down, record.consistency) == (0, 0, None)
        for i, w in own.items():
            kept = own_model(run.server.clients, i, run.params)
            assert (kept - w).abs().max() < 1e-10
    assert torch.equal(run.params, fed.start())


def test_a_client_alone_is_fedavg_with_this_client():
    task = classification((13,))
    alone, fedavg = (fedmim.simulate(method, task, *busy()) for method in (fedmim.LocalOnly(), fedmim.FedAvg()))
    scores = [
        [(each.test_accuracy, each.test_loss, each.train_loss) for each in run.history] for run in (alone, fedavg)
    ]
    assert scores[0] == scores[1]


def test_the_pool_of_one_client_is_fedavg_with_this_client():
    task = classification((13,))
    pool, fedavg = (fedmim.simulate(method, task, *busy()) for method in (fedmim.Centralised(), fedmim.FedAvg()))
    assert torch.equal(pool.params, fedavg.params)


@pytest.mark.parametrize("name", ["centralised", "local"])
def test_settings_of_the_uploads_have_no_effect(name):
    private = {"dp_noise": 1.0, "dp_clip": 0.1, "local_steps": 2, "server_lr": 0.5, "max_distance": 1e-9}
    robust = {"aggregation": "median", "max_distance_ratio": 1.0, "min_replies": 4, "local_steps": 2}
    plain, *others = (
        fedmim.rounds(WITH_REFERENCES[name], classification(), *busy(**{"local_steps": 2} | values))
        for values in ({}, private, robust)
    )
    expected = [replace(record, seconds=0) for record in plain]
    assert all([replace(record, seconds=0) for record in other] == expected for other in others)


def test_clients_as_they_are_change_local_and_not_the_pool():
    wild = {"work": "uniform:0,1", "dropout": 0.2, "speed_spread": 1.0, "deadline": 2.0, "availability": 0.8}
    for name, same in (("centralised", True), ("local", False)):
        calm, busier = (
            fedmim.simulate(WITH_REFERENCES[name], classification(), *busy(**values)).history for values in ({}, wild)
        )
        assert ([each.train_loss for each in calm] == [each.train_loss for each in busier]) is same


def test_a_round_of_local_without_replies_has_no_accuracy():
    with pytest.warns(UserWarning, match="no client replied"):
        history = fedmim.simulate(fedmim.LocalOnly(), classification(), *busy(dropout=0.99, rounds=1)).history
    assert (history[0].test_accuracy, history[0].test_loss, history[0].failed) == (None, None, 4)


def test_per_client_evaluates_each_clients_own_model_on_its_own_data():
    task = classification()
    run = fedmim.rounds(fedmim.LocalOnly(), task, *busy(per_client="personal", rounds=2))
    list(run)
    own = []
    for client, (x, y) in enumerate(task.clients):
        w = own_model(run.server.clients, client, run.params)
        vector_to_parameters(w, (module := network()).parameters())
        own.append((module(x).argmax(1) == y).double().mean().item())
    assert list(run.client_scores.model) == own
    assert run.record.clients_mean == pytest.approx(fmean(own))
    assert len(run.client_scores.personal) == 7


def test_per_client_evaluates_the_pooled_model_on_the_data_of_each_client():
    run = fedmim.rounds(fedmim.Centralised(), classification(), *busy(per_client="personal"))
    list(run)
    assert len(run.client_scores.model) == len(run.client_scores.personal) == 7


class Rolled(Dataset):
    """Samples that a random transform shifts whenever they are read."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        return self.x[at] + 0.1 * torch.randn(4, dtype=torch.float64), self.y[at]


def test_live_data_is_pooled_and_repeats():
    live = [Rolled(*samples(n, client)) for client, n in enumerate(SIZES)]
    task = fedmim.Task.from_datasets(network(), live, samples(20, 99), live=True)
    one, other = (fedmim.simulate(fedmim.Centralised(), task, *busy()) for _ in range(2))
    assert torch.equal(one.params, other.params)
    assert len(pooled(task).data(0)) == 46


def test_structured_data_is_pooled_in_the_order_of_the_clients():
    parts = [({"a": x, "b": (2 * x,)}, y) for x, y in (samples(n, client) for client, n in enumerate(SIZES))]
    x, y = pooled(replace(classification(), clients=parts)).data(0)
    assert torch.equal(x["b"][0], torch.cat([2 * each["a"] for each, _ in parts]))
    assert torch.equal(y, torch.cat([each for _, each in parts]))


def test_what_cannot_be_pooled_is_rejected():
    ragged = [samples(3, 0), (torch.zeros(3, 5), torch.zeros(3, dtype=torch.int64))]
    with pytest.raises(UserError, match=r"^method: cannot pool clients whose samples differ"):
        fedmim.rounds(fedmim.Centralised(), replace(classification(), clients=ragged))
    mixed = fedmim.Task.from_datasets(network(), [Rolled(*samples(3, 0)), samples(3, 1)], samples(20, 99), live=True)
    with pytest.raises(UserError, match=r"^method: cannot pool clients of which only some are live"):
        fedmim.rounds(fedmim.Centralised(), mixed)


def test_buffers_are_rejected_for_local_and_trained_in_the_pool():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    task = classification(model=model)
    with pytest.raises(UserError, match=r"^method: Local only cannot train a model with buffers"):
        fedmim.rounds(fedmim.LocalOnly(), task, *busy())
    before = model[1].running_mean.clone()
    assert (fedmim.simulate(fedmim.Centralised(), task, *busy()).model[1].running_mean - before).abs().max() > 1e-3


@pytest.mark.parametrize("wrapper", [fedmim.Leap, fedmim.TopK, fedmim.Quantise])
@pytest.mark.parametrize("reference", [fedmim.Centralised(), fedmim.LocalOnly(), fedmim.Sharp(fedmim.LocalOnly())])
def test_wrappers_of_communication_are_rejected_around_references(wrapper, reference):
    with pytest.raises(ValueError, match=rf"^{wrapper.suffix}: {reference.title.replace('+', '.')} is a reference"):
        wrapper(reference)


def test_the_estimate_of_the_time_reads_one_minibatch_of_live_data(monkeypatch):
    read = []
    live = [Rolled(*samples(n, client)) for client, n in enumerate(SIZES)]
    task = fedmim.Task.from_datasets(network(), live, samples(20, 99), live=True)
    run = fedmim.rounds(fedmim.Centralised(), task, *busy())
    item = Rolled.__getitem__
    monkeypatch.setattr(Rolled, "__getitem__", lambda own, at: read.append(at) or item(own, at))
    assert run.serial_seconds() > 0
    assert read == [0, 1, 2, 0]  # four of the pool: three of the first client, one of the second
