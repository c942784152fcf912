"""What a mount and `bpk` must show of a pack, computed from bpkref's Pack alone, and functions that compare.

Follows the contract's sections 1, 2 and 6. JSON is compared by meaning, with its keys in order; where the contract says
more of a text (a newline at the end, integers beyond 2^53 as strings, two-space indent), that is compared too.
"""

import hashlib
import json
import os
import struct

from bpkref import BOOL_SIZES, encode_name, file_names

SAFE_INTEGER = 1 << 53
MAX_SEGMENTS, SEGMENT_LIMIT = 64, 250
PLAIN_NAN, INFINITY, SIGN = 0x7FF8 << 48, 0x7FF0 << 48, 1 << 63
NUMPY = {
    **{"F64": "<f8", "F32": "<f4", "Flex32": "<f4", "F16": "<f2", "BF16": "<V2"},
    **{"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"},
    **{"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "Bool": "|b1"},
}
ROOT = ["index.tsv", "metadata", "metadata.json", "scalars.json", "tensors", "tree"]


def parse(text):
    """JSON as bytes, without duplicate keys and with one newline at its end."""
    assert text.endswith(b"\n") and not text.endswith(b"\n\n")

    def unique(pairs):
        result = dict(pairs)
        assert len(result) == len(pairs), pairs
        return result

    return json.loads(text.decode(), object_pairs_hook=unique)


def safe(number):
    return str(number) if abs(number) > SAFE_INTEGER else number


# --- Descriptors ---


def shown_dtype(dtype):
    """A dtype as sidecars have it: the older form of a scheme where it is whole, else tensor and block, maybe null."""
    if isinstance(dtype, str):
        return dtype
    if "Bool" in dtype:
        return dtype
    scheme = dtype["QFloat"]
    older = "param" in scheme and "level" in scheme
    if older and scheme["store"] != "U32" and ("tensor" in scheme or "block" in scheme):
        older = False
    keys = ("value", "param", "store", "level", "mode") if older else ("value", "store", "mode", "tensor", "block")
    shown = {key: scheme.get(key) for key in keys}
    if isinstance(shown["store"], dict):
        shown["store"] = {kind: safe(dim) for kind, dim in shown["store"].items()}
    return {"QFloat": shown}


def numpy_string(dtype):
    if isinstance(dtype, str):
        return NUMPY[dtype]
    if "QFloat" in dtype:
        return "|u1"
    return {1: "|b1", 4: "<u4"}[BOOL_SIZES[dtype["Bool"]]]


SIDECAR_KEYS = ["name", "dtype", "shape", "param_id", "nbytes", "data_offsets", "numpy"]


def sidecar(tensor):
    """Without `problem`, whose words are free."""
    return {
        "name": tensor.name,
        "dtype": shown_dtype(tensor.dtype),
        "shape": [safe(dim) for dim in tensor.shape],
        "param_id": None if tensor.param_id is None else safe(tensor.param_id),
        "nbytes": safe(tensor.nbytes),
        "data_offsets": [safe(tensor.start), safe(tensor.end)],
        "numpy": numpy_string(tensor.dtype),
    }


def check_sidecar(shown, tensor):
    """SHOWN, a parsed sidecar, says what the tensor is, and has a problem where the tensor has one."""
    keys = SIDECAR_KEYS + (["problem"] if tensor.problems else [])
    assert list(shown) == keys
    assert {key: shown[key] for key in SIDECAR_KEYS} == sidecar(tensor)
    if tensor.problems:
        assert isinstance(shown["problem"], str) and shown["problem"]


# --- Maps ---


def shown_metadata(pack):
    return {key: value for key, value in sorted(pack.metadata.items()) if "\0" not in key}


def float_bits(value):
    """The 64-bit pattern of a float in scalars.json."""
    named = {"NaN": PLAIN_NAN, "Infinity": INFINITY, "-Infinity": INFINITY | SIGN}
    if isinstance(value, str):
        if value in named:
            return named[value]
        assert len(value) == 18 and value.startswith("0x")
        bits = int(value[2:], 16)
        assert bits & ~SIGN > INFINITY and bits != PLAIN_NAN  # nothing else is written so
        return bits
    assert isinstance(value, float)  # 1.0 and not 1
    return int.from_bytes(struct.pack(">d", value), "big")


def check_scalars(shown, pack):
    assert list(shown) == sorted(pack.scalars)
    for name, (kind, value) in pack.scalars.items():
        ((shown_kind, shown_value),) = shown[name].items()
        assert shown_kind == kind
        if kind == "Float":
            assert float_bits(shown_value) == value, name
        elif kind == "Bool":
            assert shown_value is value
        else:
            assert shown_value == safe(value) and not isinstance(shown_value, bool)


# --- tree/ ---


def segments_of(name):
    """The encoded segments of a tensor's name, or None if it is not in tree/."""
    encoded = ["%40" if part == "@" else encode_name(part) for part in name.split(".")]
    plain = all(len(part.encode()) <= SEGMENT_LIMIT and "%~" not in part for part in encoded)
    return encoded if plain and len(encoded) <= MAX_SEGMENTS else None


def tree_links(names):
    """path of each link under tree/ -> its target, for file_names(names)."""
    places = {name: segments_of(name) for name in names}
    folders = {tuple(p[:i]) for p in places.values() if p for i in range(1, len(p))}
    links = {}
    for name, parts in places.items():
        if parts is None:
            continue
        inside = [*parts, "@"] if tuple(parts) in folders else parts
        target = "../" * len(inside) + "tensors/" + names[name]
        links["/".join(inside)] = target
        links["/".join(inside) + ".json"] = target + ".json"
    return links


def found_links(tree):
    """path of each link under the folder TREE -> its target; everything else there is a folder with something in it."""
    links = {}
    for folder, folders, files in os.walk(tree):
        assert folder == os.fspath(tree) or folders or files
        for name in folders + files:
            path = os.path.join(folder, name)
            if os.path.islink(path):
                links[os.path.relpath(path, tree)] = os.readlink(path)
            else:
                assert os.path.isdir(path)
    return links


# --- The whole mount ---


def index_line(tensor, file_name):
    dtype = json.dumps(shown_dtype(tensor.dtype), separators=(",", ":"), ensure_ascii=False)
    shape = "x".join(map(str, tensor.shape))
    return f"{file_name}\t{dtype}\t{shape}\t{tensor.nbytes}\t{tensor.position}\n"


def check_index(path, pack, names):
    lines = [index_line(tensor, names[name]) for name, tensor in pack.tensors.items()]
    assert path.read_bytes().decode() == "".join(["name\tdtype\tshape\tbytes\toffset\n", *lines])


def check_status(shown, pack, names, path):
    assert list(shown) == ["pack", "mode", "layout", "tensors", "edits", "scratch", "problems", "last_commit", "pid"]
    assert (shown["pack"], shown["mode"], shown["layout"]) == (os.path.realpath(path), "ro", pack.layout)
    assert (shown["tensors"], shown["edits"], shown["scratch"], shown["last_commit"]) == (len(names), [], [], None)
    files = {problem["file"] for problem in shown["problems"]}
    faulty = {f"tensors/{names[n]}" for n, tensor in pack.tensors.items() if tensor.problems}
    assert files == faulty | ({os.path.basename(os.path.realpath(path))} if pack.problems else set())
    assert all(problem["reason"] for problem in shown["problems"])


def check_tensors(mnt, pack, names, digests=None):
    """Every tensor's file and sidecar; DIGESTS: name -> sha256 of someone else."""
    listed = sorted(os.listdir(mnt / "tensors"))
    assert listed == sorted([*names.values(), *(f"{file_name}.json" for file_name in names.values())])
    for name, tensor in pack.tensors.items():
        path = mnt / "tensors" / names[name]
        assert path.stat().st_size == tensor.nbytes
        if tensor.nbytes < 1 << 26:
            shown = path.read_bytes()
            assert shown == tensor.bytes(), name
            assert digests is None or hashlib.sha256(shown).hexdigest() == digests[name]
        path = mnt / "tensors" / f"{names[name]}.json"
        text = path.read_bytes()
        check_sidecar(parse(text), tensor)
        assert text.startswith(b'{\n  "name": ') and path.stat().st_size == len(text)


def check_metadata(mnt, pack):
    keys = file_names(pack.metadata)
    assert sorted(os.listdir(mnt / "metadata")) == sorted(keys.values())
    for key, value in pack.metadata.items():
        path = mnt / "metadata" / keys[key]
        assert path.read_bytes() == value.encode() + b"\n"
        assert path.stat().st_size == len(value.encode()) + 1
    shown = parse((mnt / "metadata.json").read_bytes())
    assert (shown, list(shown)) == (shown_metadata(pack), list(shown_metadata(pack)))


def check_mount(mnt, pack, path, digests=None):
    """Everything that the mount at MNT shows is what bpkref's PACK, read from PATH, says."""
    names = file_names(pack.tensors)
    assert sorted(os.listdir(mnt)) == ROOT
    check_tensors(mnt, pack, names, digests)
    check_metadata(mnt, pack)
    check_scalars(parse((mnt / "scalars.json").read_bytes()), pack)
    check_index(mnt / "index.tsv", pack, names)
    assert found_links(mnt / "tree") == tree_links(names)
    assert "status.json" in os.listdir(mnt / ".bpkfs")
    check_status(parse((mnt / ".bpkfs/status.json").read_bytes()), pack, names, path)


# --- bpk ---


def check_info(shown, pack, path):
    keys = ["path", "version", "layout", "data_start", "metadata", "scalars", "tensors", "problems"]
    assert list(shown) == keys
    assert (shown["path"], shown["version"], shown["layout"]) == (os.fspath(path), pack.version, pack.layout)
    assert (shown["data_start"], shown["tensors"]) == (pack.data_start, len(pack.tensors))
    assert shown["metadata"] == shown_metadata(pack)
    check_scalars(shown["scalars"], pack)
    assert bool(shown["problems"]) == has_problems(pack)


def check_list(shown, pack):
    assert [tensor["name"] for tensor in shown] == list(pack.tensors)
    for one, tensor in zip(shown, pack.tensors.values()):
        check_sidecar(one, tensor)


def has_problems(pack):
    return bool(pack.problems or any(tensor.problems for tensor in pack.tensors.values()))
