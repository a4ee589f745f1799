"""Tracing: the same bits without the Python, and the function itself where a trace would not do."""

import torch
from torch import nn
from torch.func import grad_and_value, vmap

from fedmim.models import tracing
from fedmim.models.flat import FlatModel
from fedmim.models.tracing import Traced, trace


def arguments(rows=3, batch=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, 5 * 2 + 2, generator=generator)
    return w, torch.randn(rows, batch, 5, generator=generator), torch.randint(0, 2, (rows, batch), generator=generator)


def stacked(w, x, y):
    def loss(w, x, y):
        return nn.functional.cross_entropy(x @ w[:10].view(5, 2) + w[10:], y)

    gradients, losses = vmap(grad_and_value(loss))(w, x, y)
    return losses, gradients


def test_a_trace_replays_the_function_on_new_arguments_to_the_same_bits():
    replay = trace(stacked, *arguments())
    assert replay is not stacked
    for seed in range(1, 4):
        new = arguments(seed=seed)
        for replayed, expected in zip(replay(*new), stacked(*new), strict=True):
            assert torch.equal(replayed, expected)


def test_each_shape_is_traced_once_it_has_come_often_enough(monkeypatch):
    monkeypatch.setattr(tracing, "TRACE_AFTER", 3)
    calls = []

    def counted(*given):
        calls.append(given[0].shape)
        return stacked(*given)

    traced = Traced(counted)
    for number in range(6):
        for rows in (2, 3):
            new = arguments(rows=rows, seed=number)
            for one, other in zip(traced(*new), stacked(*new), strict=True):
                assert torch.equal(one, other)
    before = len(calls)
    traced(*arguments(rows=2))
    traced(*arguments(rows=3))
    assert len(calls) == before  # both replayed
    traced(*arguments(rows=4))
    assert len(calls) == before + 1


def test_a_function_whose_trace_gives_something_else_is_kept():
    values = iter(range(100))

    def changing(x):
        return (x + next(values),)

    assert trace(changing, torch.ones(2)) is changing


def test_a_stacked_model_gives_the_same_bits_before_and_after_tracing(monkeypatch):
    monkeypatch.setattr(tracing, "TRACE_AFTER", 2)
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 2))
    model = FlatModel(module, nn.functional.cross_entropy)
    w = model.params.expand(3, -1) + torch.arange(3)[:, None] / 10
    _, x, y = arguments()
    first, *others = [model.stacked_loss_and_gradient(w, x, y) for _ in range(4)]
    for other in others:
        assert torch.equal(first[0], other[0])
        assert torch.equal(first[1], other[1])
    looped = [model.loss_and_gradient(row, x[i], y[i]) for i, row in enumerate(w)]
    torch.testing.assert_close(first[1], torch.stack([gradient for _, gradient in looped]))
