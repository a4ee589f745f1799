"""The built-in networks: their sizes by hand, their seeds, and the images that they reject."""

from __future__ import annotations

import pytest
import torch

from fedmim.errors import UserError
from fedmim.models import MODELS, make_model
from fedmim.models.networks import TEXT_MODELS, BasicBlock

CIFAR = (3, 32, 32)


def linear(inputs, outputs):
    return inputs * outputs + outputs


def convolution(inputs, outputs, size):
    return inputs * outputs * size * size + outputs


def residual(inputs, outputs):
    """Two 3x3 convolutions without bias, a scale and shift for each norm; a 1x1 shortcut where widths differ."""
    block = 9 * inputs * outputs + 9 * outputs * outputs + 4 * outputs
    return block + (inputs * outputs + 2 * outputs if inputs != outputs else 0)


COUNTS = {  # of parameters for 3x32x32 and 10 classes: counted layer by layer, and in all
    "logistic": (linear(3072, 10), 30_730),
    "mlp": (linear(3072, 64) + linear(64, 10), 197_322),
    "mlp2": (linear(3072, 100) + linear(100, 100) + linear(100, 10), 318_410),
    "cnn": (convolution(3, 16, 3) + convolution(16, 32, 3) + linear(32 * 8 * 8, 64) + linear(64, 10), 136_874),
    "lenet": (
        convolution(3, 64, 5) + convolution(64, 64, 5) + linear(64 * 5 * 5, 384) + linear(384, 192) + linear(192, 10),
        797_962,
    ),
    "resnet18": (
        (49 * 3 * 64 + 2 * 64)
        + sum(residual(a, b) + residual(b, b) for a, b in [(64, 64), (64, 128), (128, 256), (256, 512)])
        + linear(512, 10),
        11_181_642,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_number_of_parameters(name):
    by_layer, known = COUNTS[name]
    count = sum(p.numel() for p in make_model(name, CIFAR, 10).parameters())
    assert count == by_layer == known


def test_there_are_no_networks_untested():
    assert set(MODELS) == {*COUNTS, *TEXT_MODELS}  # test_text_networks.py has those for text


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *((name, CIFAR) for name in COUNTS),
        ("cnn", (1, 28, 28)),
        ("cnn", (1, 8, 8)),
        ("cnn", (3, 5, 7)),
        ("cnn", (1, 4, 4)),
        ("lenet", (1, 28, 28)),
        ("lenet", (3, 16, 16)),
        ("lenet", (3, 17, 23)),
        ("resnet18", (3, 64, 64)),
        ("resnet18", (1, 8, 8)),
        ("mlp", (13,)),
        ("logistic", (1, 8, 8)),
    ],
)
def test_it_takes_a_batch_to_scores(name, shape):
    model = make_model(name, shape, 7)
    outputs = model(torch.rand(2, *shape))
    assert outputs.shape == (2, 7)
    assert outputs.isfinite().all()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cnn", (1, 3, 3)), ("cnn", (13,)), ("lenet", (3, 15, 32)), ("lenet", (3, 8, 8)), ("resnet18", (3, 4, 4))],
)
def test_images_that_are_too_small_are_rejected_with_what_to_use(name, shape):
    with pytest.raises(UserError, match=f"^model: {name} .*mlp"):
        make_model(name, shape, 10)


def test_an_unknown_network_gets_the_nearest_known_one():
    with pytest.raises(UserError, match=r"^model: .*resnet18"):
        make_model("resnet", CIFAR, 10)


@pytest.mark.parametrize("name", ["logistic", "mlp", "cnn"])
def test_weights_follow_the_seed_and_the_global_generator_is_left_alone(name):
    torch.manual_seed(9)
    before = torch.get_rng_state()
    one, same, other = (make_model(name, (1, 8, 8), 10, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(10)
    again = make_model(name, (1, 8, 8), 10, 1).state_dict()
    for key in one:
        assert torch.equal(one[key], same[key])
        assert torch.equal(one[key], again[key])
        assert not torch.equal(one[key], other[key])


def test_resnet_normalises_in_two_groups_and_has_no_buffers():
    model = make_model("resnet18", CIFAR, 10)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.GroupNorm)]
    assert len(norms) == 1 + 2 * 8 + 3
    assert {norm.num_groups for norm in norms} == {2}
    assert not list(model.buffers())


def test_a_residual_block_adds_its_shortcut():
    """With its second convolution at zero the block is relu(x + the shift of the last norm, zero)."""
    block = BasicBlock(4, 4, 1)
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.randn(2, 4, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(block(x), x.relu())


def test_a_model_that_does_not_fit_into_memory_is_rejected_before_it_is_made(monkeypatch):
    monkeypatch.setattr("fedmim.memory.available_memory", lambda: 10**9)
    message = r"^model: mlp for inputs of 64 and 1,000,000,000 classes needs about 1,040 GB of memory, but 1\.0 GB"
    with pytest.raises(UserError, match=message):  # 65 outgoing weights a class and copies of 16 bytes
        make_model("mlp", (64,), 10**9)
    assert sum(each.numel() for each in make_model("mlp", (64,), 10).parameters()) == linear(64, 64) + linear(64, 10)
