"""A model, a loss or labels that do not fit the data are found before the first round, in one line."""

import pytest
import torch
from torch import nn

import fedmim
from fedmim.cli import main
from fedmim.errors import UserError

X, Y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
SETTINGS = fedmim.Settings(rounds=1, participation=1.0)


def problem(model=None, client=(X, Y), test=(X, Y), **options):
    """What is wrong with a task of three such clients, as the run says before its first round."""
    with pytest.raises(UserError) as caught:
        fedmim.rounds(
            fedmim.FedAvg(), fedmim.Task(model or nn.Linear(4, 3), [(X, Y), client], test, **options), SETTINGS
        )
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Narrow(nn.Module):
    """Takes three features, where the data has four."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)


def test_a_model_that_fails_is_told_with_its_line():
    line = Narrow.forward.__code__.co_firstlineno + 1
    told = problem(Narrow())
    assert told.startswith(
        "model: Narrow fails on the test data (RuntimeError: mat1 and mat2 shapes cannot be multiplied"
    )
    assert f", test_fit.py:{line}); change the model, or the shape or type of the data" in told


def test_the_data_of_the_first_client_is_tried_too():
    task = fedmim.Task.from_users(nn.Linear(4, 3), {"ada": (X.double(), Y)}, (X, Y))
    with pytest.raises(UserError, match=r"fails on the data of client ada \(.*Double"):
        fedmim.simulate(fedmim.FedAvg(), task, SETTINGS)


def test_a_prepare_that_fails_is_told():
    assert problem(prepare=lambda x: x.view(-1, 5)).startswith("prepare: fails on the test data (RuntimeError:")


@pytest.mark.parametrize(("label", "shown"), [(3, "3"), (-1, "-1")])
def test_a_label_without_an_output_is_told_with_its_client(label, shown):
    wrong = Y.clone()
    wrong[-1] = label
    told = f"has the label {shown}, and the model has 3 outputs, for the labels 0 to 2; number the classes from 0"
    assert f"client 1 {told}" in problem(client=(X, wrong))
    assert f"the test data {told}" in problem(test=(X, wrong))
    task = fedmim.Task.from_dataset(nn.Linear(4, 3), (X, wrong), (X, Y), clients=2)
    with pytest.raises(UserError, match=f"the training data {told}"):
        fedmim.simulate(fedmim.FedAvg(), task, SETTINGS)


def test_labels_that_the_loss_ignores_are_accepted():
    ignored = Y.clone()
    ignored[0] = -100
    fedmim.simulate(fedmim.FedAvg(), fedmim.Task(nn.Linear(4, 3), [(X, ignored)], (X, Y)), SETTINGS)


def test_a_loss_that_needs_more_than_two_samples_is_accepted():
    def loss(outputs, targets):
        if len(outputs) < 4:
            raise ValueError("needs four samples")
        return nn.functional.cross_entropy(outputs, targets)

    fedmim.simulate(fedmim.FedAvg(), fedmim.Task(nn.Linear(4, 3), [(X, Y)], (X, Y), loss=loss), SETTINGS)


def test_clients_that_are_read_on_access_and_live_data_are_not_read():
    class Unread:
        sizes = (6, 6)

        def __len__(self):
            return 2

        def __getitem__(self, client):
            raise AssertionError("read")

    task = fedmim.Task(nn.Linear(4, 3), Unread(), (X, Y))
    fedmim.rounds(fedmim.FedAvg(), task, SETTINGS, fedmim.Execution(engine="serial"))


class Noisy(nn.Linear):
    """Draws in evaluation mode, too."""

    def forward(self, x):
        return super().forward(x) + torch.randn(3)


def test_the_global_random_state_does_not_change():
    torch.manual_seed(0)
    expected = torch.rand(3)
    task = fedmim.Task(Noisy(4, 3), [(X, Y)], (X, Y))
    torch.manual_seed(0)
    fedmim.rounds(fedmim.FedAvg(), task, SETTINGS)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--method", "fedavg"],
        ["compare", "--methods", "fedavg", "--jobs", "1"],
        ["tune", "fedavg", "--trials", "1", "--jobs", "1"],
        ["theory", "--measure"],
    ],
    ids=lambda words: words[0],
)
def test_every_command_says_so_before_it_writes(words, tmp_path, capsys):
    (tmp_path / "net.py").write_text("from torch import nn\ndef net():\n    return nn.Linear(7, 10)\n")
    own = ["--model", f"{tmp_path / 'net.py'}:net", "--data", "digits", "--rounds", "1", "--out", str(tmp_path / "out")]
    assert main([*words, *own]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("fedmim: model: Linear fails on the test data (RuntimeError:")
    assert not (tmp_path / "out").exists()
