"""The files of LEAF (Caldas et al. 2018, "LEAF: A Benchmark for Federated Settings"), whose users are the clients.

    train/*.json, test/*.json      {"users": [name, ...], "user_data": {name: {"x": [...], "y": [...]}, ...}, ...}

LEAF's preprocess.sh creates them. Clients are in the order of their names. `num_samples` is not used: LEAF leaves out
the first 79 test samples of a Shakespeare user, which overlap with training samples, but counts them there.

The files are read one after the other, and each user's samples are encoded as soon as they are parsed. This takes up
to minutes, so the result is cached.
"""

from __future__ import annotations

import hashlib
import json
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from fedmim.data.cache import Tensors, cached_tensors
from fedmim.data.descriptor import Dataset, DatasetDescriptor
from fedmim.data.lazy_arrays import Tensor, torch
from fedmim.errors import UserError
from fedmim.memory import check_memory

LEAF_PARTS = ("train", "test")
CACHE = "fedmim-cache.safetensors"
ENCODING = "1"  # to be changed when the cached tensors change
LONGEST_NAME = 200


@dataclass(frozen=True)
class UserSamples:
    """The encoded samples of one user."""

    x: bytes
    y: bytes  # one label per byte


@dataclass
class Part:
    """The samples of all users of a part, one user after the other."""

    x: bytearray = field(default_factory=bytearray)
    y: bytearray = field(default_factory=bytearray)
    users: dict[str, int] = field(default_factory=dict)  # number of samples by name

    def add(self, name: str, samples: UserSamples) -> None:
        """Append the samples of a user."""
        self.x += samples.x
        self.y += samples.y
        self.users[name] = len(samples.y)


@dataclass(frozen=True, kw_only=True)
class Leaf(DatasetDescriptor):
    """A data set of LEAF with inputs of bytes. A subclass encodes the inputs and labels of a user."""

    shape: tuple[int, ...] = ()
    """The shape of a sample."""
    tokens: int | None = None
    prepare: Callable[[Tensor], Tensor] | None = None

    def encode_inputs(self, x: list[Any]) -> bytes:
        """The inputs of one user; raises ValueError if they are wrong."""
        raise NotImplementedError

    def encode_labels(self, y: list[Any]) -> bytes:
        """The labels of one user; raises ValueError if they are wrong."""
        raise NotImplementedError

    def find(self, directory: Path) -> Path:
        """The folder with train and test: the one in `directory`, or `data` in it as LEAF creates it."""
        folder = directory / self.folder
        folder = self.require_files(folder / "data" if (folder / "data").is_dir() else folder, LEAF_PARTS)
        for part in LEAF_PARTS:
            if not _files(folder / part):
                raise UserError(f"{self.name}: {folder / part} has no .json files; {self.fetch_again(folder)}")
        return folder

    def load(self, directory: Path) -> Dataset:
        """The samples as uint8 tensors; each user is a natural client with its own test data."""
        folder = self.find(directory)
        files = {part: _files(folder / part) for part in LEAF_PARTS}
        made = cached_tensors(folder / CACHE, self._fingerprint(files), lambda: self._read_all(files))
        users: dict[str, dict[str, int]] = json.loads(made["users"].numpy().tobytes())
        names = tuple(sorted(users["train"]))
        return Dataset(
            self.name,
            train=(made["x_train"], made["y_train"].long()),
            test=(made["x_test"], made["y_test"].long()),
            classes=self.classes,
            natural=_places(names, users["train"]),
            prepare=self.prepare,
            tokens=self.tokens,
            client_names=names,
            client_tests=_places(names, users["test"]),
        )

    def _fingerprint(self, files: Mapping[str, Sequence[Path]]) -> str:
        """Changes with any file's name, size or modification time. Reads no file."""
        digest = hashlib.sha256(f"{self.name} {ENCODING}\n".encode())
        for part in LEAF_PARTS:
            for file in files[part]:
                status = file.stat()
                digest.update(f"{part} {file.name!r} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def _read_all(self, files: Mapping[str, Sequence[Path]]) -> Tensors:
        tensors, users = {}, {}
        for part in LEAF_PARTS:
            read = self._read_part(files[part])
            users[part] = read.users
            tensors[f"x_{part}"] = torch.frombuffer(read.x, dtype=torch.uint8).view(-1, *self.shape)
            tensors[f"y_{part}"] = torch.frombuffer(read.y, dtype=torch.uint8)
        return tensors | {"users": torch.frombuffer(bytearray(json.dumps(users).encode()), dtype=torch.uint8)}

    def _read_part(self, files: Sequence[Path]) -> Part:
        part, origin = Part(), dict[str, Path]()
        for file in files:
            for name, samples in self._read(file).items():
                if name in origin:
                    raise self.damaged(file, f"user {name!r} is also in {origin[name].name}")
                origin[name] = file
                part.add(name, samples)
        if not part.users:
            raise self.damaged(files[0], "it has no users")
        return part

    def _read(self, file: Path) -> dict[str, UserSamples]:
        """The samples of each user in a file."""
        # Its bytes, its text, and the parsed samples of one user.
        check_memory(
            3 * file.stat().st_size, f"data: {file}", "use a smaller sample of the data: --sf of preprocess.sh"
        )
        try:
            content = json.loads(file.read_bytes(), object_hook=self._encode)
        except (ValueError, RecursionError) as error:
            raise self.damaged(file, f"it cannot be read as JSON ({error})") from error
        users = content.get("user_data") if isinstance(content, dict) else None
        listed = content.get("users") if isinstance(content, dict) else None
        if not isinstance(users, dict) or not isinstance(listed, list):
            raise self.damaged(file, "it needs users, a list, and user_data, an object")
        for name, samples in users.items():
            self._check_user(file, name, samples)
        if not all(isinstance(name, str) for name in listed) or sorted(listed) != sorted(users):
            raise self.damaged(file, "users does not list the users of user_data")
        return users

    def _encode(self, found: dict[str, Any]) -> object:
        """Called for each parsed JSON object: the samples of a user, or what is wrong with them."""
        if not {"x", "y"} <= found.keys():
            return found
        x, y = found["x"], found["y"]
        try:
            if not isinstance(x, list) or not isinstance(y, list):
                raise ValueError("x and y must be lists")
            if len(x) != len(y) or not x:
                raise ValueError(f"it has {len(x)} inputs and {len(y)} labels")
            return UserSamples(self.encode_inputs(x), self.encode_labels(y))
        except ValueError as error:
            return error  # its user is not known yet

    def _check_user(self, file: Path, name: str, samples: object) -> None:
        who = f"user {reprlib.repr(name)}"
        if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise self.damaged(file, f"{who}: a name must have 1 to {LONGEST_NAME} printable characters")
        if isinstance(samples, ValueError):
            raise self.damaged(file, f"{who}: {samples}")
        if not isinstance(samples, UserSamples):
            raise self.damaged(file, f"{who}: x or y is missing")


def shown(value: object) -> str:
    """A wrong value in an error message, shortened."""
    return reprlib.repr(value)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _places(names: Sequence[str], sizes: Mapping[str, int]) -> tuple[Tensor, ...]:
    """The indices of each of these users' samples; none for a user without any."""
    ends = dict(zip(sizes, accumulate(sizes.values()), strict=True))
    return tuple(torch.arange(ends.get(name, 0) - sizes.get(name, 0), ends.get(name, 0)) for name in names)
