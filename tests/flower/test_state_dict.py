"""The state dict as Flower's arrays: the model's own names both ways, and nothing but whole arrays is read."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord
from problems import BUSY, classification
from torch import nn
from torch.nn.functional import cross_entropy

import fedmim
from fedmim.errors import UserError
from fedmim.flower.state_dict import StateDict, decode
from fedmim.models import FlatModel


class Awkward(nn.Module):
    """Tied weights, a frozen layer, batch norm, a constant buffer and one that is not in the state dict."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.last = nn.Linear(4, 3)
        self.register_buffer("mask", torch.full((4,), -torch.inf))
        self.register_buffer("seen", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.seen += 1
        return self.last(self.frozen(self.second(self.norm(self.first(x)))))


def test_an_unchanged_client_loads_what_is_sent():
    model = Awkward()
    flat, layout = FlatModel(model, cross_entropy), StateDict(model)
    params = torch.randn(layout.size)
    record = layout.record(params, flat.buffer_tensors)
    assert list(record) == list(model.state_dict())
    other = Awkward()
    other.load_state_dict(record.to_torch_state_dict())  # strict
    assert torch.equal(FlatModel(other, cross_entropy).params, params)
    assert torch.equal(other.frozen.weight, model.frozen.weight)


def test_what_was_written_is_read_back():
    model = Awkward()
    flat, layout, params = FlatModel(model, cross_entropy), StateDict(model), torch.randn(StateDict(model).size)
    assert layout.size == len(flat.params)
    read = layout.empty()
    buffers = layout.read(layout.record(params, flat.buffer_tensors), read)
    assert torch.equal(read, params)
    assert sorted([*buffers, *layout.other_buffers]) == list(range(len(layout.buffers)))
    assert layout.other_buffers  # "seen"


def test_an_array_in_fortran_order_is_read():
    weight = torch.randn(3, 5)
    array = Array(np.asfortranarray(weight.numpy()))
    assert b"'fortran_order': True" in array.data
    assert np.array_equal(decode(array, (3, 5), torch.float32, "w"), weight.numpy())


def test_a_pickle_is_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (tmp_path.joinpath("exploded").mkdir, ())

    for data in (pickle.dumps(Bomb()), Array(np.zeros(4, "float32")).data[:128] + pickle.dumps(Bomb())):
        with pytest.raises(ValueError, match="w has"):
            decode(Array("float32", (4,), "numpy.ndarray", data), (4,), torch.float32, "w")
    assert not (tmp_path / "exploded").exists()


def test_a_state_dict_of_a_different_model_is_rejected_with_the_names():
    layout = StateDict(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"it comes without 'bias', 'weight' and with '0\.bias', '0\.weight'"):
        layout.read(ArrayRecord(nn.Sequential(nn.Linear(2, 2)).state_dict()), layout.empty())
    with pytest.raises(ValueError, match=r"weight is \(3, 2\) of float32, expected \(2, 2\) of float32"):
        layout.read(ArrayRecord(nn.Linear(2, 3).state_dict()), layout.empty())


def test_bfloat16_is_rejected():
    with pytest.raises(UserError, match="bfloat16"):
        StateDict(nn.Linear(2, 2).bfloat16())


def test_an_awkward_model_trains_over_flower_as_in_the_simulator(tmp_path):
    from loopback import assert_same, federation, run_simulator

    from fedmim.flower import FlowerStrategy, client_app

    torch.manual_seed(0)
    task = classification(sizes=(8, 6, 10), dtype=torch.float32, model=Awkward())
    settings = fedmim.Settings(**BUSY | {"batch_size": None, "participation": 1.0, "rounds": 3})
    app = client_app(lambda partition, context: task, fedmim.FedMIM(), settings)
    strategy = FlowerStrategy(fedmim.FedMIM(), task.model, settings, clients=3, wait=0.0)
    models = []
    strategy.start(
        federation(app, 3, tmp_path), evaluate_fn=lambda round, arrays: models.append(arrays.to_torch_state_dict())
    )
    assert_same(models[1:], run_simulator(fedmim.FedMIM(), task, settings)[1])
