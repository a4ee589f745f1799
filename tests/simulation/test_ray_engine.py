"""The ray engine: the serial run to the last bit, for any nodes, and when workers and nodes are lost."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from every_method import WITH_REFERENCES
from problems import busy, classification, slow_cross_entropy
from ray_clusters import add_a_node, ray_cluster, remove_a_node
from torch import nn
from worker_runs import assert_same_bits, finished

import fedmim
from fedmim.errors import UserError
from fedmim.simulation.packing import pack_value, unpack
from fedmim.simulation.ray_actors import RayAdder
from fedmim.simulation.ray_pool import RayPool
from fedmim.simulation.ray_round import parts_of

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(3) as made:
        yield made
        RayPool._pool = None


def both(cluster, method, task, **changes):
    """The same run on the serial and on the ray engine."""
    return [
        finished(method, task, **{"rounds": 3, "engine": engine, "ray": cluster.address, "workers": None} | changes)
        for engine in ("serial", "ray")
    ]


@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_ray_equals_serial_bit_for_bit(cluster, name):
    runs = both(cluster, WITH_REFERENCES[name], classification(), participation=1.0)
    assert runs[1][0].engine == "ray"
    assert_same_bits(*runs)
    assert WITH_REFERENCES[name].pooled or len(RayPool._pool.nodes) == 3  # all nodes took part


def test_many_clients_of_unequal_weight_in_several_blocks_are_the_same(cluster):
    task = classification(tuple(1 + (7 * i) % 12 for i in range(45)))
    assert_same_bits(*both(cluster, fedmim.Scaffold(), task, participation=1.0, weighting="samples"))


def test_unequal_work_dropouts_and_deadlines_are_the_same(cluster):
    changes = {"work": "uniform:0,2", "dropout": 0.2, "speed_spread": 0.5, "deadline": 1.0, "late": "partial"}
    assert_same_bits(*both(cluster, fedmim.Scaffold(), classification(), participation=1.0, **changes))


def test_buffers_random_layers_and_a_loss_without_a_name_are_the_same(cluster):
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 3)).double()
    task = classification((6, 8, 10, 4), model=model, loss=lambda outputs, y: nn.functional.cross_entropy(outputs, y))
    assert_same_bits(*both(cluster, fedmim.FedMIM(), task, participation=1.0, drop_last=True))


@pytest.mark.parametrize(
    "changes",
    [{"aggregation": "median"}, {"max_distance": 0.5}, {"max_distance_ratio": 1.5}],
    ids=lambda each: next(iter(each)),
)
def test_aggregation_that_needs_each_upload_is_the_same(cluster, changes):
    assert_same_bits(*both(cluster, fedmim.FedDyn(), classification(), participation=1.0, **changes))


def test_private_aggregation_is_the_same(cluster):
    private = {"local_epochs": 1, "local_steps": 3, "dp_noise": 0.5, "dp_clip": 0.1, "dp_delta": 0.01}
    assert_same_bits(*both(cluster, fedmim.FedAvg(), classification(), participation=1.0, **private))


def test_the_evaluation_of_each_client_is_the_same_and_leaves_the_run_as_it_is(cluster):
    task, changes = classification(), {"participation": 0.6, "rounds": 2}
    serial, ray = both(cluster, fedmim.Scaffold(), task, **changes, per_client="personal")
    assert serial[0].client_scores == ray[0].client_scores
    assert_same_bits(serial, ray)
    _, plain = both(cluster, fedmim.Scaffold(), task, **changes)
    assert torch.equal(plain[0].params, ray[0].params)
    for client in range(7):
        kept = [run.server.clients.get(client)["control"] for run, _ in (plain, ray)]
        assert torch.equal(*kept)


def test_a_rejected_upload_is_rejected_in_the_same_way(cluster):
    task = classification(tuple([5] * 20))
    x, y = task.clients[3]
    task = replace(task, clients=[*task.clients[:3], (x * float("nan"), y), *task.clients[4:]])
    runs = both(cluster, fedmim.FedDyn(), task, participation=1.0)
    assert [record.refused for record in runs[1][1]] == [1, 1, 1]
    assert_same_bits(*runs)


def test_client_state_on_the_nodes_is_part_of_a_checkpoint(cluster, tmp_path):
    task, method = classification(), fedmim.Scaffold()
    whole, _ = finished(method, task, rounds=6, engine="serial")
    for number, engines in enumerate((("ray", "serial"), ("serial", "ray"))):
        settings = {"rounds": 6, "ray": cluster.address, "folder": tmp_path / str(number)}
        first = started(method, task, engine=engines[0], **settings)
        for _ in range(3):
            next(first)
        first.save()
        second = started(method, task, engine=engines[1], resume=True, **settings)
        for _ in second:
            pass
        assert torch.equal(second.params, whole.params)


def started(method, task, *, folder, resume=False, **changes):
    return fedmim.rounds(method, task, *busy(**changes), folder=folder, resume=resume)


def test_an_error_of_the_model_names_the_client(cluster):
    class Fails(nn.Linear):
        def forward(self, x):
            if len(x) == 1:
                raise RuntimeError("one sample")
            return super().forward(x)

    with pytest.raises(RuntimeError, match="one sample") as caught:
        both(cluster, fedmim.FedAvg(), classification(model=Fails(4, 3).double()), participation=1.0, engine="ray")
    assert "client " in caught.value.__notes__[0]


def test_a_model_that_cannot_be_sent_is_one_line(cluster):
    model = nn.Linear(4, 3).double()
    model.lock = threading.Lock()
    with pytest.raises(UserError, match="engine: the run cannot be sent to other machines"):
        finished(fedmim.FedAvg(), unpicklable(model), engine="ray", ray=cluster.address, workers=None)


def unpicklable(model):
    task = classification()
    loss = lambda outputs, y, lock=model.lock: nn.functional.cross_entropy(outputs, y)  # noqa: E731
    del model.lock
    return replace(task, model=model, loss=loss)


def test_more_workers_than_the_cluster_has_are_rejected(cluster):
    with pytest.raises(UserError, match="ray: the cluster has room for 3 workers with one CPU each, 5 are needed"):
        finished(fedmim.FedAvg(), classification(), engine="ray", ray=cluster.address, workers=5, participation=1.0)


def test_parts_follow_the_work_and_cover_all_clients():
    class Node:
        def __init__(self, trainers):
            self.trainers = range(trainers)

    for sizes in ([1] * 10, [9, 5, 1, 1, 1, 1], [4], list(range(60, 0, -1))):
        for counts in ((1,), (1, 1), (2, 1), (1, 1, 1, 1, 1), (3, 0, 1)):
            parts = parts_of(sizes, [Node(count) for count in counts])
            assert [part.start for part in parts] + [len(sizes)] == [0] + [part.stop for part in parts]
            assert all(a.stop == b.start for a, b in pairwise(parts))
            assert all(len(part.node.trainers) for part in parts)
    equal = parts_of([1] * 12, [Node(2), Node(1)])
    assert [(part.start, part.stop) for part in equal] == [(0, 8), (8, 12)]


def test_an_adder_that_missed_an_upload_does_not_give_a_sum():
    content = pack_value(({}, torch.zeros(0), {"params": torch.zeros(3)}))
    adder, upload = RayAdder(), pack_value({"params": torch.ones(3)})
    for _ in range(2):
        adder.add(0, 7, 0, 1.0, content, upload)
    with pytest.raises(LookupError, match="2 of 3 clients were added"):
        adder.fold(7, 3, content, None)
    adder.add(0, 7, 0, 1.0, content, None)  # a rejected client counts
    assert unpack(adder.fold(7, 3, content, None)).clients == 2


def watched(cluster, method, act, rounds=6):
    """A run on the cluster in which `act` is called in the middle of round 4, and the same run alone."""
    task = classification()
    slow = replace(task, loss=slow_cross_entropy)
    run = started(method, slow, folder=None, rounds=rounds, participation=1.0, engine="ray", ray=cluster.address)
    records = []
    for record in run:
        records.append(replace(record, seconds=0.0))
        if record.round == 3:
            threading.Timer(0.05, act).start()
    return finished(method, task, rounds=rounds, participation=1.0, engine="serial"), (run, records)


def test_a_killed_worker_is_replaced_and_its_client_trained_again(cluster):
    def kill():
        worker = RayPool._pool.workers[0]
        os.kill(RayPool._pool.ray.get(worker.actor.pid.remote()), signal.SIGKILL)

    with pytest.warns(UserWarning, match="^ray: ") as told:
        runs = watched(cluster, fedmim.Scaffold(), kill)
    assert_same_bits(*runs)
    assert any("a worker on" in str(each.message) for each in told)


@pytest.mark.parametrize("name", ["SCAFFOLD", "FedMIM"])
def test_a_node_lost_in_the_middle_of_a_round_changes_no_bit(cluster, name):
    method = {"SCAFFOLD": fedmim.Scaffold(), "FedMIM": fedmim.FedMIM()}[name]
    with pytest.warns(UserWarning, match="^ray: ") as told:
        runs = watched(cluster, method, lambda: remove_a_node(cluster))
    assert_same_bits(*runs)
    assert any("lost a node" in str(each.message) for each in told)
    add_a_node(cluster)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray may notice the loss of the old one a second time
        assert_same_bits(*both(cluster, method, classification()))
