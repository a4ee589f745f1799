"""Runs on a Ray cluster: the bits of runs here, with and without a shared disk, when nodes and the driver are lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ray_clusters import add_a_node, ray_cluster, remove_a_node
from worker_runs import soon

from fedmim.cli import main
from fedmim.errors import UserError
from fedmim.experiments import ray_works
from fedmim.experiments.config import defaults
from fedmim.experiments.folder_copy import ChangedFiles, FolderWatch, read_files
from fedmim.experiments.folder_work import FolderWork
from fedmim.experiments.ray_works import RayWorks, all_nodes_see
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.experiments.sweep import Sweep
from fedmim.experiments.works import Failed, ThisProcess, failures_of
from fedmim.files import folder_lock, holding
from fedmim.simulation.ray_cluster import check_listening, connect, find_head

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
SMALL = {"rounds": 4, "clients": 10, "local_epochs": 1, "model": "logistic"}
LONG = SMALL | {"rounds": 400, "batch_size": 20, "engine": "serial", "eval_every": 100}


class Watch:
    """Notes the rounds of each run, and calls `act` once when a run has come to a round."""

    def __init__(self, act=None, at=0):
        self.rounds, self.skipped, self.act, self.at = {}, [], act, at

    def record(self, run, record):
        self.rounds.setdefault((run.label, run.config.settings.seed), []).append(record.round)
        if self.act and record.round >= self.at:
            act, self.act = self.act, None
            act()

    def skip(self, run):
        self.skipped.append(run.label)

    def fail(self, run):
        self.skipped.append(run.label)


def works_in(folder, count, every=10.0, **settings):
    made = []
    for seed in range(count):
        method = "scaffold" if seed % 2 else "fedmim"
        run = Run.make(method, defaults("digits") | SMALL | settings | {"seed": seed})
        made.append(FolderWork(RunFolder.create(folder / str(seed), run).path, run, every))
    return made


def models(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/model.safetensors")}


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster(3) as made:
        connect(made.address, None)
        yield made


def pool(cluster, count=3, **options):
    return RayWorks(connect(cluster.address, None), count, **options)


@pytest.mark.parametrize("shared", [True, False])
def test_six_runs_with_a_node_lost_have_the_bits_of_runs_here(cluster, tmp_path, shared):
    alone, spread = works_in(tmp_path / "alone", 6, **LONG), works_in(tmp_path / "ray", 6, every=0.2, **LONG)
    assert failures_of(alone, ThisProcess(), Watch()) == []
    watch = Watch(threading.Timer(0.0, remove_a_node, [cluster]).start, at=50)
    try:
        with pytest.warns(UserWarning, match="^ray: ") as told, pool(cluster, shared=shared) as ray:
            assert failures_of(spread, ray, watch) == []
    finally:
        add_a_node(cluster)
    assert any("lost the process or node" in str(each.message) for each in told)
    assert models(tmp_path / "ray") == models(tmp_path / "alone")
    assert len(models(tmp_path / "ray")) == 6
    for work in spread:
        seed = work.run.config.settings.seed
        assert [each["round"] for each in RunFolder.open(work.folder).metrics()] == list(range(1, 401))
        assert max(watch.rounds[work.run.label, seed]) == 400
    assert not list((tmp_path / "ray").rglob("*.part"))


def test_a_sweep_without_a_shared_disk_fills_its_archive(cluster, tmp_path):
    runs = [work.run for work in works_in(tmp_path / "unused", 3)]
    with pool(cluster, shared=False) as ray:
        assert Sweep(tmp_path / "sweep")(runs, Watch(), ray) == []
    sweep = Sweep(tmp_path / "sweep")
    assert [len(sweep.archive.records(run)) for run in runs] == [4, 4, 4]
    assert not (tmp_path / "sweep" / "unfinished").exists()
    watch = Watch()
    with pool(cluster, shared=False) as ray:  # nothing is left to do
        assert sweep(runs, watch, ray) == []
    assert watch.rounds == {}


def test_a_run_that_fails_or_is_locked_stops_no_other(cluster, tmp_path):
    works = works_in(tmp_path, 3)
    for shared in (True, False):
        with holding(folder_lock(works[1].folder)), pool(cluster, shared=shared) as ray:
            answers = dict(ray(works, Watch()))
        assert isinstance(answers.pop(1), Failed)
        assert not any(isinstance(each, Failed) for each in answers.values())


def test_nodes_of_other_versions_are_rejected(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmim.simulation.ray_actors.versions", lambda: ("0.0.1", "2.0"))
    with pool(cluster) as ray:
        ((_, answer),) = ray(works_in(tmp_path, 1), Watch())
    assert "the driver fedmim 0.0.1 and torch 2.0; install the same on every node" in str(answer.error)


def test_whether_nodes_see_a_folder_is_found_out(cluster, tmp_path, monkeypatch):
    ray = connect(cluster.address, None)
    assert all_nodes_see(ray, tmp_path)
    monkeypatch.setattr(ray_works, "sees", lambda path, token: False)
    assert not all_nodes_see(ray, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_stops_the_runs_at_a_safe_point(cluster, tmp_path):
    def interrupt():
        raise KeyboardInterrupt

    long = LONG | {"rounds": 800}
    works = works_in(tmp_path / "ray", 2, every=1000.0, **long)
    with pytest.raises(KeyboardInterrupt), pool(cluster, shared=False) as ray:
        failures_of(works, ray, Watch(interrupt, at=20))
    done = [RunFolder.open(work.folder).rounds_done() for work in works]
    assert max(done) >= 20  # came back with the checkpoint
    assert max(done) < 800
    with holding(folder_lock(works[0].folder)):  # it is released
        pass
    with pool(cluster, shared=True) as ray:
        assert failures_of(works, ray, Watch()) == []
    alone = works_in(tmp_path / "alone", 2, **long)
    assert failures_of(alone, ThisProcess(), Watch()) == []
    assert models(tmp_path / "ray") == models(tmp_path / "alone")


def test_a_killed_command_goes_on_when_it_is_started_again(cluster, tmp_path):
    words = [f"--{name.replace('_', '-')}={value}" for name, value in LONG.items()]
    words = ["compare", "--data=digits", "--methods=fedavg,scaffold", *words, "--checkpoint-seconds=0.1"]
    program = [sys.executable, "-m", "fedmim", *words, "--out", "killed", "--ray", cluster.address, "--quiet"]
    command = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert soon(lambda: len(list(tmp_path.glob("killed/*/checkpoint.safetensors"))) == 2)
    finally:
        command.send_signal(signal.SIGKILL)
        print(command.communicate()[1].decode())
    assert not models(tmp_path / "killed")
    # The tasks of a lost driver end soon; their locks with them.
    again = subprocess.run(
        [sys.executable, "-m", "fedmim", "compare", "--resume", "--out", "killed", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert again.returncode == 0, again.stderr
    main([*words, "--out", str(tmp_path / "alone"), "--quiet", "--jobs", "1"])
    assert models(tmp_path / "killed") == models(tmp_path / "alone")


def test_a_local_cluster_ends_with_its_command_and_leaves_nothing(tmp_path):
    words = ["--data=digits", "--methods=fedavg,fedmim", "--rounds=100000", "--model=logistic", "--out=killed"]
    program = [sys.executable, "-m", "fedmim", "compare", *words, "--ray", "local", "--jobs", "2", "--quiet"]
    command = subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert soon(lambda: len(list(tmp_path.glob("killed/*/metrics.jsonl"))) == 2)
        before = ray_processes(command.pid)
        assert before
    finally:
        command.kill()
        command.communicate()
    assert soon(lambda: not [pid for pid in before if Path(f"/proc/{pid}/cmdline").exists() and not zombie(pid)])


def ray_processes(ancestor: int) -> list[int]:
    """The processes of a command, except two of Ray that end by themselves about a minute after it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    found, new = set(), {ancestor}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - found
        found |= new
    agents = ("DashboardAgent", "RuntimeEnvAgent")
    return sorted(pid for pid in found if not any(agent in command_of(pid) for agent in agents))


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_an_address_where_nothing_listens_is_rejected_at_once():
    begin = time.monotonic()
    with pytest.raises(UserError, match=r"ray: nothing listens on 127\.0\.0\.1:9"):
        check_listening("127.0.0.1:9")
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("address", ["nowhere", ":6379", "host:", "host:0", "host:port", "host:99999"])
def test_a_malformed_address_is_one_line(address):
    with pytest.raises(UserError, match="ray: must be HOST:PORT of the head node"):
        check_listening(address)


