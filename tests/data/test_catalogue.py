"""Data sets by name: what is known, where it is looked for, and what is said when it is not there."""

import subprocess
import sys

import pytest
import torch

from fedmim.data import Dataset, DatasetDescriptor, catalogue, known, load
from fedmim.errors import UserError
from fedmim.experiments.config import Config, defaults, target_of
from fedmim.reproduction.layout import data_title

FILES = {
    "cifar-10-batches-py": [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"],
    "heart-disease": ["processed.cleveland.data"],
}


@pytest.fixture
def directory(tmp_path):
    for folder, files in FILES.items():
        (tmp_path / folder).mkdir()
        for file in files:
            (tmp_path / folder / file).write_bytes(b"never opened by known()")
    return tmp_path


def test_known_lists_what_is_there_what_is_incomplete_and_what_is_missing(directory):
    listed = {entry.name: entry for entry in known(directory)}
    assert listed["cifar10"].found == directory / "cifar-10-batches-py"
    assert listed["cifar10"].problem is None
    assert "processed.hungarian.data is missing" in listed["heart-disease"].problem
    assert str(directory / "cifar-100-python") in listed["cifar100"].problem
    assert listed["cifar100"].descriptor.downloads
    assert listed["digits"].problem is None
    assert not listed["digits"].descriptor.downloads
    assert {"fashion-mnist", "tiny-imagenet", "folder:PATH", "tensors:PATH"} <= set(listed)


def test_the_directory_is_the_argument_else_the_variable_else_data(directory, monkeypatch):
    def cifar10_is_found(*arguments):
        return {entry.name: entry.found for entry in known(*arguments)}["cifar10"] is not None

    monkeypatch.delenv("FEDMIM_DATA", raising=False)
    monkeypatch.chdir(directory)
    assert not cifar10_is_found()
    monkeypatch.setenv("FEDMIM_DATA", str(directory))
    assert cifar10_is_found()
    assert not cifar10_is_found(directory / "elsewhere")
    monkeypatch.delenv("FEDMIM_DATA")
    (directory / "data").mkdir()
    (directory / "cifar-10-batches-py").rename(directory / "data" / "cifar-10-batches-py")
    assert cifar10_is_found()


@pytest.mark.parametrize("name", ["fashion-mnist", "cifar10", "cifar100", "tiny-imagenet", "heart-disease"])
def test_missing_data_names_the_folder_and_both_remedies(tmp_path, name):
    with pytest.raises(UserError) as caught:
        load(name, tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message
    assert "--data-dir" in message
    assert f"fedmim data fetch {name}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "near"), [("cifar", "cifar10"), ("tinyimagenet", "tiny-imagenet"), ("digit", "digits")]
)
def test_an_unknown_name_gets_the_nearest_known_one(name, near):
    with pytest.raises(UserError, match=f"did you mean '{near}'.*Known: digits, mnist1d, fashion-mnist, cifar10"):
        load(name)


def test_an_image_size_is_rejected_where_it_has_no_meaning():
    with pytest.raises(UserError, match="image_size: only folder:PATH supports it"):
        load("digits", image_size=32)


class Toy(DatasetDescriptor):
    """A data set as a contributor would write it."""

    def load(self, directory):
        x = torch.load(self.find(directory) / "x.pt")
        return Dataset(self.name, train=(x, x[:, 0].long()), test=(x, x[:, 0].long()), classes=self.classes)


TOY = Toy(
    name="toy",
    title="Toy",
    description="numbers from 0 to 3",
    train_size=4,
    test_size=4,
    classes=4,
    folder="toy-folder",
    defaults={"rounds": 7, "model": "logistic"},
    target=0.6,
)


def test_a_new_data_set_needs_its_descriptor_and_an_entry_in_the_list(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "DATA_SETS", (*catalogue.DATA_SETS, TOY))
    with pytest.raises(UserError, match=r"toy: no folder .*toy-folder.*fedmim data fetch toy"):
        load("toy", tmp_path)
    assert known(tmp_path)[-1].found is None
    (tmp_path / "toy-folder").mkdir()
    torch.save(torch.arange(4.0)[:, None], tmp_path / "toy-folder" / "x.pt")
    assert load("toy", tmp_path).train[1].tolist() == [0, 1, 2, 3]
    assert known(tmp_path)[-1].name == "toy"
    assert known(tmp_path)[-1].found == tmp_path / "toy-folder"
    assert {name: value for name, value in defaults("toy").items() if value != defaults("tensors:x")[name]} == {
        "data": "toy",
        "rounds": 7,
        "model": "logistic",
    }
    assert target_of("toy") == 0.6
    with pytest.raises(UserError, match="did you mean 'toy'"):
        load("toys")


def test_the_first_classes_of_tiny_imagenet_have_the_defaults_of_the_whole_but_their_own_title_and_no_target():
    part, whole = defaults("tiny-imagenet:20"), defaults("tiny-imagenet")
    assert part == whole | {"data": "tiny-imagenet:20"}
    assert (target_of("tiny-imagenet"), target_of("tiny-imagenet:20")) == (0.2, None)
    assert data_title("tiny-imagenet:20") == "TinyImageNet, 20 of 200 classes"


def test_a_data_set_without_a_title_goes_by_its_name():
    assert [data_title(data) for data in ("cifar10", "digits", "folder:~/mine", "not known")] == [
        "CIFAR-10",
        "digits",
        "folder:~/mine",
        "not known",
    ]


def test_own_defaults_are_settings_of_a_run():
    assert all(set(each.defaults) <= set(Config().flat()) for each in catalogue.DATA_SETS)


def test_names_of_data_sets_are_all_different():
    names = [name for each in catalogue.DATA_SETS for name in each.names]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("module", ["fedmim.data", "fedmim.data.catalogue", "fedmim.experiments.config"])
def test_neither_torch_nor_numpy_is_imported_to_look_a_data_set_up(module):
    program = (
        f"import sys, {module}; from fedmim.data import known; from fedmim.data.catalogue import find_descriptor; "
        "assert find_descriptor('cifar10').title == 'CIFAR-10'; assert len(known()) >= 8; "
        "assert not {'torch', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
