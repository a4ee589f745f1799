"""The run folder of a run whose rounds come from elsewhere."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from fedmim.errors import BusyError, UserError
from fedmim.experiments.recording import Recording, save_state
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.simulation.loop import rounds

VALUES = {"data": "digits", "clients": 3, "rounds": 3, "participation": 1.0, "local_steps": 1, "engine": "serial"}


@pytest.fixture(scope="module")
def run():
    return Run.make("fedavg", VALUES)


def train(run, folder, resume, stop=3, killed_before_the_record=False):
    """Rounds with a checkpoint after each, as a server elsewhere writes them."""
    task, config = run.config.task(), run.config
    with Recording(folder, run, task, resume) as recording:
        run_ = rounds(run.algorithm, task, config.settings, config.execution, folder=folder, resume=recording.resumes)
        for record in run_:
            run_.save()
            if record.round == stop and killed_before_the_record:
                return None
            recording.add(record)
            if record.round == stop:
                break
        state = run_.model.state_dict()
    save_state(state, folder / "model.safetensors", stop)
    return state


def test_the_folder_is_a_finished_run_with_records_and_model(run, tmp_path):
    state = train(run, tmp_path / "a", False)
    folder = RunFolder.open(tmp_path / "a")
    assert folder.finished
    assert [record["round"] for record in folder.metrics()] == [1, 2, 3]
    found = load_file(tmp_path / "a" / "model.safetensors")
    assert all(torch.equal(found[name], value) for name, value in state.items())
    assert (tmp_path / "a" / "clients.json").exists()


@pytest.mark.parametrize("stop", [1, 2])
def test_a_round_that_was_saved_but_not_recorded_is_repeated(stop, run, tmp_path):
    expected = train(run, tmp_path / "whole", False)
    train(run, tmp_path / "a", False, stop=stop, killed_before_the_record=True)
    assert RunFolder.open(tmp_path / "a").rounds_done() == stop - 1
    state = train(run, tmp_path / "a", True)
    assert all(torch.equal(state[name], value) for name, value in expected.items())
    assert [record["round"] for record in RunFolder.open(tmp_path / "a").metrics()] == [1, 2, 3]


def test_records_of_rounds_that_are_repeated_are_replaced(run, tmp_path):
    """The newest checkpoint is lost, so the run goes back by one round."""
    train(run, tmp_path / "a", False, stop=2)
    (tmp_path / "a" / "checkpoint.safetensors").unlink()
    with pytest.warns(UserWarning, match="resuming from the previous checkpoint, after round 1"):
        train(run, tmp_path / "a", True)
    assert [record["round"] for record in RunFolder.open(tmp_path / "a").metrics()] == [1, 2, 3]


def test_a_folder_with_a_run_needs_resume_and_one_without_must_not(run, tmp_path):
    with pytest.raises(UserError, match=r"folder: .*a has no run to resume; set resume=false"):
        Recording(tmp_path / "a", run, run.config.task(), True)
    assert not (tmp_path / "a").exists()
    train(run, tmp_path / "a", False, stop=1)
    with pytest.raises(UserError, match=r"folder: .*a already contains a run; set resume=true"):
        Recording(tmp_path / "a", run, run.config.task(), False)
    with pytest.raises(UserError, match="lr cannot change when a run is resumed"):
        Recording(tmp_path / "a", run.replace(lr=0.5), run.config.task(), True)


def test_a_run_that_ended_before_its_first_round_leaves_nothing_in_the_way(run, tmp_path):
    with Recording(tmp_path / "a", run, run.config.task(), False) as first:
        with pytest.raises(BusyError):  # a run that waits for its clients is not disturbed
            Recording(tmp_path / "a", run, run.config.task(), False)
        assert not first.resumes
    train(run.replace(lr=0.5), tmp_path / "a", False)
    assert RunFolder.open(tmp_path / "a").run.config.settings.lr == 0.5
