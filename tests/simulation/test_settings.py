"""Settings are checked when made, by name; their small arithmetic is that of the paper."""

from __future__ import annotations

import math

import pytest
import torch

import fedmim
from fedmim.errors import UserError

NAN, INF = math.nan, math.inf
UNFIT = {
    "rounds": [0, -1, 1.5, None, 2**63, True],
    "participation": [0, 0.0, -0.1, 1.1, NAN],
    "local_epochs": [0, -1, True, 0.0, -0.5, NAN, INF, 1e300, None],
    "local_steps": [0, -3, 2.5],
    "batch_size": [0, -1, 12.5],
    "lr": [0.0, -0.1, NAN, INF, None, 1e300, 2e9],
    "lr_decay": [0.0, -0.5, NAN, INF, None],
    "lr_schedule": [
        *("", "linear", "Cosine", "cosine:3", "constant:", "step", "step:", "step:5", "step:5,0.1,1", "step:a,0.1"),
        *("step:0,0.1", "step:-5,0.1", "step:2.5,0.1", "step:5,0", "step:5,-1", "step:5,nan", "step:5,inf", None),
    ],
    "weight_decay": [-1e-3, NAN, INF, 1e300],
    "clip_norm": [0.0, -1.0, NAN, INF, 1e300],
    "server_lr": [0.0, -1.0, NAN, INF, 1e300],
    "weighting": ["size", "", "Equal"],
    "history": ["client", "", "Server"],
    "aggregation": ["average", "", "Mean"],
    "trim": [0, 0.5, -0.1, NAN],
    "max_distance": [0.0, -1.0, NAN, INF, 1e300],
    "max_distance_ratio": [0.0, 0.9, NAN, INF, 1e300],
    "min_replies": [0, -1, 1.5, None],
    "dp_noise": [0.0, -1.0, NAN, INF, 1e300],
    "dp_clip": [0.0, -1.0, NAN, INF, 1e300],
    "dp_clip_quantile": [0.0, 1.0, NAN, 0.5],
    "dp_delta": [0.0, 1.0, NAN],
    "eval_every": [0, -1, 2.5, None],
    "until": [0, 0.0, -0.1, 1.1, 90, NAN],
    "patience": [0, -1, 2.5],
    "seed": [-1, 0.5, None, 2**63],
    "work": [
        *("", "uniform", "uniform:1", "uniform:2,1", "uniform:0,0", "uniform:-1,1", "uniform:0,nan", "uniform:0,inf"),
        *("uniform:0,1,0", "uniform:0,1,1.1", "uniform:0,1,1,1", "uniform:a,b", "normal:0,1", "uniform:0,1001", "0,1"),
    ],
    "dropout": [-0.1, 1.0, NAN],
    "speed_spread": [-0.1, 11.0, NAN, INF],
    "deadline": [0.0, -1.0, NAN, INF, 1e300],
    "late": ["wait", "", "partial"],  # the last needs a deadline
    "availability": [0.0, -0.1, 1.1, NAN],
    "rounds_per_day": [0, -1, 1.5, None],
}
UNFIT_EXECUTION = {"engine": ["gpu", ""], "workers": [0, -1, 1.5, 10**10]}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in UNFIT.items() for value in values])
def test_an_unfit_value_is_rejected_by_name(field, value):
    with pytest.raises(UserError, match=f"^{field}: "):
        fedmim.Settings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, values in UNFIT_EXECUTION.items() for value in values]
)
def test_an_unfit_execution_is_rejected_by_name(field, value):
    with pytest.raises(UserError, match=f"^{field}: "):
        fedmim.Execution(**{field: value})


FIT = {
    "batch_size": None,
    "local_steps": None,
    "clip_norm": None,
    "server_lr": None,
    "weight_decay": 0.0,
    "participation": 1,
    "lr_decay": 1.0,
    "seed": 0,
    "rounds": 1,
    "max_distance": None,
    "max_distance_ratio": 1.0,
    "aggregation": "median",
}


@pytest.mark.parametrize(
    ("field", "value"), [*FIT.items(), *(("history", value) for value in ("server", "catch-up", "broadcast"))]
)
def test_a_fit_value_is_taken_as_it_is(field, value):
    assert getattr(fedmim.Settings(**{field: value}), field) == value


@pytest.mark.parametrize(
    ("participation", "clients", "active"),
    [
        *((0.1, 100, 10), (0.3, 10, 3), (0.02, 500, 10), (0.05, 500, 25), (1.0, 7, 7), (0.26, 10, 3), (0.24, 10, 2)),
        *((0.001, 10, 1), (0.05, 10, 1), (1e-6, 1_000_000, 1), (0.29, 100, 29), (0.57, 100, 57), (0.5, 1, 1)),
    ],
)
def test_the_number_of_active_clients_is_the_rounded_part_and_at_least_one(participation, clients, active):
    assert fedmim.Settings(participation=participation).active(clients) == active


