"""The commands of docs/deploy.md for several machines: the simulator's model over TLS, from registered nodes alone."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import signal

import pytest
import torch
from processes import Flower, free_port
from recipes import PAGE, Recipe
from safetensors.torch import load_file

import fedmim

SECTION = "## On several machines"
RUN = "clients=2 participation=1.0 rounds=2 local-epochs=1 seed=3"
TWO_CLIENTS = {"num-partitions=3": "num-partitions=2", "clients=3 participation=1.0": RUN}

pytestmark = [
    pytest.mark.skipif(not PAGE.exists(), reason="not in the source distribution"),
    pytest.mark.skipif(
        not (shutil.which("openssl") and shutil.which("ssh-keygen")), reason="needs openssl, ssh-keygen"
    ),
]


def test_the_commands_of_the_page_run_over_tls_and_let_in_registered_nodes_alone(tmp_path):
    with Flower(tmp_path, tls=True) as flower:
        page = Recipe(flower, SECTION, **TWO_CLIENTS)
        make_certificates(flower, page)
        page.configure()
        (tmp_path / "disk-0").mkdir()
        flower.listening(page.start("superlink", *page.lines("flower-superlink")))
        page.run("keys", "ssh-keygen")
        finish(flower, "new", "fedmim flower new app")
        register, run = page.lines("flwr")
        (start,) = page.lines("flower-supernode")
        (keygen,) = page.lines("ssh-keygen")
        for name in ("client1", "stranger"):
            assert finish(flower, "keys", keygen.replace("client0", name)) == 0
        for name in ("client0", "client1"):
            assert finish(flower, "register", register.replace("client0", name)) == 0, flower.log("register")
        node = page.start("node-0", start)
        page.start("node-1", elsewhere(start.replace("client0", "client1").replace("partition-id=0", "partition-id=1")))
        running = page.start("run-app", run)
        check_rejections(flower, start)
        flower.wait(lambda: running.poll() is not None, 180, "the run did not end")
        check_model(flower)
        assert [node["status"] for node in nodes(flower)] == ["online", "online"]
        check_restarts(flower, page, start, node)
        check_relative_path(flower)


def make_certificates(flower, page):
    page.run("openssl", "openssl")
    strictly = "openssl verify -x509_strict -CAfile ca.crt server.pem"  # as Python 3.13 does
    assert finish(flower, "verify", strictly) == 0, flower.log("verify")


def check_model(flower):
    """The model of the run over TLS is the simulator's, bit for bit."""
    path = re.search(r"the model is in (\S+model\.safetensors)", flower.log("run-app"))
    assert path, flower.log("run-app")
    task = fedmim.Task.named("digits", split="dirichlet:0.1", clients=2, model="mlp", seed=3)
    settings = fedmim.Settings(rounds=2, participation=1.0, local_epochs=1, batch_size=5, seed=3)
    expected = fedmim.simulate(fedmim.FedMIM(), task, settings, fedmim.Execution("serial")).model.state_dict()
    found = load_file(path[1])
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def elsewhere(start):
    """A SuperNode's command with a port of its own."""
    return re.sub(r"--port \d+", f"--port {free_port()}", start)


def check_rejections(flower, start):
    """A key that is not registered, no key, and no TLS."""
    key = f"--auth-supernode-private-key {flower.folder}/client0"
    others = {
        "unregistered": start.replace("client0", "stranger"),
        "keyless": start.replace(key, ""),
        "plain": start.replace(key, "").replace(f"--root-certificates {flower.folder}/ca.crt", "--insecure"),
    }
    assert len({start, *others.values()}) == 4
    started = {name: flower.shell(name, elsewhere(line)) for name, line in others.items()}
    for name, reason in (
        ("unregistered", "Failed to activate SuperNode"),
        ("keyless", "All SuperNodes must be registered"),
    ):
        flower.wait(lambda process=started[name]: process.poll() is not None, 120, f"{name} was not rejected")
        assert started[name].returncode != 0
        assert reason in flower.log(name)
    flower.wait(lambda: "Connection attempt failed" in flower.log("plain"), 120, "plain text was not rejected")
    flower.end([started["plain"].pid])


def check_restarts(flower, page, start, node):
    """After SIGTERM a node returns at once with its id; after its death the first try fails."""
    before = [each["node-id"] for each in nodes(flower)]
    node.send_signal(signal.SIGTERM)
    assert node.wait(timeout=60) == 0
    again = page.start("again", start)
    flower.wait(lambda: "SuperNode ID" in flower.log("again"), 60, "the node did not come back")
    assert [each["node-id"] for each in nodes(flower)] == before
    flower.end([again.pid])
    again.wait(timeout=30)
    early = page.start("early", start)
    flower.wait(lambda: early.poll() is not None, 60, "a node came back within a minute of its death")
    assert early.returncode == 1
    assert "[code: 2004]" in flower.log("early")


def check_relative_path(flower):
    config = flower.home / ".flwr" / "config.toml"
    config.write_text(config.read_text().replace(f"{flower.folder}/ca.crt", "ca.crt"))
    assert finish(flower, "relative", "flwr list ours") != 0


def nodes(flower):
    """The registered nodes."""
    (flower.folder / "list.log").unlink(missing_ok=True)
    finish(flower, "list", "flwr supernode list ours --format json")
    return json.loads(flower.log("list"))["nodes"]


def finish(flower, name, line):
    """Run a command line to its end; its exit status."""
    process = flower.shell(name, line)
    flower.wait(lambda: process.poll() is not None, 60, f"{line} did not end")
    return process.returncode


def test_the_unit_of_the_page_starts_the_same_command_and_tries_again(tmp_path):
    page = Recipe(Flower(tmp_path), SECTION)
    unit = configparser.ConfigParser(strict=False, delimiters="=")
    unit.optionxform = str
    unit.read_string(re.sub(r"\\\n\s*", "", page.unit()))
    service = unit["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartSec"]) < 60
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    (start,) = page.lines("flower-supernode")
    program, *words = shlex.split(service["ExecStart"])
    assert program.startswith("/")  # systemd wants an absolute path
    assert [program.rpartition("/")[2], *words] == shlex.split(start)
    if shutil.which("systemd-analyze"):
        (tmp_path / "fedmim-node.service").write_text(page.unit().replace(program, "/bin/true"))
        told = Flower.shell(page.flower, "unit", f"systemd-analyze verify {tmp_path}/fedmim-node.service")
        told.wait(timeout=60)
        assert "fedmim-node.service" not in page.flower.log("unit")
