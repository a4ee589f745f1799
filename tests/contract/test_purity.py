"""Contract: no call changes what it is given, and types and shapes stay what they were."""

from __future__ import annotations

import copy

import pytest
import torch
from every_method import WITH_REFERENCES
from problems import busy, classification, seeded

import fedmim

DTYPES = [torch.float32, torch.float64]
D = 6


class Pull(fedmim.Local):
    """A client (or stack) whose gradient is w - 1."""

    def grad(self, w):
        return w - 1

    def full_gradient(self, w):
        return w - 1 if isinstance(self.steps, float) else (w - 1).expand(len(self.steps), -1)


def random_vectors(names, dtype, seed, shape=(D,)):
    generator = seeded(seed)
    return {name: torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype) for name in names}


def frozen(*things):
    """A copy to compare with later."""
    return copy.deepcopy(things)


def assert_unchanged(before, *things):
    for old, new in zip(before, things, strict=True):
        assert old.keys() == new.keys()
        for name in old:
            assert torch.equal(old[name], new[name]), name


@pytest.mark.parametrize("stack", [None, 3], ids=["one client", "a stack"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_no_call_mutates_its_inputs_and_all_keep_dtype_and_shape(name, dtype, stack):
    algorithm = WITH_REFERENCES[name]
    shape = (D,) if stack is None else (stack, D)

    params = random_vectors(["params"], dtype, 1)["params"]
    started = params.clone()
    empty = algorithm.init(params)
    assert torch.equal(params, started)
    state = fedmim.ServerState(empty.params, random_vectors(empty.slots, dtype, 2), 4)
    assert all(slot.dtype == dtype and slot.shape == (D,) for slot in empty.slots.values())
    server = {"params": state.params, **state.slots}
    before = frozen(server)

    broadcast = algorithm.broadcast(state)
    assert all(vector.dtype == dtype and vector.shape == (D,) for vector in broadcast.values())
    before += frozen(broadcast)
    slots = random_vectors(algorithm.client_slots, dtype, 3, shape)
    steps = 4.0 if stack is None else torch.tensor([[4.0], [2.0], [1.0]], dtype=dtype)
    down = algorithm.send(broadcast, steps)
    assert_unchanged([down], algorithm.send(down, steps))  # sending what was sent changes nothing
    local = Pull(down, slots, 0.1, steps, first=0.0 if stack is None else torch.tensor([[1.0], [0.0], [0.0]]).to(dtype))
    before += frozen(down, slots)

    plan = algorithm.plan(local)
    w = plan.start.expand(shape).clone()  # what the engine does: w and the carried vectors are its own
    plan = fedmim.Plan(w, plan.rate, plan.keep, plan.shift, {k: v.expand(shape).clone() for k, v in plan.carry.items()})
    local.carry = plan.carry
    for local.k in range(2):
        at = w.clone()
        g = algorithm.gradient(w, local)
        assert torch.equal(w, at)  # the gradient moves nothing
        direction = g.clone()
        w = algorithm.step(w, g, plan)
        assert torch.equal(g, direction)
        assert w.dtype == dtype
        assert w.shape == shape
    end = w.clone()
    upload, kept = algorithm.finish(w, local)
    assert torch.equal(w, end)
    assert all(vector.dtype == dtype for vector in (*upload.values(), *kept.values()))
    assert all(vector.shape == shape for vector in (upload["params"], *kept.values()))
    assert set(kept) == set(algorithm.client_slots)

    clients = [upload] if stack is None else [{k: v[row] for k, v in upload.items()} for row in range(stack)]
    before += frozen(*clients)
    received = [algorithm.receive(each, broadcast, 0.1, 4.0) for each in clients]
    mean = {name: sum(each[name] for each in received) / len(received) for name in received[0]}
    before += frozen(mean)
    after = algorithm.update(state, mean, fedmim.Round(4, 0.1, 0.5 if algorithm.any_server_lr else 1.0, 0.3))
    assert_unchanged(before, server, broadcast, down, slots, *clients, mean)
    assert set(after.slots) == set(state.slots)
    assert all(v.dtype == dtype and v.shape == (D,) for v in (after.params, *after.slots.values()))


@pytest.mark.parametrize("name", [name for name, method in WITH_REFERENCES.items() if method.past_models])
def test_a_broadcast_made_of_past_models_can_be_rebuilt_from_them_to_the_last_bit(name):
    algorithm = WITH_REFERENCES[name]
    run = fedmim.rounds(algorithm, classification(), *busy())
    models = [run.params] * (algorithm.past_models + 1)  # newest first; before the first round the model stood still
    for _ in run:
        models = [run.params, *models[:-1]]
        expected, rebuilt = algorithm.broadcast(run.state), algorithm.rebuild_broadcast(models)
        assert_unchanged([expected], rebuilt)


@pytest.mark.parametrize(("engine", "dtype"), [("serial", torch.float64), ("vectorised", torch.float32)])
@pytest.mark.parametrize("name", WITH_REFERENCES)
def test_a_run_leaves_the_task_and_earlier_states_alone_and_keeps_the_dtype(name, dtype, engine):
    task = classification(dtype=dtype)
    weights = copy.deepcopy(task.model.state_dict())
    data = copy.deepcopy(task.clients)
    run = fedmim.rounds(WITH_REFERENCES[name], task, *busy(rounds=3, engine=engine))
    states, copies = [], []
    for _ in range(3):
        held = {str(i): vectors for i in range(7) if (vectors := run.server.clients.get(i))}
        states.append([{"params": run.state.params, **run.state.slots}, *held.values()])
        copies.append(frozen(*states[-1]))
        next(run)
    for before, after in zip(copies, states, strict=True):
        assert_unchanged(before, *after)
    assert all(torch.equal(weights[key], value) for key, value in task.model.state_dict().items())
    for (x, y), (x_before, y_before) in zip(task.clients, data, strict=True):
        assert torch.equal(x, x_before)
        assert torch.equal(y, y_before)
    kept = [vector for client in range(7) for vector in run.server.clients.get(client).values()]
    vectors = [run.params, *run.state.slots.values(), *kept]
    assert {(vector.dtype, vector.shape) for vector in vectors} == {(dtype, run.params.shape)}
    assert {p.dtype for p in run.model.parameters()} == {dtype}
