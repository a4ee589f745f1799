"""Your own tensors: `tensors:PATH.safetensors`, with x_train, y_train, x_test and y_test.

x is float32 or float64 of any shape (n, ...), taken as it is, or uint8 images (n, C, H, W), normalised with
the constants of the training part. y holds whole numbers from 0. An optional `client`, one whole number for
each training sample, is the natural split: samples with the same number belong to one client, and clients are
in ascending order.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedmim.data.dataset import Dataset
from fedmim.data.transforms import Normalise
from fedmim.errors import UserError

REQUIRED = ("x_train", "y_train", "x_test", "y_test")
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def load_own_tensors(path: Path) -> Dataset:
    """The tensors of the file as a data set."""
    tensors = _read(path)
    x_train, y_train, x_test, y_test = (tensors[name] for name in REQUIRED)
    if x_train.shape[1:] != x_test.shape[1:] or x_train.dtype != x_test.dtype:
        raise UserError(f"{path}: x_train and x_test differ in the shape or type of a sample")
    _check_inputs(path, "x_train", x_train)
    _check_inputs(path, "x_test", x_test)
    train = x_train, _labels(path, "y_train", y_train, len(x_train))
    test = x_test, _labels(path, "y_test", y_test, len(x_test))
    return Dataset(
        f"tensors:{path}",
        train=train,
        test=test,
        classes=int(max(train[1].max(), test[1].max())) + 1,
        natural=_natural(path, tensors["client"], len(x_train)) if "client" in tensors else None,
        prepare=Normalise.of(x_train) if x_train.dtype == torch.uint8 else None,
    )


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise UserError(f"tensors:{path}: there is no such file")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} cannot be read as safetensors ({error}): write it anew") from error
    missing = [name for name in REQUIRED if name not in tensors]
    if missing:
        raise UserError(f"{path} has no {missing[0]}: it needs {', '.join(REQUIRED)}")
    return tensors


def _check_inputs(path: Path, name: str, x: Tensor) -> None:
    if x.dim() < 2 or not len(x):
        raise UserError(f"{path}: {name} must be samples by features or images, not of shape {tuple(x.shape)}")
    if x.dtype == torch.uint8:
        if x.dim() != 4:
            raise UserError(f"{path}: {name} is uint8, which is for images (n, C, H, W): use float32 for features")
    elif x.dtype not in (torch.float32, torch.float64):
        raise UserError(f"{path}: {name} is {x.dtype}: use float32, float64, or uint8 for images")
    elif not x.isfinite().all():
        raise UserError(f"{path}: {name} has values that are not finite: fill or remove them")


def _labels(path: Path, name: str, y: Tensor, count: int) -> Tensor:
    _check_numbers(path, name, y, count)
    if y.min() < 0:
        raise UserError(f"{path}: {name} has the label {int(y.min())}: classes are numbered from 0")
    return y.long()


def _natural(path: Path, client: Tensor, count: int) -> tuple[Tensor, ...]:
    _check_numbers(path, "client", client, count)
    _, sizes = np.unique(client.numpy(), return_counts=True)
    return torch.split(client.argsort(stable=True), sizes.tolist())


def _check_numbers(path: Path, name: str, numbers: Tensor, count: int) -> None:
    if numbers.dtype not in WHOLE or numbers.shape != (count,):
        raise UserError(
            f"{path}: {name} must be {count} whole numbers, not {numbers.dtype} of shape {tuple(numbers.shape)}"
        )
