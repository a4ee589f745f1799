import pytest
import torch
from torch import nn

from fedmim.models import exact_rewrites


def gradients(module, x):
    x = x.clone().requires_grad_()
    out = module(x)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out.detach(), *torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])


@pytest.mark.parametrize(
    "parts",
    [
        (nn.ReLU(), nn.MaxPool2d(2)),
        (nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)),
        (nn.ReLU(), nn.MaxPool2d(3, 1, ceil_mode=True), nn.MaxPool2d(2), nn.ReLU()),
        (nn.ReLU(), nn.ReLU(), nn.MaxPool2d(2, dilation=2), nn.Conv2d(4, 2, 1), nn.ReLU(), nn.MaxPool2d(2)),
        (nn.ReLU(), nn.Flatten(), nn.Linear(576, 3), nn.ReLU()),
        (nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(2), nn.Flatten(), nn.Linear(144, 3)),
    ],
)
def test_relu_after_pooling_and_flattening_gives_the_same_bits_and_gradients(parts):
    x = torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(0)).mul(4).round()  # with ties, and zeros
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *parts)
    with torch.no_grad():
        module[0].weight.copy_(module[0].weight.mul(4).round())  # whole numbers, so that outputs tie too
        module[0].bias.zero_()
    expected = gradients(module, x)
    exact_rewrites.adopt(module)
    assert type(module) is exact_rewrites.LateReLU
    for found, value in zip(gradients(module, x), expected, strict=True):
        assert torch.equal(found, value)


def test_it_is_in_that_order():
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 1))
    shapes = []
    module[0].register_forward_hook(lambda _, inputs, __: shapes.append(inputs[0].shape))
    x = torch.randn(1, 1, 8, 8)
    module(x)
    exact_rewrites.adopt(module)
    module(x)
    assert shapes == [(1, 1, 8, 8), (1, 16)]


def test_what_is_not_a_plain_pair_stays_in_its_order():
    class Own(nn.ReLU):
        pass

    x = torch.randn(1, 1, 8, 8)
    for module in (
        nn.Sequential(nn.MaxPool2d(2), nn.ReLU()),
        nn.Sequential(Own(), nn.MaxPool2d(2)),
        nn.Sequential(nn.ReLU(), nn.AvgPool2d(2)),
        nn.Sequential(nn.ReLU(), nn.MaxPool2d(2, return_indices=True)),
    ):
        called = []
        for part in module:
            part.register_forward_hook(lambda part, *_, called=called: called.append(part))
        exact_rewrites.adopt(module)
        module(x)
        assert called == list(module)


def test_release_gives_stock_modules_back():
    module = nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()), nn.MaxPool2d(2))
    exact_rewrites.adopt(module)
    exact_rewrites.release(module)
    assert [type(part) for part in module.modules()] == [nn.Sequential, nn.Sequential, nn.Conv2d, nn.ReLU, nn.MaxPool2d]
