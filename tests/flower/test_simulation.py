"""Flower's own simulation, in its own processes: every method equals the simulator's run, round by round."""

from __future__ import annotations

import json
import runpy

import torch
from processes import APPS, Flower
from safetensors.torch import load_file

import fedmim


def test_every_method_in_flowers_simulation_gives_the_simulators_bits(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    with Flower(tmp_path) as flower:
        flower.superlink("--simulation")
        app = flower.app("methods", out=out, **{"state-dir": tmp_path / "disk"})
        federation = "num-supernodes=7 client-resources-num-cpus=1 init-args-num-cpus=2"
        run = flower.run(app, "--federation-config", federation)
        flower.wait(lambda: run.poll() is not None, 400, "the simulation did not end")
        log = flower.log("run-methods")
    shared = runpy.run_path(str(APPS / "methods" / "shared.py"))
    cases, task = shared["CASES"], shared["TASK"]
    assert len(list(out.glob("*.json"))) == len(cases), log[-3000:]
    for number, (name, (algorithm, settings)) in enumerate(cases.items()):
        found, facts = load_file(out / f"{number}.safetensors"), json.loads((out / f"{number}.json").read_text())
        assert facts["failures"] == []
        simulated = fedmim.rounds(algorithm, task, settings, fedmim.Execution(engine="serial"))
        for record in simulated:
            assert facts["rounds"][record.round - 1] == [record.bytes_down, record.bytes_up, list(record.clients)]
            for key, value in simulated.model.state_dict().items():
                assert torch.equal(found[f"{record.round}/{key}"], value), (name, record.round)
    assert not list((tmp_path / "disk").glob("*"))  # the clients removed their files at the end
