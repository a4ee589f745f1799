"""Clients that fail, send wrong replies, lag or restart: the run continues, says what happened, and stays correct."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from itertools import product

import pytest
import torch
from every_method import EVERY_METHOD
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from loopback import LoopbackNode, assert_same, federation, run_simulator
from problems import BUSY, SIZES, classification
from safetensors.torch import load_file

import fedmim
from fedmim.errors import UserError
from fedmim.flower import FlowerStrategy, client_app
from fedmim.flower.training_round import RoundFailedError
from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.training import Work

TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY | {"rounds": 5, "participation": 1.0})
N = len(SIZES)


def make(algorithm, disks, fault=None, settings=SETTINGS, **options):
    app = client_app(lambda partition, context: TASK, algorithm, settings)
    grid = federation(app, N, disks, fault)
    return FlowerStrategy(algorithm, TASK.model, settings, clients=N, wait=0.0, **options), grid


def at(client, round, do):
    """A fault of one client in one round of training."""

    def fault(message, answer):
        config = message.content.get("config", {})
        here = config.get("fedmim-client") == client and config.get("server-round") == round
        return do(answer) if here and message.metadata.message_type == "train" else answer()

    return fault


def replies_nan(answer):
    reply = answer()
    arrays = {name: array.numpy() for name, array in reply.content["arrays"].items()}
    arrays["0.weight"][0] = float("nan")
    reply.content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return reply


def raises(answer):
    raise RuntimeError("the camera is covered")


def replies_too_late(answer):
    answer()  # it trains and writes its state, but the reply is not received


def models_with_dropouts(algorithm, out):
    """The model of every round if the replies of some clients, {round: client}, do not count. A separate loop."""
    flat = FlatModel(TASK.model, TASK.loss)
    state = algorithm.init(flat.params.clone())
    zeros = {name: torch.zeros_like(flat.params) for name in algorithm.client_slots}
    slots = dict.fromkeys(range(N), zeros)
    models = []
    for t in range(SETTINGS.rounds):
        lr = SETTINGS.lr_at(t)
        clients = [client for client in range(N) if out.get(t + 1) != client]
        down = algorithm.broadcast(state)
        work = Work(TASK, SETTINGS, t, lr, clients, down, flat.buffers, slots.__getitem__, lambda _: False)
        replies = list(serial(algorithm, flat, work))
        received = [algorithm.receive(reply.upload, down, lr, reply.steps) for reply in replies]
        mean = {name: torch.stack([each[name].double() for each in received]).mean(0).float() for name in received[0]}
        slots |= {reply.client: reply.slots for reply in replies}
        update = algorithm.update(state, mean, fedmim.Round(t, lr, algorithm.default_server_lr, len(clients) / N))
        state = replace(update, round=t + 1)
        models.append(state.params)
    return torch.stack(models)


def run(strategy, grid):
    models = []

    def see(round, arrays):
        module = FlatModel(TASK.model, TASK.loss)
        module.module.load_state_dict(arrays.to_torch_state_dict())
        models.append(module.params.clone())

    strategy.start(grid, evaluate_fn=see, timeout=0.01)
    return torch.stack(models[1:])


STATEFUL = ["scaffold", "feddyn", "own: state on both sides"]


@pytest.mark.parametrize(("name", "client_state"), [*product(STATEFUL, ["node", "server"]), ("fedmim", "node")])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [(raises, "the camera is covered"), (replies_nan, "not finite"), (replies_too_late, "no reply within 0.01 s")],
)
def test_a_client_whose_reply_does_not_count_keeps_its_old_state_and_the_sums_stay_right(
    name, client_state, fault, reason, tmp_path
):
    algorithm = EVERY_METHOD[name]
    strategy, grid = make(algorithm, tmp_path, at(3, 2, fault), client_state=client_state)
    models = run(strategy, grid)
    expected = models_with_dropouts(algorithm, {2: 3})
    torch.testing.assert_close(models, expected, rtol=1e-5, atol=1e-6)
    everyone = models_with_dropouts(algorithm, {})
    assert not torch.allclose(models, everyone, rtol=1e-3, atol=1e-4)  # the fault made a difference
    (line,) = strategy.failures
    assert line.startswith("round 2: client 3: ")
    assert reason in line


def test_scaffolds_control_is_the_mean_of_the_clients_after_every_fault(tmp_path):
    """c = (1/N) sum c_i, from the files on the clients' disks that are current according to the server."""

    def faults(message, answer):
        config = message.content.get("config", {})
        late = replies_too_late
        do = {(0, 2): raises, (1, 3): late, (2, 4): replies_nan, (1, 4): late}
        return do.get((config.get("fedmim-client"), config.get("server-round")), lambda answer: answer())(answer)

    strategy, grid = make(fedmim.Scaffold(), tmp_path, faults, folder=tmp_path / "run")
    run(strategy, grid)
    controls = []
    for client, round in strategy.server.clients.places.items():
        folder = tmp_path / f"disk-{client}" / strategy.server.facts["run"] / str(client)
        controls.append(load_file(folder / f"slots-{round:06d}.safetensors")["control"])
    assert len(controls) == N
    torch.testing.assert_close(
        strategy.server.state.slots["control"], torch.stack(controls).mean(0), rtol=1e-5, atol=1e-6
    )


