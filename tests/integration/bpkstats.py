"""The statistics of a tensor in plain NumPy: the judge of `bpk stats` and views/stats.

`stats(tensor)` gives the object that must be shown, with floats as Python's, or None where no version of Burn makes
values of the tensor; `check(shown, tensor)` compares. Counts, extremes and the histogram must be the same, mean and
deviation as near as float64 lets two ways to add be.
"""

import math

import numpy as np

import bpkf32
import bpkview as view
from bpkref import BOOL_SIZES

BINS = 32
KEYS = ["name", "dtype", "shape", "count", "nan", "inf", "neg_inf", "zeros"]
EMPTY = {"min": None, "max": None, "counts": [0] * 32}
KEYS += ["min", "max", "mean", "std", "abs_max", "histogram"]


def values(tensor):
    """The tensor's values in NumPy's own dtype, 1-D; float32 where NumPy has none."""
    dtype, raw = tensor.dtype, tensor.bytes()
    if dtype == "Bool" or isinstance(dtype, dict) and "Bool" in dtype:
        size = 1 if dtype == "Bool" else BOOL_SIZES[dtype["Bool"]]
        found = np.frombuffer(raw, f"<u{size}") != 0
    elif dtype == "BF16" or isinstance(dtype, dict):
        return bpkf32.values(dtype, tensor.shape, raw).reshape(-1)
    else:
        found = np.frombuffer(raw, view.NUMPY[dtype])
    if found.size != math.prod(tensor.shape):
        raise bpkf32.Misfit
    return found


def number(value):
    """Of the kind that JSON shows."""
    return int(value) if isinstance(value, (np.integer, np.bool_)) else float(value)


def stats(tensor):
    try:
        x = values(tensor)
    except (bpkf32.Unsupported, bpkf32.Misfit):
        return None
    finite = x[np.isfinite(x)]
    found = {
        "count": x.size,
        "nan": int(np.isnan(x).sum()),
        "inf": int((x == np.inf).sum()),
        "neg_inf": int((x == -np.inf).sum()),
        "zeros": int((x == 0).sum()),
        **dict.fromkeys(KEYS[8:]),
        "histogram": EMPTY,
    }
    if finite.size:
        found |= {"min": number(finite.min()), "max": number(finite.max())}
        found["abs_max"] = max(abs(found["min"]), abs(found["max"]))
        wide = finite.astype("f8")
        # More digits than float64 has, where there are any.
        exact = finite.astype(np.longdouble)
        found |= {"mean": float(exact.mean()), "std": float(exact.std())}
        found["histogram"] = histogram(wide)
    return found


def histogram(wide):
    if wide.min() == wide.max():  # where half a unit is nothing, NumPy fails
        return {"min": wide[0] - 0.5, "max": wide[0] + 0.5, "counts": [wide.size * (i == 16) for i in range(BINS)]}
    counts, edges = np.histogram(wide, BINS, (wide.min(), wide.max()))
    return {"min": float(edges[0]), "max": float(edges[-1]), "counts": counts.tolist()}


def near(shown, expected, scale):
    return isinstance(shown, float) and abs(shown - expected) <= 1e-13 * scale


def plain(value):
    """Integers beyond 2^53 are strings."""
    if isinstance(value, str):
        assert abs(int(value)) > view.SAFE_INTEGER
        return int(value)
    assert not isinstance(value, int) or abs(value) <= view.SAFE_INTEGER
    return value


def check(shown, tensor):
    """SHOWN, the parsed JSON, says what the tensor is and what its values are like."""
    expected = stats(tensor)
    assert list(shown) == KEYS
    sidecar = view.sidecar(tensor)
    assert {key: shown[key] for key in KEYS[:3]} == {key: sidecar[key] for key in KEYS[:3]}
    for key in ("count", "nan", "inf", "neg_inf", "zeros", "min", "max", "abs_max"):
        value = plain(shown[key])
        assert value == expected[key] and type(value) is type(expected[key]), (tensor.name, key)
    assert shown["histogram"] == expected["histogram"], tensor.name
    if expected["mean"] is None:
        assert shown["mean"] is None and shown["std"] is None
    else:
        assert near(shown["mean"], expected["mean"], expected["abs_max"]), (tensor.name, "mean")
        scale = max(expected["std"], 1e-3 * expected["abs_max"])
        assert near(shown["std"], expected["std"], scale), (tensor.name, "std")
