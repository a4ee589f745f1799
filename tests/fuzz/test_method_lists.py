"""Lists of methods, as --methods takes them: what is printed is read as it was, and any text is read or rejected."""

import json
import math

import pytest
from fuzzing import fuzzed
from hypothesis import example, given
from hypothesis import strategies as st

from fedmim.errors import UserError
from fedmim.experiments.methods import parse_list

NUMBERS = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.booleans())
VALUES = st.recursive(
    st.one_of(NUMBERS, st.text(st.characters(codec="utf-8"))), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="(),"), min_size=1).map(str.strip).filter(bool)
KEYS = st.text(st.characters(codec="utf-8"), min_size=1)
VARIANTS = st.lists(st.tuples(NAMES, st.dictionaries(KEYS, VALUES, max_size=3)), min_size=1, max_size=3)
PIECES = ["fedmim", "fedavg", "a.py:B", "(", ")", ",", "=", "[", "]", "{", "}", '"', "'", "\\", "\n", "#", ".", " "]
PIECES += ["lr", "label", "alpha", "0.5", "1e400", "nan", "true", "1979-05-27", '"""', "'''", "é", "\0"]


def printed(variants):
    """A list of methods as text, with TOML's words for the values."""
    return ",".join(
        f"{method}({','.join(f'{value_text(name)}={value_text(value)}' for name, value in own.items())})"
        for method, own in variants
    )


def value_text(value):
    if isinstance(value, list):
        return f"[{','.join(map(value_text, value))}]"
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return json.dumps(value).replace("\x7f", "\\u007f") if not isinstance(value, str) else quoted(value)


def quoted(text):
    """A TOML string with everything but plain letters escaped."""
    return '"' + "".join(c if c.isascii() and (c.isalnum() or c in " ,()'") else f"\\U{ord(c):08x}" for c in text) + '"'


@fuzzed(200)
@given(variants=VARIANTS)
@example(variants=[("fedmim", {"label": "a (b, c)"})])
@example(variants=[("it's.py:Own", {"label": "it's"})])
def test_what_is_printed_is_read_as_it_was(variants):
    assert parse_list(printed(variants)) == variants


@fuzzed(300)
@given(text=st.one_of(st.lists(st.sampled_from(PIECES), max_size=25).map("".join), st.text()))
@example(text="," * 200_000)
@example(text=" " * 200_000 + "(")
@example(text="a(" * 100_000)
@example(text=f"fedmim(alpha={'[' * 3000})")
@example(text=f"fedmim(lr={'9' * 5000})")
@example(text=f"fedmim({'a.' * 100_000}a=1)")
@example(text="fedmim(lr=1}\nrounds={)")
@example(text="fedmim(day=1979-05-27)")
def test_any_text_is_read_to_what_it_prints_or_rejected(text):
    try:
        variants = parse_list(text)
    except UserError:
        return
    again = parse_list(printed(plain(variants)))
    assert again == plain(variants)


def plain(variants):
    """Without what `printed` has no words for: tables within settings, and numbers that are none."""
    if any("nan" in repr(own) or "{" in repr(list(own.values())) for _, own in variants):
        return [(method, {}) for method, _ in variants]
    return variants


@pytest.mark.parametrize("label", ["a)b", "a, b", "(", "it's"])
def test_a_label_may_hold_brackets_and_commas(label):
    assert parse_list(f'fedmim(label="{label}"),fedavg') == [("fedmim", {"label": label}), ("fedavg", {})]