def test_all_clients_failing_is_an_error_that_names_each_and_leaves_the_state(tmp_path):
    def fault(message, answer):
        config = message.content.get("config", {})
        if config.get("server-round") == 3:
            raise RuntimeError(f"camera {config['fedmim-client']} is covered")
        return answer()

    strategy, grid = make(fedmim.Scaffold(), tmp_path, fault)
    with pytest.raises(RoundFailedError, match=r"round 3: no reply was accepted .*camera 0 is .*camera 6 is covered"):
        strategy.start(grid)
    assert strategy.server.state.round == len(strategy.history) == 2


def test_too_few_clients_is_an_error_that_names_the_missing(tmp_path):
    strategy, grid = make(fedmim.FedAvg(), tmp_path)
    del grid.nodes[list(grid.nodes)[4]]
    message = r"clients: 7 are needed, but 6 were connected after 0 s; missing: 4\..*partition-id=4 num-partitions=7"
    with pytest.raises(UserError, match=message):
        strategy.start(grid)


def test_a_client_that_is_away_gives_place_to_another(tmp_path, caplog):
    settings = fedmim.Settings(**BUSY | {"rounds": 6, "participation": 0.3})  # 2 of 7
    strategy, grid = make(fedmim.FedAvg(), tmp_path, settings=settings, min_available_nodes=1)
    drawn = [record.clients for record in run_simulator(fedmim.FedAvg(), TASK, settings)[0]]
    away = drawn[0][0]
    del grid.nodes[list(grid.nodes)[away]]
    with caplog.at_level(logging.WARNING, "flwr"):
        strategy.start(grid)
    for record, clients in zip(strategy.history, drawn, strict=True):
        assert len(record.clients) == 2
        assert away not in record.clients
        assert set(clients) - {away} <= set(record.clients)
    assert f"round 1: client {away} is not connected" in caplog.text


def test_a_node_that_comes_back_under_another_id_is_the_same_client(tmp_path):
    """A SuperNode killed in round 2 and restarted before round 3: its state is that of round 1."""
    strategy, grid = make(fedmim.Scaffold(), tmp_path)
    old = list(grid.nodes)[3]

    def restarts(answer):
        grid.nodes[5] = grid.nodes.pop(old)
        raise ConnectionError("Node Unavailable")

    grid.fault = at(3, 2, restarts)
    torch.testing.assert_close(
        run(strategy, grid), models_with_dropouts(fedmim.Scaffold(), {2: 3}), rtol=1e-5, atol=1e-6
    )
    assert {m.metadata.dst_node_id for m in grid.sent if m.metadata.message_type == "query"} >= {old, 5}


