"""FlatModel: a module as a function of one vector. Its gradients are autograd's, and pointing it costs nothing."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import network, samples, seeded
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedmim.errors import UserError
from fedmim.models import FlatModel


class Tied(nn.Module):
    """One weight used twice, and one parameter not used at all."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.unused = nn.Parameter(torch.ones(2))
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.second(self.first(x).tanh()))


def partly_frozen():
    model = network()
    model[0].bias.requires_grad_(False)
    return model


MODELS = {
    "network": network,
    "convolution": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3)
    ).double(),
    "tied and unused": lambda: Tied().double(),
    "partly frozen": partly_frozen,
    "group norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)).double(),
}


def trainable(module):
    return [p for p in module.parameters() if p.requires_grad]


def plain_gradient(module, w, x, y):
    module = copy.deepcopy(module)
    vector_to_parameters(w, trainable(module))
    loss = F.cross_entropy(module(x), y)
    loss.backward()
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in trainable(module)]
    return loss.item(), parameters_to_vector(gradients)


def points(model, count):
    return model.params + 0.3 * torch.randn(count, len(model.params), generator=seeded(1), dtype=model.params.dtype)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradient_is_that_of_autograd_on_the_plain_module(name):
    module = MODELS[name]()
    model = FlatModel(module, F.cross_entropy)
    assert torch.equal(model.params, parameters_to_vector(trainable(module)))
    for client, w in enumerate(points(model, 3)):
        x, y = samples(6, client)
        loss, gradient = model.loss_and_gradient(w, x, y)
        expected_loss, expected = plain_gradient(module, w, x, y)
        assert loss.item() == pytest.approx(expected_loss, rel=1e-13)
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)
        assert not loss.requires_grad


@pytest.mark.parametrize("name", MODELS)
def test_stacked_gradients_are_those_of_a_loop(name):
    module = MODELS[name]()
    model = FlatModel(module, F.cross_entropy)
    stack = points(model, 4)
    x, y = (torch.stack(parts) for parts in zip(*(samples(5, client) for client in range(4)), strict=True))
    before = stack.clone()
    losses, gradients = model.stacked_loss_and_gradient(stack, x, y)
    for row in range(4):
        loss, expected = plain_gradient(module, stack[row], x[row], y[row])
        assert losses[row].item() == pytest.approx(loss, rel=1e-13)
        torch.testing.assert_close(gradients[row], expected, rtol=1e-12, atol=1e-13)
    assert torch.equal(stack, before)


def test_pointing_copies_nothing():
    model = FlatModel(network(), F.cross_entropy)
    w = points(model, 1)[0]
    module = model.point_at(w)
    storage = w.untyped_storage().data_ptr()
    assert all(p.untyped_storage().data_ptr() == storage for p in module.parameters())
    w.zero_()  # a vector that is updated in place is the model
    assert not any(p.any() for p in module.parameters())
    assert model.params is w


def test_a_gradient_at_one_point_leaves_other_vectors_alone():
    model = FlatModel(network(), F.cross_entropy)
    first, second = points(model, 2)
    first_before, second_before = first.clone(), second.clone()
    for w in (first, second, first):
        model.loss_and_gradient(w, *samples(3, 0))
    assert torch.equal(first, first_before)
    assert torch.equal(second, second_before)


def test_the_users_module_is_left_alone():
    module = network()
    before = copy.deepcopy(module.state_dict())
    model = FlatModel(module, F.cross_entropy)
    model.params.zero_()
    model.point_at(points(model, 1)[0])
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_vector_goes_to_tensors_and_back():
    model = FlatModel(network(), F.cross_entropy)
    w = points(model, 1)[0]
    assert torch.equal(torch.cat([part.reshape(-1) for part in model.unflatten(w)]), w)
    assert [part.shape for part in model.unflatten(points(model, 7))] == [(7, *shape) for shape in model.shapes]
    assert model.names == ("0.weight", "0.bias", "2.weight", "2.bias")


def test_buffers_are_one_vector_that_can_be_set():
    model = FlatModel(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)), F.cross_entropy)
    assert model.buffers.tolist() == [0, 0, 1, 1, 0]  # running mean, running variance, batches seen
    model.buffers = torch.tensor([0.5, -0.5, 2.0, 3.0, 6.6], dtype=torch.float64)
    norm = model.module[1]
    assert norm.running_mean.tolist() == [0.5, -0.5]
    assert norm.running_var.tolist() == [2.0, 3.0]
    assert norm.num_batches_tracked.item() == 7
    model.buffers.fill_(9.0)  # a copy
    assert norm.running_mean.tolist() == [0.5, -0.5]


def test_a_model_without_buffers_has_an_empty_vector():
    model = FlatModel(network(), F.cross_entropy)
    assert len(model.buffers) == 0
    model.buffers = model.buffers


def test_the_module_to_keep_is_independent():
    model = FlatModel(network(), F.cross_entropy)
    w = points(model, 1)[0]
    kept = model.module_at(w, model.buffers)
    assert torch.equal(parameters_to_vector(kept.parameters()), w)
    before = w.clone()
    model.point_at(points(model, 2)[1])
    w.zero_()
    assert torch.equal(parameters_to_vector(kept.parameters()), before)
    loss = model.loss_and_gradient(before, *samples(3, 0))[0]
    nn.init.zeros_(kept[0].weight)
    assert torch.equal(model.loss_and_gradient(before, *samples(3, 0))[0], loss)


@pytest.mark.parametrize(
    "module",
    [
        nn.Flatten(),
        network().requires_grad_(False),
        nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()),
    ],
    ids=["none", "all frozen", "two types"],
)
def test_a_model_that_is_no_vector_is_rejected(module):
    with pytest.raises(UserError, match=r"^model: "):
        FlatModel(module, F.cross_entropy)


class Viewing(nn.Module):
    """A network as many write it, whose `view` takes no batch with channels last."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(2, 3, 3)
        self.statistics = nn.BatchNorm2d(3)
        self.linear = nn.Linear(3 * 4 * 4, 2)

    def forward(self, x):
        return self.linear(self.statistics(self.convolution(x)).view(-1, 3 * 4 * 4))


@pytest.mark.parametrize("reshapes", [True, False])
def test_the_layout_of_a_batch_changes_no_gradient_and_is_left_alone_where_the_model_does_not_admit_another(reshapes):
    module = Viewing().double()
    if reshapes:
        parts = (module.convolution, module.statistics, nn.Flatten(), module.linear)
        module = nn.Sequential(*parts)
    model = FlatModel(module, F.cross_entropy)
    x, y = torch.randn(5, 2, 6, 6, dtype=torch.float64), torch.tensor([0, 1, 1, 0, 1])
    before = model.buffers
    assert model.laid_out(x).is_contiguous(memory_format=torch.channels_last) == reshapes
    assert torch.equal(model.buffers, before)
    _, gradient = model.loss_and_gradient(model.params, x, y)
    expected = torch.autograd.grad(F.cross_entropy(module(x), y), list(module.parameters()))
    torch.testing.assert_close(gradient, torch.cat([part.flatten() for part in expected]))
    assert model.laid_out(x[:, 0]) is not None
    assert model.laid_out(x[0]).shape == x[0].shape  # not a batch of images
