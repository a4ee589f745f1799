"""Tuned settings of an experiment, as its searches would find them."""


def in_all_columns(experiment, best):
    """The same settings in every column; `best` has those of each data set and row."""
    return {(data, column.label, row): own for (data, row), own in best.items() for column in experiment.columns}