def test_ray_client_addresses_are_rejected():
    with pytest.raises(UserError, match="without ray://"):
        find_head("ray://127.0.0.1:10001")


def test_auto_without_a_cluster_says_how_to_start_one(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("fedmim.simulation.ray_cluster.CURRENT_CLUSTER", tmp_path / "none")
    with pytest.raises(UserError, match="no cluster runs on this machine; start one with `ray start --head`"):
        find_head("auto")


def test_changed_files_are_sent_with_a_checkpoint_and_applied_in_order(tmp_path, monkeypatch):
    here, there, sent = tmp_path / "here", tmp_path / "there", []
    (here / "clients").mkdir(parents=True)
    (here / "metrics.jsonl").write_text("1\n")
    watch = FolderWatch(here, sent.append)
    (here / "metrics.jsonl").write_text("1\n2\n")
    watch.look()
    assert sent == []  # nothing to resume from yet
    (here / "clients" / "1.safetensors").write_text("state")
    (here / "checkpoint.safetensors").write_text("checkpoint")
    (here / ".checkpoint.safetensors.part").write_text("half")
    watch.look()
    assert set(sent[0].content) == {"metrics.jsonl", "clients/1.safetensors", "checkpoint.safetensors"}
    order = []
    monkeypatch.setattr("fedmim.experiments.folder_copy.sync_folder", lambda path: order.append(latest(there)))
    sent[0].write(there)
    assert order[-1].name == "checkpoint.safetensors"
    (here / "checkpoint.safetensors").rename(here / "checkpoint.previous.safetensors")
    (here / "checkpoint.safetensors").write_text("newer")
    watch.look()
    assert set(sent[1].content) == {"checkpoint.safetensors"}  # the previous one is there already
    sent[1].write(there)
    assert read_files(there) == read_files(here)
    (here / "clients" / "1.safetensors").unlink()
    watch.look(all=True)
    sent[2].write(there)
    assert read_files(there) == read_files(here)


def latest(folder: Path) -> Path:
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out"])
def test_files_from_a_node_stay_in_their_folder(tmp_path, name):
    with pytest.raises(UserError, match="outside of the folder"):
        ChangedFiles({name: b"x"}).write(tmp_path / "run")
    assert not (tmp_path / "out").exists()
