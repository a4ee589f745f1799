"""A SuperLink and three SuperNodes, started by the commands of docs/deploy.md: a run goes on after every fault.

One run for all faults, because each of its processes takes seconds to start.
"""

from __future__ import annotations

import json
import runpy

import pytest
import torch
from processes import APPS, Flower
from recipes import PAGE, Recipe
from safetensors.torch import load_file

from fedmim.models import FlatModel
from fedmim.simulation.engines import serial
from fedmim.simulation.training import Work


@pytest.mark.skipif(not PAGE.exists(), reason="not in the source distribution")
def test_a_deployment_by_the_page_survives_every_fault(tmp_path):
    out, markers = tmp_path / "out", tmp_path / "markers"
    out.mkdir()
    markers.mkdir()
    with Flower(tmp_path) as flower:
        page = Recipe(flower, "## On one machine", **{"flwr run app": "flwr run faults"})
        page.configure()
        flower.listening(page.start("superlink", *page.lines("flower-superlink")))
        flower.app("faults", out=out, markers=markers, clients="", participation="")  # the last are the page's
        run = page.start("run-faults", page.lines("flwr")[-1])
        flower.wait((markers / "nodes-wanted").exists, 120, "the server did not start")
        starts = page.lines("flower-supernode")
        nodes = [page.start(f"node-{client}", line) for client, line in enumerate(starts)]
        flower.wait((markers / "client-1-trains").exists, 300, "round 3 did not begin")
        flower.end([nodes[1].pid])
        (markers / "client-1-killed").touch()
        page.start("node-1", starts[1])
        flower.wait(lambda: run.poll() is not None, 300, "the run did not end")
        log = flower.log("run-faults")
        check_faults(tmp_path, log)
        status = flower.start("list", "flwr", "list", "here", "--format", "json")
        flower.wait(lambda: status.poll() is not None, 60, "flwr list did not end")
        assert "finished:failed" in flower.log("list")


def check_faults(folder, log):
    out = folder / "out"
    too_few = (out / "too-few.txt").read_text()
    assert too_few.startswith("clients: 3 are needed, but 0 were connected after 1 s; missing: 0, 1, 2.")
    facts = json.loads((out / "facts.json").read_text())
    lines = facts["failures"]
    assert "round 2: client 0" in lines[0]
    assert "the camera of client 0 is covered" in lines[0]
    assert lines[1] == "round 2: client 1: its reply has numbers that are not finite"
    assert lines[2].startswith("round 3: client 1: ")  # no reply, or Flower's error that the node is unavailable
    assert lines[3] == "round 3: client 2: no reply within 180 s"
    assert [line.split(": ")[:2] for line in lines[4:]] == [["round 5", f"client {client}"] for client in range(3)]
    assert "round 5: no reply was accepted" in log  # the run ends with an error

    shared = runpy.run_path(str(APPS / "faults" / "shared.py"))
    expected, controls, server = scaffold_by_hand(shared)
    found = load_file(out / "models.safetensors")
    for round, model in enumerate(expected, 1):
        params = torch.cat([found[f"{round}/{name}"].reshape(-1) for name in shared["TASK"].model.state_dict()])
        torch.testing.assert_close(params, model, rtol=1e-5, atol=1e-6)
    # The clients' disks hold the control variates; the server holds their mean.
    assert facts["places"] == {"0": 3, "1": 3, "2": 3}
    torch.testing.assert_close(load_file(out / "control.safetensors")["control"], server, rtol=1e-5, atol=1e-6)
    for client, control in enumerate(controls):
        path = folder / f"disk-{client}" / facts["run"] / str(client) / "slots-000003.safetensors"
        torch.testing.assert_close(load_file(path)["control"], control, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.stack(controls).mean(0), server, rtol=1e-5, atol=1e-6)


def scaffold_by_hand(shared):
    """The models after each round, the clients' controls and the server's, from the accepted replies only."""
    task, settings, algorithm = shared["TASK"], shared["SETTINGS"], shared["ALGORITHM"]
    flat = FlatModel(task.model, task.loss)
    x = flat.params.clone()
    c, controls, models = torch.zeros_like(x), [torch.zeros_like(x) for _ in range(3)], []
    for round, counted in shared["COUNTED"].items():
        down, lr = {"params": x, "control": c}, settings.lr_at(round - 1)
        slots = [{"control": control} for control in controls]
        work = Work(task, settings, round - 1, lr, counted, down, flat.buffers, slots.__getitem__, lambda _: False)
        replies = {reply.client: reply for reply in serial(algorithm, flat, work)}
        x = torch.stack([reply.upload["params"] for reply in replies.values()]).mean(0)
        for client, reply in replies.items():
            c = c + (reply.slots["control"] - controls[client]) / 3
            controls[client] = reply.slots["control"]
        models.append(x)
    return models, controls, c
