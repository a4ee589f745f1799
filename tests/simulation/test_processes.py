"""Worker processes: the serial run to the last bit, whatever the method."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from every_method import WITH_REFERENCES
from problems import classification
from torch import nn
from worker_runs import assert_same_bits, finished, protocol

import fedmim
from fedmim.simulation import engines
from fedmim.simulation.trainer import device_of

# A script as users write them: no `if __name__ == "__main__"`, its own model, loss and data.
SCRIPT = """
import torch, fedmim
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
    def forward(self, x):
        return self.linear(x).tanh()

torch.manual_seed(0)
clients = [(torch.randn(n, 4), torch.randint(0, 3, (n,))) for n in (5, 9, 7)]
task = fedmim.Task(Net(), clients, clients[0], loss=lambda out, y: nn.functional.cross_entropy(out, y))
settings = fedmim.Settings(rounds=2, participation=1.0, local_epochs=1, batch_size=4)
engines = [fedmim.Execution(engine=engine) for engine in ("serial", "processes")]
runs = [fedmim.simulate(fedmim.FedMIM(), task, settings, execution) for execution in engines]
print(torch.equal(runs[0].params, runs[1].params))
"""


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_processes_equal_serial_bit_for_bit(name):
    task = classification()
    runs = [
        finished(WITH_REFERENCES[name], task, engine=engine, participation=1.0, rounds=3)
        for engine in ("serial", "processes")
    ]
    assert runs[1][0].engine == "processes"
    assert_same_bits(*runs)


def test_unequal_work_dropouts_and_deadlines_are_the_same():
    changes = {"work": "uniform:0,2", "dropout": 0.2, "speed_spread": 0.5, "deadline": 1.0, "late": "partial"}
    runs = [
        finished(fedmim.Scaffold(), classification(), engine=engine, participation=1.0, rounds=3, **changes)
        for engine in ("serial", "processes")
    ]
    assert_same_bits(*runs)


def test_the_number_of_workers_changes_nothing():
    task = classification()
    assert_same_bits(*(finished(fedmim.Scaffold(), task, workers=workers) for workers in (1, 3)))


def test_buffers_random_layers_and_a_loss_without_a_name_are_the_same_in_a_worker():
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    task = classification((6, 8, 10, 4), model=model, loss=lambda outputs, y: nn.functional.cross_entropy(outputs, y))
    runs = [finished(fedmim.FedMIM(), task, engine=engine) for engine in ("serial", "processes")]
    assert_same_bits(*runs, clients=4)


@pytest.mark.parametrize(
    ("worth", "workers", "engine"), [(0.0, 2, "processes"), (0.0, 1, "serial"), (1e9, 2, "serial")]
)
def test_auto_takes_processes_for_long_runs_of_models_that_cannot_be_stacked(monkeypatch, worth, workers, engine):
    monkeypatch.setattr(engines, "WORTH_PROCESSES", worth)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).double()
    statistics = model[1].running_mean.clone()
    run = fedmim.rounds(fedmim.FedAvg(), classification(model=model), *protocol(engine="auto", workers=workers))
    assert run.engine == engine
    assert torch.equal(run.model[1].running_mean, statistics)  # timing a step has left them alone
    assert fedmim.rounds(fedmim.FedAvg(), classification(), *protocol(engine="auto")).engine == "vectorised"


def test_two_runs_may_take_turns():
    task = classification()
    alone = [finished(method, task) for method in (fedmim.FedAvg(), fedmim.FedDyn())]
    first, second = (fedmim.rounds(method, task, *protocol()) for method in (fedmim.FedAvg(), fedmim.FedDyn()))
    pairs = [(replace(a, seconds=0.0), replace(b, seconds=0.0)) for a, b in zip(first, second, strict=True)]
    assert [a for a, _ in pairs] == alone[0][1]
    assert [b for _, b in pairs] == alone[1][1]
    assert torch.equal(second.params, alone[1][0].params)


def test_a_client_that_fails_is_named_and_the_run_can_go_on(tmp_path):
    marker = tmp_path / "failed"

    def loss(outputs, targets):
        if len(targets) == 1 and not marker.exists():  # only the client of one sample
            marker.write_text("once")
            raise ArithmeticError("no luck")
        return nn.functional.cross_entropy(outputs, targets)

    task = classification((6, 1, 8), loss=loss)
    run = fedmim.rounds(fedmim.Scaffold(), task, *protocol(participation=1.0))
    with pytest.raises(ArithmeticError, match="no luck") as caught:
        list(run)
    assert caught.value.__notes__ == ["client 1 failed in round 1"]
    records = [replace(record, seconds=0.0) for record in run]
    assert_same_bits((run, records), finished(fedmim.Scaffold(), task, participation=1.0), clients=3)


def test_a_script_without_a_main_guard_trains_its_own_model(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


def test_workers_go_over_the_visible_gpus_in_turn():
    assert [str(device_of(worker, "cuda", 2)) for worker in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert str(device_of(3, "cuda:1", 2)) == "cuda:1"
    assert str(device_of(3, "cpu", 0)) == "cpu"
