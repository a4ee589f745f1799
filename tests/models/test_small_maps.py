from itertools import product

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import protocol
from torch import nn

import fedmim
from fedmim.models import FlatModel, make_model
from fedmim.models.exact_rewrites import adopt, release
from fedmim.models.small_maps import SmallMapConv2d, placement

SHAPES = [
    (size, kernel, stride, padding)
    for size, kernel, stride, padding in product((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3), (0, 1, 2))
    if kernel <= size + 2 * padding and padding < kernel
]


def dense_shapes():
    return [shape for shape in SHAPES if placement(*shape)]


def test_the_shapes_of_a_resnet_are_among_them():
    assert {(1, 3, 1, 1), (2, 3, 2, 1), (2, 1, 2, 0), (2, 3, 1, 1)} <= set(dense_shapes())
    assert not {(4, 3, 1, 1), (3, 3, 1, 1), (2, 1, 1, 0), (4, 3, 2, 1)} & set(dense_shapes())


@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_taken_just_where_every_output_meets_every_pixel_that_is_met_at_all(shape):
    size, kernel, stride, padding = shape
    image = torch.eye(size, dtype=torch.float64)[:, None]  # one lit pixel a sample, along one side
    met = F.conv1d(image, torch.ones(1, 1, kernel, dtype=torch.float64), stride=stride, padding=padding)[:, 0] != 0
    reached = met.any(1)  # pixels that some output meets
    everywhere = bool(met[reached].all()) and bool(reached.any())
    prefix = reached.tolist() == sorted(reached.tolist(), reverse=True)
    assert (placement(*shape) is not None) == (everywhere and prefix)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shape", dense_shapes())
def test_it_is_the_convolution_and_so_are_its_gradients(shape, layout, bias):
    size, kernel, stride, padding = shape
    generator = torch.Generator().manual_seed(0)
    conv = nn.Conv2d(3, 5, kernel, stride, padding, bias=bias).double()
    x = torch.randn(4, 3, size, size, dtype=torch.float64, generator=generator).contiguous(memory_format=layout)
    x.requires_grad_()
    expected = F.conv2d(x, conv.weight, conv.bias, stride, padding)
    weights = torch.randn(expected.shape, dtype=torch.float64, generator=generator)
    inputs = [x, *conv.parameters()]
    expected_gradients = torch.autograd.grad((expected * weights).sum(), inputs)
    adopt(conv)
    assert type(conv) is SmallMapConv2d
    found = conv(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-14)
    gradients = torch.autograd.grad((found * weights).sum(), inputs)
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=2e-14)


def test_maps_whose_sides_differ():
    conv = nn.Conv2d(2, 3, (3, 5), (1, 2), (1, 2)).double()
    x = torch.randn(4, 2, 2, 3, dtype=torch.float64)
    expected = conv(x)
    adopt(conv)
    torch.testing.assert_close(conv(x), expected, rtol=0, atol=1e-14)


def test_larger_maps_stay_with_the_convolution():
    conv = nn.Conv2d(2, 3, 3, padding=1)
    x = torch.randn(4, 2, 8, 8)
    expected = conv(x)
    adopt(conv)
    assert torch.equal(conv(x), expected)


def test_other_convolutions_are_left_alone():
    class Own(nn.Conv2d):
        pass

    others = [
        nn.Conv2d(4, 4, 3, padding=1, groups=2),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(4, 4, 3, padding="same"),
        Own(4, 4, 3, padding=1),
    ]
    module = nn.Sequential(*others)
    adopt(module)
    assert not any(isinstance(part, SmallMapConv2d) for part in module)


def test_resnet18_has_the_gradient_of_its_stock_modules():
    module = make_model("resnet18", (3, 32, 32), 10).double()
    x, y = torch.randn(2, 3, 32, 32, dtype=torch.float64), torch.tensor([1, 7])
    loss = F.cross_entropy(module(x), y)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))])
    flat = FlatModel(module, F.cross_entropy)
    assert sum(isinstance(part, SmallMapConv2d) for part in flat.module.modules()) == 20
    found_loss, found = flat.loss_and_gradient(flat.params, x, y)
    torch.testing.assert_close(found_loss, loss.detach(), rtol=1e-12, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_the_user_gets_stock_modules_back():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(2, 2))
    data = torch.randn(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    task = fedmim.Task(module, [data], data)
    result = fedmim.simulate(fedmim.FedAvg(), task, *protocol(rounds=1, participation=1.0, engine="serial"))
    assert type(module[0]) is nn.Conv2d
    assert type(result.model[0]) is nn.Conv2d
    adopt(module)
    release(module)
    assert type(module[0]) is nn.Conv2d


def test_a_stack_of_models_takes_it_too():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(8, 2)).double()
    flat = FlatModel(module, F.cross_entropy)
    w = torch.randn(3, len(flat.params), dtype=torch.float64)
    x, y = torch.randn(3, 4, 1, 2, 2, dtype=torch.float64), torch.randint(0, 2, (3, 4))
    losses, gradients = flat.stacked_loss_and_gradient(w, x, y)
    for row in range(3):
        loss, g = flat.loss_and_gradient(w[row].clone(), x[row], y[row])
        torch.testing.assert_close(losses[row], loss)
        torch.testing.assert_close(gradients[row], g)
