"""Task: its checks, its metric, torch Datasets, and clients that are made only when asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import BUSY, SIZES, busy, classification, network, protocol, samples
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import fedmim
from fedmim.errors import UserError

PAIR = samples(5, 0)
SETTINGS = fedmim.Settings(**(BUSY | {"rounds": 2}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", "resnet"),
        ("model", nn.Linear),
        ("clients", []),
        ("test", PAIR[0]),
        ("test", (PAIR[0], PAIR[1][:3])),
        ("test", (PAIR[0][:0], PAIR[1][:0])),
        ("test", (PAIR[0].numpy(), PAIR[1].numpy())),
    ],
)
def test_an_unfit_task_is_rejected_by_the_name_of_its_field(field, value):
    with pytest.raises(UserError, match=f"^{field}: "):
        fedmim.Task(**({"model": network(), "clients": [PAIR], "test": PAIR} | {field: value}))


@pytest.mark.parametrize(
    "bad", [(PAIR[0], PAIR[1][:3]), (PAIR[0][:0], PAIR[1][:0]), (PAIR[0],), PAIR[0].numpy(), None], ids=str
)
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_an_unfit_client_is_named(bad, engine):
    task = fedmim.Task(model=network(), clients=[PAIR, PAIR, bad, PAIR], test=PAIR)
    with pytest.raises(UserError, match=r"^client 2: "):
        fedmim.simulate(fedmim.FedAvg(), task, *busy(participation=1.0, engine=engine))


def test_a_client_that_fails_is_named_in_a_note():
    task = classification((4, 4, 4))
    task.clients[1] = torch.zeros(4, 9, dtype=torch.float64), torch.zeros(4, dtype=torch.long)  # 9 features, not 4
    run = fedmim.rounds(fedmim.FedAvg(), task, *protocol(participation=1.0, engine="serial"))
    with pytest.raises(RuntimeError) as caught:
        next(run)
    assert any("client 1 failed in round 1" in note for note in caught.value.__notes__)


def regression(**options):
    clients = [(x, x.sum(1, keepdim=True)) for x, _ in (samples(n, i) for i, n in enumerate(SIZES))]
    return fedmim.Task(model=nn.Linear(4, 1).double(), clients=clients, test=clients[0], loss=F.mse_loss, **options)


def test_regression_has_the_metric_that_it_is_given():
    task = regression(metric=lambda outputs, targets: (outputs - targets).abs().mean())
    settings = fedmim.Settings(rounds=30, participation=0.5, batch_size=4, weight_decay=0.0)
    result = fedmim.simulate(fedmim.FedMIM(), task, settings)
    with torch.no_grad():
        outputs = result.model(task.test[0])
    assert result.history[-1].test_accuracy == pytest.approx((outputs - task.test[1]).abs().mean().item(), rel=1e-12)
    assert result.history[-1].test_loss == pytest.approx(F.mse_loss(outputs, task.test[1]).item(), rel=1e-12)
    assert result.history[-1].test_loss < 1e-2 * result.history[0].test_loss  # and it learns the sum


def test_regression_without_a_metric_has_a_loss_alone():
    (record, *_) = fedmim.simulate(fedmim.FedAvg(), regression(), SETTINGS).history
    assert record.test_accuracy is None
    assert record.test_loss > 0


def test_class_labels_are_scored_by_accuracy():
    outputs = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0], [5.0, 4.0]])
    assert classification().score(outputs, torch.tensor([1, 0, 0, 1])) == 0.5


def test_evaluation_in_parts_is_that_of_the_whole():
    x, y = samples(2345, 7)
    task = fedmim.Task(model=network(), clients=[PAIR], test=(x, y), prepare=lambda part: 3 * part)
    result = fedmim.simulate(fedmim.FedAvg(), task, fedmim.Settings(rounds=1))
    with torch.no_grad():
        outputs = result.model(3 * x)
    assert result.history[0].test_loss == pytest.approx(F.cross_entropy(outputs, y).item(), rel=1e-12)
    assert result.history[0].test_accuracy == pytest.approx((outputs.argmax(1) == y).double().mean().item())


class Squares(Dataset):
    """A map-style dataset that computes its items, labels as plain numbers."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], int(self.y[index])


@pytest.mark.parametrize("kind", [TensorDataset, Squares])
def test_a_dataset_for_each_client_gives_the_run_of_its_tensors(kind):
    plain = classification()
    read = fedmim.Task.from_datasets(plain.model, [kind(*pair) for pair in plain.clients], kind(*plain.test))
    assert read.test[1].dtype == torch.long
    one, other = (fedmim.simulate(fedmim.FedMIM(), task, SETTINGS) for task in (plain, read))
    assert torch.equal(one.params, other.params)
    assert one.history[-1].test_loss == other.history[-1].test_loss


class Lazy(Sequence):
    """A million clients of 1 to 9 samples, made when asked for."""

    def __init__(self):
        self.made = Counter()

    def __len__(self):
        return 1_000_000

    def __getitem__(self, client):
        self.made[client] += 1
        return samples(1 + client % 9, client)


class Sizes:
    def __getitem__(self, client):
        return 1 + client % 9


def visited(clients, engine):
    task = fedmim.Task(model=network(), clients=clients, test=PAIR)
    flat = {"rounds": 3, "participation": 4e-6, "batch_size": 4, "local_epochs": 1, "engine": engine}
    history = fedmim.simulate(fedmim.Scaffold(), task, *protocol(**flat)).history
    assert [len(record.clients) for record in history] == [4, 4, 4]
    return Counter(client for record in history for client in record.clients)


def test_of_a_million_clients_only_the_sampled_ones_are_made():
    clients = Lazy()
    sampled = visited(clients, "serial")
    assert set(clients.made) == set(sampled)
    assert all(clients.made[client] == 2 * times for client, times in sampled.items())  # once more for its size


def test_with_sizes_told_a_client_is_made_once_a_round():
    clients = Lazy()
    clients.sizes = Sizes()
    assert visited(clients, "serial") == clients.made


def test_the_vectorised_engine_tries_the_first_client_and_makes_no_other_in_vain():
    clients = Lazy()
    clients.sizes = Sizes()
    sampled = visited(clients, "vectorised")
    assert clients.made - sampled == Counter({0: 1})
