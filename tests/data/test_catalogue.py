"""Data sets by name: what is known, where it is looked for, and what is said when it is not there."""

import pytest

from fedmim.data import known, load
from fedmim.errors import UserError

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
    assert listed["cifar100"].fetchable
    assert listed["digits"].problem is None
    assert not listed["digits"].fetchable
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
    with pytest.raises(UserError, match=f"did you mean '{near}'.*Known: digits, fashion-mnist, cifar10"):
        load(name)


def test_an_image_size_is_refused_where_it_has_no_meaning():
    with pytest.raises(UserError, match="image_size is for folder:PATH only"):
        load("digits", image_size=32)
