"""Run folders: never overwritten, cut back to the checkpoint on resuming, finished ones recognised."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils import parameters_to_vector

from fedmim import Callback, Record, Task
from fedmim.errors import UserError
from fedmim.experiments.config import defaults
from fedmim.experiments.fingerprint import fingerprint
from fedmim.experiments.folder_work import FolderWork
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder, jsonable
from fedmim.files import AppendedLines
from fedmim.simulation.past_models import PastModels


def run_of(method="scaffold", **settings):
    return Run.make(method, defaults("digits") | {"rounds": 6, "clients": 20, "local_epochs": 1} | settings)


@pytest.fixture(scope="module")
def task():
    return Task.named("digits", split="dirichlet:0.5", clients=20, model="logistic", seed=0)


class StopNowError(Exception):
    pass


def stop_at(number):
    def watch(record):
        if record.round == number:
            raise StopNowError

    return watch


def without_seconds(folder):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in folder.metrics()]


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path, task):
    whole = RunFolder.create(tmp_path / "whole", run_of())
    whole.train(task)
    parts = RunFolder.create(tmp_path / "parts", run_of())
    for number in (3, 5):
        with pytest.raises(StopNowError):
            parts.train(task, stop_at(number), every=0)
        assert not parts.finished
    RunFolder.open(tmp_path / "parts").train(task)
    assert parts.finished
    assert without_seconds(parts) == without_seconds(whole)
    assert (parts.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_a_callback_has_the_model_of_the_round_and_the_folder_only_while_it_trains(tmp_path):
    run, norms = run_of("fedavg", rounds=2), []

    class Asks(Callback):
        def on_round(self, info, record):
            norms.append(parameters_to_vector(info.model().parameters()).norm().item())

    class Silent:
        def record(self, run, record):
            pass

    folder = RunFolder.create(tmp_path / "run", run)
    FolderWork(folder.path, run, 10.0, (Asks(),))(Silent())
    final = torch.cat([tensor.flatten() for tensor in load_file(folder.path / "model.safetensors").values()])
    assert len(norms) == 2
    assert norms[-1] == pytest.approx(final.norm().item(), rel=1e-6)
    with pytest.raises(UserError, match="the run is not in training"):
        folder.model()


def test_metrics_after_the_checkpoint_are_cut_and_a_torn_line_too(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    with pytest.raises(StopNowError):
        folder.train(task, stop_at(3), every=0)  # checkpoint after round 2, metrics of 3 rounds
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"round": 4, "test_acc')
    assert [record["round"] for record in folder.metrics()] == [1, 2, 3]
    folder.train(task)
    assert [record["round"] for record in folder.metrics()] == [1, 2, 3, 4, 5, 6]


def test_a_finished_run_can_be_extended_to_the_bits_of_a_longer_one(tmp_path, task):
    short = RunFolder.create(tmp_path / "short", run_of(rounds=3))
    short.train(task)
    older = (short.path / "model.safetensors").read_bytes()
    short = RunFolder.reopen(short.path, run_of(rounds=6))
    assert not short.finished
    with pytest.raises(StopNowError):
        short.train(task, stop_at(6))  # all records are there, but neither checkpoint nor model
    assert not short.finished
    assert (short.path / "model.safetensors").read_bytes() == older  # kept until the new one is there
    short.train(task)
    long = RunFolder.create(tmp_path / "long", run_of(rounds=6))
    long.train(task)
    assert (short.path / "model.safetensors").read_bytes() == (long.path / "model.safetensors").read_bytes()


def test_the_final_model_is_taken_by_load_state_dict(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    folder.train(task)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    model.load_state_dict(load_file(folder.path / "model.safetensors"))
    x, y = task.test
    x = x if task.prepare is None else task.prepare(x)
    accuracy = (model(x).argmax(1) == y).double().mean().item()
    assert accuracy == folder.metrics()[-1]["test_accuracy"]


def test_an_existing_folder_is_not_overwritten(tmp_path):
    RunFolder.create(tmp_path / "run", run_of())
    before = (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(UserError, match="already contains a run; add --resume"):
        RunFolder.create(tmp_path / "run", run_of("fedavg"))
    assert (tmp_path / "run" / "config.toml").read_text() == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UserError, match="is not empty"):
        RunFolder.create(tmp_path / "mine", run_of())
    with pytest.raises(UserError, match="is a file"):
        RunFolder.create(tmp_path / "mine" / "thesis.tex", run_of())


def test_a_folder_in_whose_making_a_kill_came_is_made_anew(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.toml.part").write_text("meth")
    assert RunFolder.create(tmp_path / "run", run_of()).run == run_of()


def test_damage_is_named(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    folder.train(task, every=0)
    checkpoints = sorted(folder.path.glob("checkpoint*"))
    good = {path: path.read_bytes() for path in checkpoints}
    for path in checkpoints:
        path.write_bytes(good[path][:100])
    both = r"checkpoint.safetensors: cannot be read .*checkpoint.previous.safetensors: cannot be read"
    with pytest.raises(UserError, match=both):
        folder.train(task)
    for path in checkpoints:
        path.write_bytes(good[path])
    lines = (folder.path / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder.path / "metrics.jsonl").write_text(lines[0] + "garbage\n" + "".join(lines[2:]))
    with pytest.raises(UserError, match=r"metrics.jsonl: line 2 is damaged"):
        folder.train(task)
    (folder.path / "metrics.jsonl").write_text(lines[0])
    with pytest.raises(UserError, match="has 1 records, the checkpoint has 6 rounds"):
        folder.train(task)
    with pytest.raises(UserError, match="not a run folder"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "garbage", "pipe"])
def test_a_damaged_model_is_written_anew_from_the_checkpoint(damage, tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    folder.train(task)
    model = folder.path / "model.safetensors"
    good = model.read_bytes()
    model.unlink()
    os.mkfifo(model) if damage == "pipe" else model.write_bytes(good[:20] if damage == "cut" else b"garbage")
    assert not folder.finished
    folder.train(task)
    assert model.read_bytes() == good


def test_two_processes_do_not_work_on_one_run(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())

    def second(record):
        with pytest.raises(UserError, match="another process is using"):
            RunFolder.open(folder.path).train(task)

    folder.train(task, second)


def test_changes_name_what_a_run_keeps_to_its_end_and_nothing_else():
    ours = run_of("fedmim", rounds=9, lr=0.3, alpha=[0.5])
    assert ours.changes_to(run_of("fedmim")) == ["lr", "alpha"]
    assert run_of("fedavg").changes_to(run_of("fedprox"))[0] == "method"
    free = {"rounds": 7, "eval_every": 2, "engine": "serial", "workers": 2, "device": "cuda", "data_dir": "/data"}
    assert run_of(**free).changes_to(run_of()) == []


def test_a_run_goes_on_with_another_execution_and_keeps_it(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    with pytest.raises(StopNowError):
        folder.train(task, stop_at(3), every=0)
    before = (folder.path / "config.toml").read_bytes()
    other = RunFolder.reopen(folder.path, run_of(workers=1, engine="serial", eval_every=6))
    assert (folder.path / "config.toml").read_bytes() == before  # nothing is written before it trains
    other.train(task)
    assert RunFolder.open(folder.path).run == run_of(workers=1, engine="serial", eval_every=6)
    assert [record["round"] for record in other.metrics() if record["test_accuracy"] is not None] == [1, 2, 6]


def test_a_run_does_not_go_on_as_another_or_with_fewer_rounds_than_are_done(tmp_path, task):
    RunFolder.create(tmp_path / "run", run_of()).train(task)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="lr, seed cannot change when a run is resumed"):
        RunFolder.reopen(tmp_path / "run", run_of(lr=0.7, seed=2))
    with pytest.raises(UserError, match=r"^rounds: must be at least 6, the rounds that .* has done"):
        RunFolder.reopen(tmp_path / "run", run_of(rounds=5))
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before


def test_records_are_valid_json_even_when_the_loss_is_not_finite():
    record = Record(1, 0.5, float("nan"), float("inf"), None, 0.1, (1, 2), 8, 8, 0, 0.1)
    text = json.dumps(jsonable(record), allow_nan=False)
    assert json.loads(text)["test_loss"] is None
    assert json.loads(text)["clients"] == [1, 2]


@pytest.fixture
def stopped(tmp_path, task):
    """A run of SCAFFOLD that was stopped after three of six rounds, with a checkpoint after the second."""
    folder = RunFolder.create(tmp_path / "run", run_of())
    with pytest.raises(StopNowError):
        folder.train(task, stop_at(3), every=0)
    return folder


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("part", [0.5, 0.7, 0.9, 0.999])
def test_a_bit_that_changed_in_a_checkpoint_is_noticed_and_the_one_before_gives_the_same_run(
    stopped, task, part, tmp_path
):
    path = stopped.path / "checkpoint.safetensors"
    flip(path, int(part * path.stat().st_size))
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors: cannot be read as a checkpoint .*after round 1"):
        RunFolder.open(stopped.path).train(task)
    whole = RunFolder.create(tmp_path / "whole", run_of())
    whole.train(task)
    assert without_seconds(stopped) == without_seconds(whole)
    assert (stopped.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("part", [0.5, 0.999])
def test_a_bit_that_changed_in_a_clients_state_is_noticed(stopped, task, part):
    for path in (stopped.path / "clients").iterdir():
        flip(path, int(part * path.stat().st_size))
    with pytest.raises(UserError, match=r"clients/.*: the state of client \d+ cannot be read"):
        RunFolder.reopen(stopped.path, run_of(rounds=40)).train(task)


def test_states_of_clients_that_were_swapped_are_noticed(stopped, task):
    first, second = (stopped.path / "clients" / f"{client:07d}-000000.safetensors" for client in clients_of(stopped, 0))
    first.rename(first.with_name("away"))
    second.rename(first)
    first.with_name("away").rename(second)
    with pytest.raises(UserError, match=r"not the state of client \d+ after round \d+"):
        RunFolder.reopen(stopped.path, run_of(rounds=40)).train(task)


def clients_of(folder, round):
    """Two clients of that round who did not train again in the next."""
    records = folder.metrics()
    return sorted(set(records[round]["clients"]) - set(records[round + 1]["clients"]))[:2]


@pytest.mark.parametrize(("name", "old", "new"), [("split", "dirichlet:0.1", "iid"), ("clients", "20", "10")])
def test_a_configuration_that_was_edited_is_noticed(stopped, task, name, old, new):
    path = stopped.path / "config.toml"
    path.write_text(path.read_text().replace(f"{name} = {old}", f"{name} = {new}").replace(f'"{old}"', f'"{new}"'))
    with pytest.raises(UserError, match=f"the run there has a different {name}"):
        RunFolder.open(stopped.path).train(task)


def test_data_that_was_replaced_is_noticed(stopped):
    other = Task.named("digits", split="dirichlet:0.5", clients=20, model="logistic", seed=1)
    with pytest.raises(UserError, match="the run there has a different content of the data"):
        RunFolder.open(stopped.path).train(other)


def test_a_final_model_that_cannot_be_read_is_written_again(tmp_path, task):
    folder = RunFolder.create(tmp_path / "run", run_of())
    folder.train(task)
    model = (folder.path / "model.safetensors").read_bytes()
    (folder.path / "model.safetensors").write_bytes(model[:20])
    assert not folder.finished
    folder.train(task)
    assert (folder.path / "model.safetensors").read_bytes() == model


def test_parts_of_files_that_a_kill_left_behind_are_removed_on_resuming(stopped, task):
    (stopped.path / "clients" / ".0000001-000002.safetensors.part").write_text("half")
    (stopped.path / ".config.toml.part").write_text("half")
    RunFolder.open(stopped.path).train(task)
    assert not list(stopped.path.rglob("*.part"))


def test_an_interrupt_between_a_round_and_its_record_costs_that_round_and_not_the_run(tmp_path, task, monkeypatch):
    """Ctrl-C at the worst instant: the server is a round ahead of metrics.jsonl."""
    whole = RunFolder.create(tmp_path / "whole", run_of())
    whole.train(task)
    folder = RunFolder.create(tmp_path / "run", run_of())

    def interrupted(lines, line):
        if json.loads(line)["round"] == 4:
            raise KeyboardInterrupt
        add(lines, line)

    add = AppendedLines.add
    with monkeypatch.context() as patch:
        patch.setattr(AppendedLines, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.train(task, every=0)
    RunFolder.open(folder.path).train(task)
    assert without_seconds(folder) == without_seconds(whole)
    assert (folder.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_an_interrupt_in_the_middle_of_a_commit_saves_no_torn_state(tmp_path, task, monkeypatch):
    """Ctrl-C when the clients' new states count already and the server's does not."""
    whole = RunFolder.create(tmp_path / "whole", run_of())
    whole.train(task)
    folder = RunFolder.create(tmp_path / "run", run_of())

    def interrupted(past, clients, round):
        if round == 3:
            raise KeyboardInterrupt
        hear(past, clients, round)

    hear = PastModels.hear
    with monkeypatch.context() as patch:
        patch.setattr(PastModels, "hear", interrupted)
        with pytest.raises(KeyboardInterrupt):
            folder.train(task, every=0)
    RunFolder.open(folder.path).train(task)
    assert (folder.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


def test_the_fingerprint_of_structured_data_covers_every_tensor():
    x, y = {"ids": torch.arange(12).view(6, 2), "mask": torch.ones(6, dtype=torch.bool)}, (torch.arange(6),)

    def found(place=None):
        parts = {
            name: value.clone()
            for name, value in {"ids": x["ids"], "mask": x["mask"], "y": y[0], "test": y[0], "test_x": x["ids"]}.items()
        }
        if place:
            parts[place][-1] = 0
        train = {"ids": parts["ids"], "mask": parts["mask"]}, (parts["y"],)
        test = {"ids": parts["test_x"], "mask": x["mask"]}, (parts["test"],)
        return fingerprint(Task.from_dataset(torch.nn.Linear(1, 1), train, test, clients=2))["content of the data"]

    assert found() == found()
    assert len({found(place) for place in (None, "ids", "mask", "y", "test", "test_x")}) == 6


def test_a_run_folder_resumes_structured_data_and_rejects_other_data(tmp_path, task):
    def split(x):
        return {"top": x.flatten(1)[:, :32], "bottom": x.flatten(1)[:, 32:]}

    class Halves(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(64, 10)
            torch.nn.init.zeros_(self.layer.weight)
            torch.nn.init.zeros_(self.layer.bias)

        def forward(self, top, bottom):
            return self.layer(torch.cat([top, bottom], dim=-1))

    def structured(scale=1):
        x = {name: scale * part for name, part in split(task.clients.x).items()}
        test = split(task.test[0]), task.test[1]
        return Task.from_dataset(Halves(), (x, task.clients.y), test, split="dirichlet:0.5", clients=20)

    whole = RunFolder.create(tmp_path / "whole", run_of())
    whole.train(structured())
    parts = RunFolder.create(tmp_path / "parts", run_of())
    with pytest.raises(StopNowError):
        parts.train(structured(), stop_at(3), every=0)
    with pytest.raises(UserError, match="a different content of the data"):
        parts.train(structured(scale=2))
    parts.train(structured())
    assert without_seconds(parts) == without_seconds(whole)
    assert (parts.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


UNTIL = {"rounds": 12, "model": "logistic", "split": "dirichlet:0.5"}


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory, task):
    folder = RunFolder.create(tmp_path_factory.mktemp("runs") / "whole", run_of(**UNTIL))
    assert folder.train(task) is None
    return folder


@pytest.fixture(scope="module")
def target(never_stopped):
    """An accuracy that is first reached in round 6, 7 or 8, and that round."""
    accuracies = [record["test_accuracy"] for record in never_stopped.metrics()]
    at = next(at for at in (5, 6, 7) if accuracies[at] > max(accuracies[:at]))
    return accuracies[at], at + 1


def test_a_run_that_reaches_its_target_is_finished_and_goes_on_to_the_same_bits(tmp_path, task, never_stopped, target):
    until, first = target
    folder = RunFolder.create(tmp_path / "run", run_of(**UNTIL, until=until))
    assert folder.train(task) == f"reached {until:g} in round {first}"
    assert folder.finished
    assert without_seconds(folder) == without_seconds(never_stopped)[:first]
    on = RunFolder.reopen(folder.path, run_of(**UNTIL))
    assert not on.finished
    assert on.train(task) is None
    assert on.finished
    assert without_seconds(on) == without_seconds(never_stopped)
    assert (on.path / "model.safetensors").read_bytes() == (never_stopped.path / "model.safetensors").read_bytes()
    lower = RunFolder.reopen(folder.path, run_of(**UNTIL, until=until))  # it has been reached before
    assert lower.finished


def test_a_killed_run_stops_in_the_same_round(tmp_path, task, never_stopped, target):
    until, first = target
    folder = RunFolder.create(tmp_path / "run", run_of(**UNTIL, until=until))
    for number, every in ((2, 0), (4, 1000), (first, 1000)):  # a checkpoint after every round, then only the first
        with pytest.raises(StopNowError):
            folder.train(task, stop_at(number), every=every)
        assert not folder.finished
    assert folder.train(task) == f"reached {until:g} in round {first}"
    assert without_seconds(folder) == without_seconds(never_stopped)[:first]


def test_patience_counts_the_rounds_before_a_kill(tmp_path, task):
    flat = run_of(**UNTIL | {"rounds": 30, "lr": 1e-9, "patience": 6})
    folder = RunFolder.create(tmp_path / "run", flat)
    with pytest.raises(StopNowError):
        folder.train(task, stop_at(5), every=0)
    assert folder.train(task) == "stopped in round 7, no improvement since round 1"
    assert folder.rounds_done() == 7


def test_the_display_is_told_once_that_a_run_stopped(tmp_path, task, target):
    class Display:
        def __init__(self):
            self.rounds, self.ended = 0, []

        def record(self, run, record):
            self.rounds += 1

        def skip(self, run):
            self.ended.append(self.rounds)

    for rounds, ended in ((12, [target[1]]), (target[1], [])):  # in its last round the record says it
        display, path = Display(), tmp_path / f"{rounds}"
        run = run_of(**UNTIL | {"until": target[0], "rounds": rounds})
        RunFolder.create(path, run)
        FolderWork(path, run, 10.0)(display)
        assert (display.rounds, display.ended) == (target[1], ended)