@pytest.mark.parametrize("when", ["before round 4", "after round 5"])
def test_a_late_process_does_not_touch_newer_state(when, tmp_path):
    """A message of round 2 that is answered after round 3. After round 5, the state that it needs no longer exists."""
    late = []

    def fault(message, answer):
        config = message.content.get("config", {})
        if (config.get("fedmim-client"), config.get("server-round")) == (3, 2):
            late.append(answer)
            return None
        if (config.get("fedmim-client"), config.get("server-round")) == (3, int(when[-1])):
            if when == "before round 4":
                late.pop()()
                return answer()
            reply = answer()
            with pytest.raises(UserError, match="lost"):
                late.pop()()
            return reply
        return answer()

    strategy, grid = make(fedmim.Scaffold(), tmp_path, fault)
    models = run(strategy, grid)
    torch.testing.assert_close(models, models_with_dropouts(fedmim.Scaffold(), {2: 3}), rtol=1e-5, atol=1e-6)
    assert not late


def test_lost_vectors_are_an_error_with_a_remedy_and_the_others_go_on(tmp_path):
    def loses_its_disk(answer):
        shutil.rmtree(tmp_path / "disk-3")
        return answer()

    strategy, grid = make(fedmim.Scaffold(), tmp_path, at(3, 2, loses_its_disk))
    strategy.start(grid)
    assert len(strategy.failures) == 4
    assert 'client_state="server"' in strategy.failures[0]
    assert len(strategy.history) == 5


def test_with_client_state_at_the_server_clients_need_no_disk(tmp_path):
    strategy, grid = make(fedmim.Scaffold(), tmp_path, client_state="server")
    models = run(strategy, grid)
    torch.testing.assert_close(models, models_with_dropouts(fedmim.Scaffold(), {}), rtol=1e-5, atol=1e-6)
    assert not list(tmp_path.iterdir())
    model = 4 * len(models[0])
    assert strategy.history[0].bytes_down == N * 3 * model  # x_t, c and c_i
    assert strategy.history[0].bytes_up == N * 2 * model  # x_i and c_i


def test_a_client_set_up_otherwise_is_rejected_with_the_setting_named(tmp_path):
    other = replace(SETTINGS, lr=0.2, batch_size=3)
    app = client_app(lambda partition, context: TASK, fedmim.FedAvg(), other)
    strategy = FlowerStrategy(fedmim.FedAvg(), TASK.model, SETTINGS, clients=N, wait=0.0)
    with pytest.raises(RoundFailedError, match=r"batch_size 4 \(this client: 3\), lr 0.3 \(this client: 0.2\)"):
        strategy.start(federation(app, N, tmp_path))
    app = client_app(lambda partition, context: TASK, fedmim.FedAvg(), replace(SETTINGS, history="broadcast"))
    with pytest.raises(RoundFailedError, match=r"settings: the server has history server \(this client: broadcast\)"):
        FlowerStrategy(fedmim.FedAvg(), TASK.model, SETTINGS, clients=N, wait=0.0).start(federation(app, N, tmp_path))
    app = client_app(lambda partition, context: TASK, fedmim.FedProx(), SETTINGS)
    with pytest.raises(RoundFailedError, match=r"the server runs FedAvg\(\), this client runs FedProx\(mu=0.01\)"):
        FlowerStrategy(fedmim.FedAvg(), TASK.model, SETTINGS, clients=N, wait=0.0).start(federation(app, N, tmp_path))


def test_a_client_need_not_know_what_is_the_servers_alone(tmp_path):
    own = replace(SETTINGS, participation=0.1, server_lr=0.5, weighting="samples", rounds=1, eval_every=3)
    app = client_app(lambda partition, context: TASK, fedmim.FedAvg(), own)
    strategy = FlowerStrategy(fedmim.FedAvg(), TASK.model, SETTINGS, clients=N, wait=0.0)
    models = run(strategy, federation(app, N, tmp_path))
    torch.testing.assert_close(models, models_with_dropouts(fedmim.FedAvg(), {}), rtol=1e-5, atol=1e-6)


