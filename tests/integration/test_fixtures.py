"""Every pack that Burn's writers made, through the mount and through bpk, against what Burn's readers dumped."""

import gzip
import hashlib
import json

import pytest

import bpkview as view
from bpkref import file_names, read
from conftest import FIXTURES, NO_SHARED, mounted, run_bpk

NAMES = sorted(p.stem for p in FIXTURES.glob("*.bpk")) or [pytest.param("none", marks=NO_SHARED)]


def dump_of(name):
    gz, plain = FIXTURES / f"{name}.dump.json.gz", FIXTURES / f"{name}.dump.json"
    return json.loads(gzip.decompress(gz.read_bytes()) if gz.exists() else plain.read_bytes())


def with_nulls(dtype):
    """A dumped dtype as it is shown: the newest form of a scheme has tensor and block, maybe null."""
    if isinstance(dtype, str) or "QFloat" not in dtype or "param" in dtype["QFloat"]:
        return dtype
    return {"QFloat": {"tensor": None, "block": None, **dtype["QFloat"]}}


def number(shown):
    """An integer of a sidecar, which is a string beyond 2^53."""
    assert isinstance(shown, int) or int(shown) > 1 << 53
    return int(shown)


def facts(sidecar):
    """A sidecar in the words of a dump, without the digest."""
    start, end = map(number, sidecar["data_offsets"])
    return {
        "byte_len": number(sidecar["nbytes"]),
        "data_offsets": [start, end],
        "dtype": sidecar["dtype"],
        "name": sidecar["name"],
        "param_id": None if sidecar["param_id"] is None else number(sidecar["param_id"]),
        "shape": list(map(number, sidecar["shape"])),
    }


def dumped_facts(tensor):
    kept = {key: value for key, value in tensor.items() if key != "sha256"}
    return {**kept, "dtype": with_nulls(tensor["dtype"])}


def scalar_facts(scalars):
    """name -> (kind, value) of a dump or of scalars.json, a float as its bits."""
    result = {}
    for name, scalar in scalars.items():
        kind = next(iter(scalar))
        if kind == "Float":
            value = int(scalar["bits"], 16) if "bits" in scalar else view.float_bits(scalar[kind])
        else:
            value = scalar[kind] if kind == "Bool" else int(scalar[kind])
        result[name] = (kind, value)
    return result


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("name", NAMES)
def test_mount_shows_what_burn_reads(name):
    path, dump = FIXTURES / f"{name}.bpk", dump_of(name)
    tensors = {tensor["name"]: tensor for tensor in dump["tensors"]}
    files = file_names(tensors)
    with mounted(path) as mount:
        folder = mount.path / "tensors"
        shown = {n: view.parse((folder / f"{files[n]}.json").read_bytes()) for n in tensors}
        assert {n: facts(s) for n, s in shown.items()} == {n: dumped_facts(t) for n, t in tensors.items()}
        assert {n: digest((folder / files[n]).read_bytes()) for n in tensors} == {
            n: t["sha256"] for n, t in tensors.items()
        }
        assert not any("problem" in sidecar for sidecar in shown.values())
        assert view.parse((mount.path / "metadata.json").read_bytes()) == dump["metadata"]
        assert scalar_facts(view.parse((mount.path / "scalars.json").read_bytes())) == scalar_facts(dump["scalars"])


@pytest.mark.parametrize("name", NAMES)
def test_mount_shows_what_bpkref_reads(name):
    """Everything else too: listings, metadata/, index.tsv, tree/, the status."""
    path = FIXTURES / f"{name}.bpk"
    digests = {tensor["name"]: tensor["sha256"] for tensor in dump_of(name)["tensors"]}
    with mounted(path) as mount:
        view.check_mount(mount.path, read(path), path, digests)


@pytest.mark.parametrize("name", NAMES)
def test_links_of_tree_lead_to_the_tensors(name):
    path = FIXTURES / f"{name}.bpk"
    with mounted(path) as mount:
        for link in view.found_links(mount.path / "tree"):
            target = (mount.path / "tree" / link).resolve(strict=True)
            assert target.parent == mount.path / "tensors"
            assert (mount.path / "tree" / link).read_bytes() == target.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_bpk_shows_what_burn_reads(name):
    path, dump = FIXTURES / f"{name}.bpk", dump_of(name)
    listed = run_bpk("ls", "--json", path)
    assert (listed.status, listed.err) == (0, "")
    assert [facts(s) for s in view.parse(listed.out)] == [dumped_facts(t) for t in dump["tensors"]]
    info = run_bpk("info", "--json", path)
    assert (info.status, info.err) == (0, "")
    shown = view.parse(info.out)
    assert shown["metadata"] == dump["metadata"]
    assert scalar_facts(shown["scalars"]) == scalar_facts(dump["scalars"])
    assert shown["version"] == dump["header"]["version"]
    assert (shown["data_start"], shown["tensors"]) == (dump["data_offset"], len(dump["tensors"]))
    assert shown["problems"] == []
    view.check_info(shown, read(path), path)


@pytest.mark.parametrize("name", NAMES)
def test_bpk_verify_finds_them_good(name):
    result = run_bpk("verify", FIXTURES / f"{name}.bpk")
    assert (result.status, result.err) == (0, ""), result.out


@pytest.mark.parametrize("name", NAMES)
def test_bpk_cat_gives_the_bytes(name):
    """All tensors in one go, and each alone where there are few; names in their file form."""
    path, dump = FIXTURES / f"{name}.bpk", dump_of(name)
    pack, names = read(path), file_names([tensor["name"] for tensor in dump["tensors"]])
    if not names:
        return
    everything = run_bpk("cat", "--", path, *names.values())
    assert (everything.status, everything.err) == (0, "")
    assert everything.out == b"".join(pack.tensors[n].bytes() for n in names)
    for tensor in dump["tensors"][:20]:
        one = run_bpk("cat", "--", path, names[tensor["name"]])
        assert (one.status, digest(one.out)) == (0, tensor["sha256"])


@pytest.mark.parametrize("name", NAMES)
def test_plain_listings_show_no_raw_control_characters(name):
    """For people: `bpk ls`, `ls -l`, `info`, `verify` and the names of files."""
    path = FIXTURES / f"{name}.bpk"
    forbidden = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    table = {c: None for c in forbidden if c not in (9, 10)}
    for verb in (["ls"], ["ls", "-l"], ["info"], ["verify"], ["ls", "--json"], ["info", "--json"]):
        text = run_bpk(*verb, path).out.decode()
        assert text.translate(table) == text, verb
