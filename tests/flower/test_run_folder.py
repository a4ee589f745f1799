"""A Flower run with a folder is a run folder: reports read it, and a resumed run continues it."""

from __future__ import annotations

import json

import pytest
import torch
from loopback import federation, run_simulator
from problems import BUSY, SIZES, classification
from safetensors.torch import load_file

import fedmim
from fedmim.cli import main
from fedmim.errors import UserError
from fedmim.experiments.config import Problem
from fedmim.experiments.run_folder import RunFolder
from fedmim.flower import FlowerStrategy, client_app, evaluate_fn

TASK = classification(dtype=torch.float32)
SETTINGS = fedmim.Settings(**BUSY)
N = len(SIZES)


def make(tmp_path, algorithm=None, fault=None, **options):
    algorithm = algorithm or fedmim.FedMIM()
    app = client_app(lambda partition, context: TASK, algorithm, SETTINGS)
    strategy = FlowerStrategy(
        algorithm, TASK.model, SETTINGS, clients=N, wait=0.0, folder=tmp_path / "runs" / "a", **options
    )
    return strategy, federation(app, N, tmp_path, fault)


def start(strategy, grid, **options):
    return strategy.start(grid, evaluate_fn=evaluate_fn(TASK, SETTINGS), **options)


def test_the_files_are_those_of_a_run_and_have_the_simulators_numbers(tmp_path):
    strategy, grid = make(tmp_path)
    start(strategy, grid)
    folder = RunFolder.open(tmp_path / "runs" / "a")
    assert folder.finished
    assert (folder.run.method, folder.run.algorithm, folder.run.config.settings) == (
        "fedmim",
        fedmim.FedMIM(),
        SETTINGS,
    )
    records, models = run_simulator(fedmim.FedMIM(), TASK, SETTINGS)
    for found, expected in zip(folder.metrics(), records, strict=True):
        assert found["test_accuracy"] == pytest.approx(expected.test_accuracy)
        assert found["test_loss"] == pytest.approx(expected.test_loss, rel=1e-6)
        for name in ("round", "train_loss", "consistency", "lr", "bytes_up", "bytes_down", "refused", "failed"):
            assert found[name] == getattr(expected, name), name
    model = load_file(folder.path / "model.safetensors")
    assert all(torch.equal(model[name], value) for name, value in models[-1].items())


def test_report_and_plot_work_on_it(tmp_path):
    strategy, grid = make(
        tmp_path, problem=Problem(data="ours", split="natural", clients=N, model="net"), label="Clinics"
    )
    start(strategy, grid)
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "report.html")]) == 0
    assert "Clinics" in (tmp_path / "report.html").read_text()
    assert main(["plot", str(tmp_path / "runs"), "-o", str(tmp_path / "figures")]) == 0
    assert all(path.stat().st_size > 10_000 for path in (tmp_path / "figures").glob("*.png"))
    assert list((tmp_path / "figures").glob("*.png"))


def test_a_resumed_run_has_the_history_of_all_rounds_and_the_bits_of_one_that_was_not_interrupted(tmp_path):
    def dies(message, answer):
        if message.content.get("config", {}).get("server-round") == 4:
            raise KeyboardInterrupt
        return answer()

    strategy, grid = make(tmp_path, fault=dies)
    with pytest.raises(KeyboardInterrupt):
        start(strategy, grid)
    seen = []
    strategy, grid = make(tmp_path, resume=True)
    assert [record.round for record in strategy.history] == [1, 2, 3]
    result = strategy.start(grid, evaluate_fn=lambda round, arrays: seen.append(round))
    assert seen == [3, 4, 5]
    assert sorted(result.train_metrics_clientapp) == [4, 5]
    records, models = run_simulator(fedmim.FedMIM(), TASK, SETTINGS)
    assert [r.consistency for r in strategy.history] == [r.consistency for r in records]
    assert all(torch.equal(result.arrays.to_torch_state_dict()[name], value) for name, value in models[-1].items())
    lines = (tmp_path / "runs" / "a" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2, 3, 4, 5]