def test_a_reply_of_garbage_is_left_out(tmp_path):
    def do(answer):
        reply = answer()
        reply.content["arrays"]["0.weight"] = Array("float32", (5, 4), "numpy.ndarray", b"not an array")
        return reply

    strategy, grid = make(fedmim.FedAvg(), tmp_path, at(3, 2, do))
    models = run(strategy, grid)
    torch.testing.assert_close(models, models_with_dropouts(fedmim.FedAvg(), {2: 3}), rtol=1e-5, atol=1e-6)
    assert "0.weight has no valid header of an array" in strategy.failures[0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda arrays: {}, "it comes without '0.bias', '0.weight', "),
        (lambda arrays: {**arrays, "more": arrays["0.bias"]}, "it comes with 'more'"),
        (lambda arrays: {**arrays, "0.bias": arrays["0.bias"][:-1]}, "0.bias is (4,) of float32, expected (5,)"),
        (
            lambda arrays: {**arrays, "0.bias": arrays["0.bias"].astype("float64")},
            "of float64, expected (5,) of float32",
        ),
    ],
)
def test_a_reply_that_does_not_fit_is_left_out(change, reason, tmp_path):
    def do(answer):
        reply = answer()
        arrays = change({name: array.numpy() for name, array in reply.content["arrays"].items()})
        content = RecordDict({"metrics": reply.content["metrics"]})
        content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        reply.content = content
        return reply

    strategy, grid = make(fedmim.FedAvg(), tmp_path, at(3, 2, do))
    models = run(strategy, grid)
    torch.testing.assert_close(models, models_with_dropouts(fedmim.FedAvg(), {2: 3}), rtol=1e-5, atol=1e-6)
    assert reason in strategy.failures[0]


def test_a_node_with_a_wrong_partition_cannot_take_part_and_the_log_says_why(tmp_path, caplog):
    strategy, grid = make(fedmim.FedAvg(), tmp_path)
    grid.nodes[list(grid.nodes)[4]].config["num-partitions"] = 8
    with (
        pytest.raises(UserError, match=r"missing: 4\. Connected nodes that cannot take part: 1"),
        caplog.at_level(logging.ERROR, "flwr"),
    ):
        strategy.start(grid)
    assert "the task has 7 clients; it must have only this one, or all 8" in caplog.text


def test_a_server_that_is_not_ours_is_named(tmp_path):
    app = client_app(lambda partition, context: TASK, fedmim.FedAvg(), SETTINGS)
    grid = federation(app, N, tmp_path)
    (reply,) = grid.send_and_receive([Message(RecordDict(), next(iter(grid.nodes)), "train")])
    assert "FlowerStrategy" in reply.error.reason


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedmim", "fedadam", "own: one past model"])
@pytest.mark.parametrize("client_state", ["node", "server"])
def test_a_server_that_was_killed_goes_on_to_the_same_bits(name, client_state, tmp_path):
    algorithm, settings = EVERY_METHOD[name], replace(SETTINGS, participation=0.6, history="catch-up")

    def dies(message, answer):
        if message.content.get("config", {}).get("server-round") == 4:
            raise KeyboardInterrupt
        return answer()

    options = {"settings": settings, "folder": tmp_path / "run", "client_state": client_state}
    strategy, grid = make(algorithm, tmp_path, dies, **options)
    with pytest.raises(KeyboardInterrupt):
        strategy.start(grid)
    strategy, grid = make(algorithm, tmp_path, resume=True, **options)
    rounds = []
    result = strategy.start(grid, evaluate_fn=lambda round, arrays: rounds.append(round))
    assert rounds == [3, 4, 5]
    assert sorted(result.train_metrics_clientapp) == [4, 5]
    assert_same([result.arrays.to_torch_state_dict()], run_simulator(algorithm, TASK, settings)[1][-1:])
    assert not strategy.failures


