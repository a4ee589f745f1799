"""Reading a Dataset, or a list of items, into tensors.

An item is (x, y), or a dict whose `columns` are named. x and y are numbers, arrays or tensors, lists of numbers, or
tuples, lists or dicts of arrays or tensors. Items of different shapes need `collate`, a function from a list of items
to (x, y), as for PyTorch's DataLoader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fedmim.data.global_randomness import preserved_randomness
from fedmim.data.lazy_arrays import Tensor, np, torch
from fedmim.errors import UserError, unknown

Names: TypeAlias = str | Sequence[str]  # one column, or several, which become a dict
Columns: TypeAlias = tuple[Names, Names]
"""The columns of x and of y."""
Collate: TypeAlias = Callable[[list[Any]], Any]
"""From a list of items to (x, y), or to a dict of columns."""
Batch: TypeAlias = tuple[Any, Any]  # x and y, each a tensor or a structure of tensors

READ_TWICE = 8  # items; a random flip leaves all of them the same once in 256 times


@dataclass(frozen=True)
class Reader:
    """How the items of a Dataset become x and y."""

    columns: Columns | None = None
    """The names of x and of y in items that are dicts, or in the dict that `collate` returns."""
    collate: Collate | None = None
    """From a list of items to (x, y), for example to pad sequences."""

    def __post_init__(self) -> None:
        columns = self.columns
        if columns is not None and (not isinstance(columns, tuple | list) or len(columns) != 2):
            raise UserError(
                f"columns: must be two, those of x and of y, for example ('image', 'label'), got {columns!r}"
            )

    def read(self, where: str, dataset: Any, if_random: str = "use live=True") -> Batch:
        """All items as one batch; a pair (x, y) is returned unchanged. `where` names the data in errors."""
        if is_pair(dataset):
            return dataset  # type: ignore[no-any-return]
        return self.batch(where, read_items(where, dataset, if_random))

    def read_each(self, datasets: Mapping[str, Any]) -> list[Batch]:
        """Several data sets. `collate` is called once for the items of all, so that it pads all to the same length."""
        if self.collate is None:
            return [self.read(where, dataset) for where, dataset in datasets.items()]
        items = {w: read_items(w, dataset) for w, dataset in datasets.items() if not is_pair(dataset)}
        x, y = self.batch("collate", [item for own in items.values() for item in own]) if items else ((), ())
        parts = _cut(x, y, [len(own) for own in items.values()])
        return [dataset if is_pair(dataset) else next(parts) for dataset in datasets.values()]

    def batch(self, where: str, items: list[Any]) -> Batch:
        """These items as one batch."""
        if self.collate is not None:
            return self._pair(where, "the result of collate", self.collate(items))
        pairs = [self._pair(where, "an item", item) for item in items]
        x, y = (stack(where, name, [pair[side] for pair in pairs]) for side, name in enumerate("xy"))
        return x, y

    def _pair(self, where: str, what: str, item: Any) -> Batch:
        """x and y of an item or a batch."""
        if isinstance(item, Mapping):
            if self.columns is None:
                example = ", ".join(map(repr, list(item)[:2]))
                raise UserError(f"{where}: {what} is a dict; name its columns of x and y, as in columns=({example})")
            x, y = (_column(item, names) for names in self.columns)
            return x, y
        if not (isinstance(item, tuple | list) and len(item) == 2):
            count = f" of {len(item)}" if isinstance(item, tuple | list) else ""
            raise UserError(
                f"{where}: {what} must be (x, y), got {type(item).__name__}{count}; several inputs are one x: "
                "((input, input), y); `collate` can make x and y from any items"
            )
        x, y = item
        return x, y


def is_pair(dataset: Any) -> bool:
    """Whether it is (x, y), not items: a tuple of two."""
    return isinstance(dataset, tuple) and len(dataset) == 2


def read_items(where: str, dataset: Any, if_random: str = "use live=True") -> list[Any]:
    """The items; an error if the first few are different when they are read again."""
    check_dataset(where, dataset)
    items = [dataset[i] for i in range(len(dataset))]
    with preserved_randomness():
        for i, item in enumerate(items[:READ_TWICE]):
            if not same(item, dataset[i]):
                raise UserError(
                    f"{where}: item {i} is different when it is read again, as with random transforms, but data is "
                    f"read only once; {if_random}"
                )
    return items


def check_dataset(where: str, dataset: Any) -> None:
    """Reject what has no items 0, 1, 2, ..."""
    indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    if not indexed or isinstance(dataset, Mapping | str):
        raise UserError(
            f"{where}: must be a pair (x, y), a map-style Dataset or a list of items, got {type(dataset).__name__}"
        )
    if not len(dataset):
        raise UserError(f"{where}: must not be empty")


def stack(where: str, name: str, values: list[Any]) -> Any:
    """One value of each item as a tensor, or a structure of tensors."""
    first = values[0]
    try:
        if isinstance(first, Mapping):
            if any(value.keys() != first.keys() for value in values):
                raise KeyError
            return {key: stack(where, f"{name}[{key!r}]", [value[key] for value in values]) for key in first}
        if is_structure(first):
            if any(len(value) != len(first) for value in values):
                raise KeyError
            return tuple(
                stack(where, f"{name}[{place}]", [value[place] for value in values]) for place in range(len(first))
            )
    except (KeyError, AttributeError, TypeError) as error:
        raise UserError(f"{where}: {name} must have the same parts in all items; use `collate`") from error
    tensors = [as_tensor(where, name, value) for value in values]
    shapes = list(dict.fromkeys(tuple(tensor.shape) for tensor in tensors))
    if len(shapes) > 1:
        raise UserError(f"{where}: {name} has the shapes {shapes[0]} and {shapes[1]}; pad its items with `collate`")
    return torch.stack(tensors)


def is_structure(value: Any) -> bool:
    """Whether a list or tuple holds arrays, not numbers."""
    return isinstance(value, tuple | list) and any(
        isinstance(part, torch.Tensor | np.ndarray | Mapping) for part in value
    )


def as_tensor(where: str, name: str, value: Any) -> Tensor:
    """A number, an array or a list of numbers as a tensor."""
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{where}: {name} is of type {type(value).__name__}, which torch.as_tensor does not take ({error}); "
            "convert it in the Dataset, or with `collate`"
        ) from error


def same(one: Any, other: Any) -> bool:
    """Whether two items are equal; also true if they cannot be compared."""
    if one is other:
        return True
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, torch.Tensor | np.ndarray):
        a, b = torch.as_tensor(one), torch.as_tensor(other)
        return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())  # NaN equals NaN
    kind: Any = type(one)
    if kind.__eq__ is object.__eq__ or one != one:
        return True
    return bool(one == other)


def _column(item: Mapping[str, Any], names: Names) -> Any:
    """One column, or several as a dict."""
    for name in [names] if isinstance(names, str) else names:
        if name not in item:
            raise unknown("columns: column", str(name), map(str, item))
    return item[names] if isinstance(names, str) else {name: item[name] for name in names}


def _cut(x: Any, y: Any, sizes: list[int]) -> Any:
    """The batch in parts of these sizes."""
    from fedmim.structure import length, split  # imports torch

    if not sizes:
        return iter(())
    for side in (x, y):
        if length(side) != sum(sizes):
            raise UserError(f"collate: must return as many samples as items, {sum(sizes)}, got {length(side)}")
    return zip(split(x, sizes), split(y, sizes), strict=True)