@pytest.mark.parametrize(
    ("settings", "samples", "steps"),
    [
        ({"local_epochs": 5, "batch_size": 50}, 500, 50),
        ({"local_epochs": 5, "batch_size": 50}, 501, 55),
        ({"local_epochs": 2, "batch_size": 50}, 3, 2),
        ({"local_epochs": 4, "batch_size": None}, 123, 4),
        ({"local_epochs": 5, "batch_size": 50, "drop_last": True}, 501, 50),
        ({"local_epochs": 4, "batch_size": None, "drop_last": True}, 123, 4),
        ({"local_steps": 7, "batch_size": 50}, 3, 7),
        ({"local_epochs": 0.5, "batch_size": 50}, 500, 5),
        ({"local_epochs": 0.5, "batch_size": 50}, 501, 6),  # ceil(5.5)
        ({"local_epochs": 0.01, "batch_size": 50}, 500, 1),
        ({"local_epochs": 1.5, "batch_size": 50}, 130, 5),  # ceil(4.5)
        ({"local_epochs": 0.5, "batch_size": None}, 123, 1),
        ({"local_epochs": 0.5, "batch_size": 50, "drop_last": True}, 590, 6),  # ceil(5.5)
        ({"local_epochs": 0.07, "batch_size": 1}, 100, 7),  # 0.07 * 100 is 7.000000000000001 in floats
        ({"local_steps": 7, "batch_size": None}, 1000, 7),
    ],
)
def test_a_client_takes_an_epochs_worth_of_batches_for_each_epoch_or_the_steps_set(settings, samples, steps):
    assert fedmim.Settings(**settings).steps(samples) == steps


def test_the_rate_falls_by_its_factor_after_every_round():
    settings = fedmim.Settings(lr=0.5, lr_decay=0.1)
    assert [settings.lr_at(t) for t in range(3)] == pytest.approx([0.5, 0.05, 0.005])


def test_a_whole_number_of_epochs_is_an_int_however_it_is_given():
    for given in (5, 5.0):
        epochs = fedmim.Settings(local_epochs=given).local_epochs
        assert (epochs, type(epochs)) == (5, int)
    assert fedmim.Settings(local_epochs=0.5).local_epochs == 0.5


@pytest.mark.parametrize(("factor", "steps"), [(0.0, 1), (0.3, 2), (0.5, 3), (1.0, 5), (2.0, 10)])
def test_unequal_work_of_a_part_of_an_epoch_is_rounded_up_to_steps(factor, steps):
    assert fedmim.Settings(local_epochs=0.5, batch_size=10).steps(100, factor) == steps  # ceil(factor * 5)


def test_the_defaults():
    expected = fedmim.Settings(
        rounds=100,
        participation=0.1,
        local_epochs=5,
        batch_size=50,
        drop_last=False,
        lr=0.1,
        lr_decay=0.998,
        weight_decay=1e-3,
        clip_norm=10.0,
        server_lr=None,
        seed=0,
        weighting="equal",
        history="server",
        aggregation="mean",
        trim=0.2,
        max_distance=None,
        max_distance_ratio=None,
        min_replies=1,
        dp_noise=None,
        dp_clip=None,
        dp_clip_quantile=None,
        dp_delta=1e-5,
        eval_every=1,
    )
    assert fedmim.Settings() == expected
    assert fedmim.Execution() == fedmim.Execution(engine="auto", workers=None, device="cpu", data_dir=None)


def tiny_task():
    pair = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    return fedmim.Task(model=torch.nn.Linear(3, 2), clients=[pair], test=pair)


@pytest.mark.parametrize("device", ["cuda:99", "abacus"] + ["cuda"] * (not torch.cuda.is_available()))
def test_a_device_that_is_not_there_is_rejected_before_any_work(device):
    with pytest.raises(UserError, match=r"^device: "):
        fedmim.rounds(fedmim.FedAvg(), tiny_task(), None, fedmim.Execution(device=device))


def test_feddyn_takes_no_server_rate_but_one():
    with pytest.raises(UserError, match=r"^server_lr: "):
        fedmim.rounds(fedmim.FedDyn(), tiny_task(), fedmim.Settings(server_lr=0.5))
    fedmim.simulate(fedmim.FedDyn(), tiny_task(), fedmim.Settings(server_lr=1.0, rounds=1))


def test_the_learning_rate_of_the_last_round_is_checked_before_the_first():
    with pytest.raises(UserError, match=r"^lr_decay: 10 gives a learning rate of inf in round 400.*lower lr_decay"):
        fedmim.Settings(lr_decay=10.0, rounds=400)  # 10 ** 399 is no float
    with pytest.raises(UserError, match=r"^lr_decay: 10 gives a learning rate of 1e\+10 in round 12"):
        fedmim.Settings(lr=0.1, lr_decay=10.0, rounds=12)
    with pytest.raises(
        UserError, match=r"^lr_schedule: step:1,10 gives a learning rate of inf.*lower FACTOR or rounds"
    ):
        fedmim.Settings(lr_schedule="step:1,10", rounds=400)
    assert fedmim.Settings(lr=0.1, lr_decay=10.0, rounds=10).lr_at(9) == pytest.approx(1e8)
    assert fedmim.Settings(lr_decay=0.5, rounds=10**18).lr_at(10**18 - 1) == 0.0