@pytest.mark.parametrize("name", ["scaffold", "fedmim"])
@pytest.mark.parametrize("client_state", ["node", "server"])
def test_a_server_whose_newest_checkpoint_is_damaged_goes_back_one_round_and_on_to_the_same_bits(
    name, client_state, tmp_path
):
    """The server dies in round 4, after clients have removed what they kept before round 3."""
    algorithm, settings = EVERY_METHOD[name], replace(SETTINGS, participation=0.6, history="catch-up")
    answered = []

    def dies(message, answer):
        if message.content.get("config", {}).get("server-round") == 4:
            answered.append(answer())
            raise KeyboardInterrupt
        return answer()

    options = {"settings": settings, "folder": tmp_path / "run", "client_state": client_state}
    strategy, grid = make(algorithm, tmp_path, dies, **options)
    with pytest.raises(KeyboardInterrupt):
        strategy.start(grid)
    assert answered
    newest = tmp_path / "run" / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors: .*after round 2"):
        strategy, grid = make(algorithm, tmp_path, resume=True, **options)
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors: .*after round 2"):
        result = strategy.start(grid)
    assert sorted(result.train_metrics_clientapp) == [3, 4, 5]
    assert_same([result.arrays.to_torch_state_dict()], run_simulator(algorithm, TASK, settings)[1][-1:])
    assert not strategy.failures


def test_resuming_another_run_is_rejected(tmp_path):
    strategy, grid = make(fedmim.FedAvg(), tmp_path, folder=tmp_path / "run")
    strategy.start(grid)
    with pytest.raises(UserError, match="a different lr"):
        make(fedmim.FedAvg(), tmp_path, settings=replace(SETTINGS, lr=0.1), folder=tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="from another run"):
        make(fedmim.FedProx(), tmp_path, folder=tmp_path / "run", resume=True)
    with pytest.raises(UserError, match="there is already a run"):
        make(fedmim.FedAvg(), tmp_path, folder=tmp_path / "run")
    with pytest.raises(UserError, match="no checkpoint to resume from"):
        make(fedmim.FedAvg(), tmp_path, folder=tmp_path / "none", resume=True)


def test_nodes_of_an_app_that_does_not_tell_its_partition_are_numbered(tmp_path):
    app, own = ClientApp(), client_app(lambda partition, context: TASK, fedmim.FedAvg(), SETTINGS)

    @app.train()
    def train(message, context):
        context.node_config["partition-id"] = message.content["config"]["fedmim-client"]
        return own(message, context)

    grid = federation(app, N, tmp_path)
    strategy = FlowerStrategy(fedmim.FedAvg(), TASK.model, SETTINGS, clients=N, wait=0.0)
    torch.testing.assert_close(run(strategy, grid), models_with_dropouts(fedmim.FedAvg(), {}), rtol=1e-5, atol=1e-6)


def test_one_node_too_many_is_left_out(tmp_path, caplog):
    strategy, grid = make(fedmim.FedAvg(), tmp_path)
    node = grid.nodes[next(iter(grid.nodes))]
    grid.nodes[3] = LoopbackNode(node.app, {**node.config, "partition-id": 9})
    with caplog.at_level(logging.ERROR, "flwr"):
        strategy.start(grid)
    assert "node 3 cannot take part" in caplog.text


def test_a_client_whose_data_has_grown_is_sent_what_serves_its_new_number_of_steps(tmp_path):
    """The server computed x_t - m2 for the old number. The client reports it and trains correctly in the same round."""
    algorithm, task = fedmim.FedMIM(), classification(dtype=torch.float32)
    x, y = task.clients[3]
    grown = [*task.clients]
    grown[3] = torch.cat([x, x, x]), torch.cat([y, y, y])
    settings = fedmim.Settings(**BUSY | {"participation": 1.0})

    def task_for(partition, context):
        return replace(task, clients=grown if grow else task.clients)

    grow = False
    grid = federation(client_app(task_for, algorithm, settings), N, tmp_path)
    strategy = FlowerStrategy(algorithm, task.model, settings, clients=N, wait=0.0)
    simulator = fedmim.rounds(algorithm, replace(task, clients=list(task.clients)), settings)
    models = []

    def see(round, arrays):
        nonlocal grow
        flat = FlatModel(task.model, task.loss)
        flat.module.load_state_dict(arrays.to_torch_state_dict())
        models.append(flat.params.clone())
        grow = round >= 2

    strategy.start(grid, evaluate_fn=see)
    for round in range(1, settings.rounds + 1):
        if round == 3:
            simulator.task.clients[3] = grown[3]
        next(simulator)
        torch.testing.assert_close(models[round], simulator.params, rtol=1e-5, atol=1e-6)
    assert not strategy.failures
