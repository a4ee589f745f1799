"""Your own tensors: `tensors:PATH.safetensors`, with x_train, y_train, x_test and y_test.

x is float32 or float64 of any shape (n, ...), used without changes, or uint8 images (n, C, H, W), normalised with the
mean and standard deviation of the training part. y has whole numbers from 0. An optional `client`, one whole number per
training sample, gives the natural split: samples with the same number belong to one client, and clients are in
ascending order. An optional `client_test`, one whole number per test sample, gives each of these clients its own test
data.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedmim.data.descriptor import Dataset, OwnData
from fedmim.data.lazy_arrays import Tensor, torch
from fedmim.data.transforms import Normalise
from fedmim.errors import UserError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")


class OwnTensors(OwnData):
    """A safetensors file."""

    def load(self, directory: Path) -> Dataset:
        """Read and check the tensors of the file."""
        tensors = self._read()
        x_train, y_train, x_test, y_test = (tensors[name] for name in REQUIRED)
        if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
            raise UserError(f"{self.path}: x_train and x_test must have the same sample shape and dtype")
        self._check_inputs("x_train", x_train)
        self._check_inputs("x_test", x_test)
        self._check_labels("y_train", y_train, len(x_train))
        self._check_labels("y_test", y_test, len(x_test))
        classes = int(max(y_train.max(), y_test.max())) + 1
        if classes > 1000 + 10 * (len(y_train) + len(y_test)):
            raise UserError(
                f"{self.path}: a label is {classes - 1:,}, but there are only {len(y_train) + len(y_test):,} samples: "
                "number the classes 0, 1, 2, ..."
            )
        return Dataset(
            self.name,
            train=(x_train, y_train.long()),
            test=(x_test, y_test.long()),
            classes=classes,
            prepare=Normalise.of(x_train) if x_train.dtype == torch.uint8 else None,
            **self._clients(tensors),
        )

    def _read(self) -> dict[str, Tensor]:
        from safetensors.torch import load_file

        if not self.path.is_file():
            raise UserError(f"{self.name}: there is no such file")
        try:
            tensors = load_file(self.path)
        except OSError:
            raise
        except Exception as error:  # a damaged header can have invalid dtypes and shapes
            raise UserError(f"{self.path} cannot be read as safetensors ({error}): write it again") from error
        missing = [name for name in REQUIRED if name not in tensors]
        if missing:
            raise UserError(f"{self.path} has no {missing[0]}: it needs {', '.join(REQUIRED)}")
        return tensors

    def _check_inputs(self, name: str, x: Tensor) -> None:
        where = f"{self.path}: {name}"
        if x.dim() < 2 or not x.numel():
            raise UserError(f"{where} must have a sample dimension and features, got shape {tuple(x.shape)}")
        if x.dtype == torch.uint8:
            if x.dim() != 4:
                raise UserError(f"{where} is uint8, which is only for images (n, C, H, W): use float32 for features")
        elif x.dtype not in (torch.float32, torch.float64):
            raise UserError(f"{where} is {x.dtype}: use float32, float64, or uint8 for images")
        elif not x.isfinite().all():
            raise UserError(f"{where} has values that are not finite: replace or remove them")

    def _check_labels(self, name: str, y: Tensor, count: int) -> None:
        self._check_numbers(name, y, count)
        if y.min() < 0:
            raise UserError(f"{self.path}: {name} has the label {int(y.min())}: classes are numbered from 0")

    def _clients(self, tensors: dict[str, Tensor]) -> dict[str, Any]:
        """The natural clients with their names and test data, as fields of the data set."""
        if "client" not in tensors:
            if "client_test" in tensors:
                raise UserError(f"{self.path} has client_test but no client: add it, or remove client_test")
            return {}
        client, tested = tensors["client"], tensors.get("client_test")
        self._check_numbers("client", client, len(tensors["y_train"]))
        numbers, sizes = client.unique(return_counts=True)
        found = {
            "natural": torch.split(client.argsort(stable=True), sizes.tolist()),
            "client_names": tuple(map(str, numbers.tolist())),
        }
        if tested is None:
            return found
        self._check_numbers("client_test", tested, len(tensors["y_test"]))
        return found | {"client_tests": _samples_of(numbers, tested)}

    def _check_numbers(self, name: str, numbers: Tensor, count: int) -> None:
        whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
        if numbers.dtype not in whole or numbers.shape != (count,):
            raise UserError(
                f"{self.path}: {name} must be {count} whole numbers, "
                f"got {numbers.dtype} of shape {tuple(numbers.shape)}"
            )


def _samples_of(numbers: Tensor, client: Tensor) -> tuple[Tensor, ...]:
    """The indices of each number's samples; the numbers are ascending."""
    client, order = client.long().sort(stable=True)
    starts, ends = (torch.searchsorted(client, numbers.long(), right=right) for right in (False, True))
    return tuple(order[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True))


OWN_TENSORS = OwnTensors(name="tensors:PATH", description="your own tensors, in a safetensors file")