def test_a_resumed_run_waits_for_all_clients_again(tmp_path):
    strategy, grid = make(tmp_path)
    start(strategy, grid, num_rounds=2)
    strategy, grid = make(tmp_path, resume=True)
    del grid.nodes[next(iter(grid.nodes))]
    with pytest.raises(UserError, match="clients: 7 are needed, but 6 were connected"):
        start(strategy, grid)


def test_a_finished_run_can_be_extended(tmp_path):
    strategy, grid = make(tmp_path)
    start(strategy, grid, num_rounds=2)
    strategy, grid = make(tmp_path, resume=True)
    start(strategy, grid)
    assert [record.round for record in strategy.history] == [1, 2, 3, 4, 5]
    assert RunFolder.open(tmp_path / "runs" / "a").finished


def test_a_run_that_was_killed_before_its_first_checkpoint_can_be_started_again(tmp_path):
    def dies(message, answer):
        raise KeyboardInterrupt

    strategy, grid = make(tmp_path, fault=dies)
    with pytest.raises(KeyboardInterrupt):
        start(strategy, grid)
    strategy, grid = make(tmp_path)
    start(strategy, grid)
    assert len(RunFolder.open(tmp_path / "runs" / "a").metrics()) == 5


def test_a_strategy_that_is_not_started_writes_nothing_and_no_foreign_folder_is_used(tmp_path):
    make(tmp_path)
    assert not (tmp_path / "runs").exists()
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "thesis.tex").write_text("mine")
    strategy, grid = make(tmp_path)
    with pytest.raises(UserError, match="is not empty"):
        start(strategy, grid)
    assert [path.name for path in (tmp_path / "runs" / "a").iterdir()] == ["thesis.tex"]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_without_a_checkpoint_such_as_an_archived_one_is_never_overwritten(resume, tmp_path):
    strategy, grid = make(tmp_path)
    start(strategy, grid)
    folder = tmp_path / "runs" / "a"
    for path in [*folder.glob("checkpoint*"), folder / "model.safetensors"]:
        path.unlink()
    before = contents(folder)
    with pytest.raises(UserError, match="there is already a run"):
        make(tmp_path, resume=resume)
    assert contents(folder) == before


def test_a_run_of_something_else_is_not_resumed_or_overwritten(tmp_path):
    strategy, grid = make(tmp_path)
    start(strategy, grid, num_rounds=2)
    before = contents(tmp_path / "runs" / "a")
    other = Problem(data="mnist1d", split="natural", clients=N, model="Sequential")
    with pytest.raises(UserError, match="the run there has a different data"):
        make(tmp_path, resume=True, problem=other)
    with pytest.raises(UserError, match="there is already a run"):
        start(strategy, grid)  # the same strategy again
    assert contents(tmp_path / "runs" / "a") == before


def test_failures_are_counted_in_the_records_and_callbacks_see_every_round(tmp_path):
    class Seen(fedmim.Callback):
        def __init__(self):
            self.records = []

        def on_round(self, run, record):
            self.records.append((run.name, record.round, record.test_accuracy, record.failed))

    def raises(message, answer):
        config = message.content.get("config", {})
        trains = message.metadata.message_type == "train" and config["server-round"] == 2
        if trains and config["fedmim-client"] in absent:
            raise RuntimeError("the camera is covered")
        return answer()

    absent = set(run_simulator(fedmim.FedMIM(), TASK, SETTINGS)[0][1].clients[:2])
    seen = Seen()
    strategy, grid = make(tmp_path, fault=raises, callbacks=[seen])
    start(strategy, grid)
    assert [failed for *_, failed in seen.records] == [0, 2, 0, 0, 0]
    assert [record["failed"] for record in RunFolder.open(tmp_path / "runs" / "a").metrics()] == [0, 2, 0, 0, 0]
    assert all(name == "FedMIM" and accuracy is not None for name, _, accuracy, _ in seen.records)


def test_no_rounds_are_none(tmp_path):
    strategy, grid = make(tmp_path)
    result = strategy.start(grid, num_rounds=0)
    assert strategy.history == []
    expected = TASK.model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in result.arrays.to_torch_state_dict().items())
