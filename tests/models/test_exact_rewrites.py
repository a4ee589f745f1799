from itertools import product

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from problems import protocol
from torch import nn

import fedmim
from fedmim.models import FlatModel, make_model
from fedmim.models.exact_rewrites import LateReLU, SmallMapConv2d, adopt, placement, release

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
def test_the_product_is_the_convolution_and_so_are_its_gradients(shape, layout, bias):
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


def test_a_stack_of_models_takes_the_product_too():
    module = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(8, 2)).double()
    flat = FlatModel(module, F.cross_entropy)
    w = torch.randn(3, len(flat.params), dtype=torch.float64)
    x, y = torch.randn(3, 4, 1, 2, 2, dtype=torch.float64), torch.randint(0, 2, (3, 4))
    losses, gradients = flat.stacked_loss_and_gradient(w, x, y)
    for row in range(3):
        loss, g = flat.loss_and_gradient(w[row].clone(), x[row], y[row])
        torch.testing.assert_close(losses[row], loss)
        torch.testing.assert_close(gradients[row], g)


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
    adopt(module)
    assert type(module) is LateReLU
    for found, value in zip(gradients(module, x), expected, strict=True):
        assert torch.equal(found, value)


def test_relu_is_called_after_pooling_and_flattening():
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 1))
    shapes = []
    module[0].register_forward_hook(lambda _, inputs, __: shapes.append(inputs[0].shape))
    x = torch.randn(1, 1, 8, 8)
    module(x)
    adopt(module)
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
        adopt(module)
        module(x)
        assert called == list(module)


def test_release_gives_stock_modules_back():
    module = nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU()), nn.MaxPool2d(2))
    adopt(module)
    release(module)
    assert [type(part) for part in module.modules()] == [nn.Sequential, nn.Sequential, nn.Conv2d, nn.ReLU, nn.MaxPool2d]
