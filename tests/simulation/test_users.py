"""Natural clients by name, test data of each client, and the line that describes a task."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from problems import busy, classification, network, samples
from torch.utils.data import TensorDataset

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.evaluation import evaluate

PAIRS = {"ada": samples(5, 0), "bob": samples(3, 1), "eve": samples(8, 2)}
TEST = samples(20, 9)


def items(pair):
    return list(zip(*pair, strict=True))


def test_users_are_clients_in_order_with_their_names():
    mixed = {"ada": PAIRS["ada"], "bob": TensorDataset(*PAIRS["bob"]), "eve": items(PAIRS["eve"])}
    task = fedmim.Task.from_users(network(), mixed, TEST)
    assert list(task.names) == ["ada", "bob", "eve"]
    assert [task.name(client) for client in range(3)] == ["ada", "bob", "eve"]
    assert [task.size(client) for client in range(3)] == [5, 3, 8]
    for (x, y), (other_x, other_y) in zip(task.clients, PAIRS.values(), strict=True):
        assert torch.equal(x, other_x)
        assert torch.equal(y, other_y)
    plain = fedmim.Task(network(), list(PAIRS.values()), TEST)
    one, other = (fedmim.simulate(fedmim.FedMIM(), each, *busy()) for each in (task, plain))
    assert torch.equal(one.params, other.params)


def test_clients_without_names_have_their_numbers():
    task = classification()
    assert task.names is None
    assert task.name(3) == "3"


def test_errors_name_the_user():
    task = fedmim.Task.from_users(network(), PAIRS, TEST)
    task.clients[1] = (TEST[0], TEST[1][:3])
    with pytest.raises(UserError, match=r"^client bob: x has 20 samples and y has 3"):
        task.size(1)
    task.clients[1] = torch.zeros(4, 9, dtype=torch.float64), torch.zeros(4, dtype=torch.long)  # 9 features, not 4
    with pytest.raises(RuntimeError) as caught:
        fedmim.simulate(fedmim.FedAvg(), task, *busy(engine="serial", participation=1.0))
    assert any("client bob failed in round 1" in note for note in caught.value.__notes__)
    task.clients[1] = torch.zeros(3, 4, dtype=torch.float64), torch.full((3,), 99)  # no such class
    with pytest.raises(UserError, match="client bob has the label 99, and the model has 3 outputs"):
        fedmim.simulate(fedmim.FedAvg(), task, *busy(engine="vectorised", participation=1.0))
    with pytest.raises(UserError, match=r"^client eve: an item is a dict"):
        fedmim.Task.from_users(network(), PAIRS | {"eve": [{"x": 1, "y": 2}]}, TEST)


def test_a_client_may_have_test_data_of_its_own():
    own = {"eve": items(samples(4, 5)), "ada": samples(2, 6)}
    task = fedmim.Task.from_users(network(), PAIRS, TEST, client_test=own)
    assert torch.equal(task.client_test(0)[0], own["ada"][0])
    assert task.client_test(1) is None
    assert torch.equal(task.client_test(2)[1], samples(4, 5)[1])
    assert classification().client_test(0) is None
    model = fedmim.models.FlatModel(task.model, task.loss)
    loss, _ = evaluate(model, replace(task, test=task.client_test(0)), model.params, model.buffers)
    x, y = own["ada"]
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(network()(x), y).item(), rel=1e-12)


def test_test_data_does_not_change_the_run():
    plain = classification()
    task = replace(plain, client_tests=[samples(3, 50), *[None] * 6])
    one, other = (fedmim.simulate(fedmim.FedMIM(), each, *busy()) for each in (task, plain))
    assert torch.equal(one.params, other.params)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"client_tests": [None]}, "client_tests: must be as many as the clients, 7, got 1"),
        ({"client_tests": [TEST[0], *[None] * 6]}, "client_tests: client 0: must be a pair"),
        ({"client_tests": {"ada": TEST}}, "clients: must be a sequence, got a dict; use Task.from_users"),
        ({"names": ["ada"]}, "names: must be as many as the clients, 7, got 1"),
        ({"names": ["ada"] * 7}, "names: must be strings, a different one for each client"),
        ({"names": list(range(7))}, "names: must be strings"),
        ({"clients": PAIRS}, "clients: must be a sequence, got a dict; use Task.from_users"),
    ],
)
def test_a_task_that_does_not_fit_together_is_rejected(options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        replace(classification(), **options)


@pytest.mark.parametrize(
    ("users", "options", "message"),
    [
        (list(PAIRS.values()), {}, "users: must be a dict of users and samples, got list"),
        ({}, {}, "clients: must not be empty"),
        ({1: TEST, "1": TEST}, {}, "names: must be strings, a different one"),
        (PAIRS, {"client_test": {"adda": TEST}}, r"client_test: user: 'adda' is not known; did you mean 'ada'\?"),
        (PAIRS | {"bob": 5}, {}, "client bob: must be a pair .*, a map-style Dataset or a list of items, got int"),
        (PAIRS, {"client_test": {"ada": []}}, "client_tests: client ada: must not be empty"),
    ],
)
def test_users_that_cannot_be_read_are_named(users, options, message):
    with pytest.raises(UserError, match=f"^{message}"):
        fedmim.Task.from_users(network(), users, TEST, **options)


def test_datasets_by_name_belong_to_from_users():
    with pytest.raises(UserError, match=r"^clients: must be a sequence, got a dict; use Task.from_users"):
        fedmim.Task.from_datasets(network(), PAIRS, TEST)


@pytest.mark.parametrize("split", ["dirichlet:0.5", "pathological:1"])
def test_a_split_by_labels_needs_labels(split):
    x, y = TEST
    with pytest.raises(UserError, match=r"^split: .* needs one class label per sample; use iid"):
        fedmim.Task.from_dataset(network(), (x, {"label": y}), TEST, split=split, clients=2)
    task = fedmim.Task.from_dataset(network(), (x, {"label": y}), TEST, split="iid", clients=3)
    assert sum(len(each[1]["label"]) for each in task.clients) == 20


def test_a_task_is_described_in_one_short_line():
    sequential = "Sequential with 43 parameters"
    assert repr(classification()) == f"Task({sequential}, 7 clients, 46 samples, 20 test samples)"
    task = fedmim.Task.from_dataset(network(), TEST, TEST, clients=3)
    assert repr(task) == f"Task({sequential}, 3 clients, 20 samples, 20 test samples)"
    live = fedmim.Task.from_datasets(network(), [TensorDataset(*TEST)] * 2, TEST, live=True)
    assert repr(live) == f"Task({sequential}, 2 clients, 40 samples, 20 test samples)"


def test_the_description_of_a_task_accesses_no_client():
    class Lazy:
        def __len__(self):
            return 1_000_000

        def __getitem__(self, client):
            raise AssertionError

    task = replace(classification(), clients=Lazy())
    assert repr(task) == "Task(Sequential with 43 parameters, 1,000,000 clients, 20 test samples)"
