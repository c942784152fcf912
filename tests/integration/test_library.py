"""libbpk as others get it: the header alone, what is exported, and a program built against the installed library."""

import os
import pathlib
import re
import shutil
import struct

import pytest

import bpkref
import bpkview as view
from bpkmutate import rich_pack, small_pack
from conftest import BPK, BUILD, ENVIRONMENT, REPOSITORY, SANITIZED, missing, need_programs, need_tool, run

HEADER = REPOSITORY / "src/bpk.h"
EXAMPLE = REPOSITORY / "examples/lsbpk.c"
LIBRARY = BUILD / "src/libbpk.so"
STRICT = ("-Wall", "-Wextra", "-pedantic", "-Werror")


def need_library():
    need_programs()
    if not LIBRARY.exists():
        missing(f"no library at {LIBRARY}")


def declared():
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.S)
    return set(re.findall(r"^(?!typedef)[\w *]*?\b(bpk_\w+)\(", text, re.M))


# --- the header ---


@pytest.mark.parametrize(
    "compiler, language",
    [("cc", "-xc -std=c11"), ("cc", "-xc -std=c17"), ("g++", "-xc++ -std=c++11"), ("g++", "-xc++ -std=c++20")],
)
def test_header_compiles_alone(compiler, language):
    need_tool(compiler)
    result = run(compiler, "-fsyntax-only", *STRICT, *language.split(), HEADER)
    assert (result.status, result.err) == (0, "")


def test_header_is_for_cpp_too(folder):
    """The functions have C's names there."""
    need_tool("g++")
    need_library()
    (folder / "a.cc").write_text('#include "bpk.h"\nint main() { return bpk_kind_name(BPK_F32)[0] != \'F\'; }\n')
    sanitizers = ["-fsanitize=address,undefined"] if SANITIZED else []
    result = run("g++", *STRICT, *sanitizers, f"-I{HEADER.parent}", "a.cc", LIBRARY, "-o", "a", cwd=folder)
    assert (result.status, result.err) == (0, "")
    assert run(folder / "a", env={**ENVIRONMENT, "LD_LIBRARY_PATH": str(LIBRARY.parent)}).status == 0


# --- the library ---


def test_what_is_exported_is_what_is_declared():
    need_library()
    need_tool("nm")
    assert len(declared()) > 20
    lines = run("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY).out.decode().splitlines()
    symbols = {line.split()[-1] for line in lines}
    assert symbols == {f"{name}@@LIBBPK_0" for name in declared()} | {"LIBBPK_0"}


def test_what_the_library_needs():
    """Reading packs takes no JSON and no FUSE."""
    need_library()
    need_tool("readelf")
    dynamic = run("readelf", "-d", LIBRARY).out.decode()
    assert re.findall(r"SONAME.*\[(.*)\]", dynamic) == ["libbpk.so.0"]
    assert not re.search(r"NEEDED.*(jansson|xxhash|fuse)", dynamic)


def test_the_manual_names_only_what_is_there():
    page = (REPOSITORY / "packaging/man/libbpk.3").read_text(encoding="utf-8")
    named = set(re.findall(r"^\.(?:Po |Pq )?F[no] (bpk_\w+)", page, re.M)) | set(re.findall(r"\bbpk_\w+(?=\()", page))
    assert len(named) > 20 and named <= declared()


# --- a program of somebody else's ---


def flags(root):
    """What pkg-config says of the library installed under ROOT."""
    (file,) = root.rglob("libbpk.pc")
    environment = {
        **ENVIRONMENT,
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "PKG_CONFIG_LIBDIR": str(file.parent),
        # With a prefix of /usr they would be left out.
        "PKG_CONFIG_ALLOW_SYSTEM_CFLAGS": "1",
        "PKG_CONFIG_ALLOW_SYSTEM_LIBS": "1",
    }
    result = run("pkg-config", "--cflags", "--libs", "libbpk", env=environment)
    assert result.status == 0, result.err
    return result.out.decode().split()


@pytest.fixture
def build_program(folder):
    """Builds a file against the installed header and library only; what it gives runs the program."""
    need_library()
    for tool in ("meson", "cc", "pkg-config"):
        need_tool(tool)
    root = folder / "root"
    result = run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", root)
    assert result.status == 0, result.out.decode() + result.err
    (library,) = root.rglob("libbpk.so.0")
    environment = {**ENVIRONMENT, "LD_LIBRARY_PATH": str(library.parent)}

    def build(source):
        sanitizers = ["-fsanitize=address,undefined"] if SANITIZED else []
        program = folder / source.stem
        words = ["-std=c17", *STRICT, *sanitizers, source, *flags(root), "-o", program]
        result = run("cc", *words, cwd=folder)
        assert (result.status, result.err) == (0, "")
        return lambda *arguments: run(program, *arguments, cwd=folder, env=environment)

    return build


@pytest.fixture
def example(folder, build_program):
    """Runs the example, which sees nothing of the sources."""
    return build_program(pathlib.Path(shutil.copy(EXAMPLE, folder)))


def test_example_lists_what_bpk_lists(folder, example):
    made = {"small.bpk": small_pack(), "rich.bpk": rich_pack(), "none.bpk": bpkref.build()}
    for name, pack in made.items():
        path = folder / name
        path.write_bytes(pack)
        listed = view.parse(run(BPK, "ls", "--json", path).out)
        metadata = view.parse(run(BPK, "info", "--json", path).out)["metadata"]
        expected = []
        for tensor in listed:
            dtype = tensor["dtype"] if isinstance(tensor["dtype"], str) else next(iter(tensor["dtype"]))
            shape = "x".join(map(str, tensor["shape"]))
            expected.append(f"{dtype}\t{shape}\t{tensor['nbytes']}\t{tensor['name']}")
        expected += sorted(f"{key} = {value}" for key, value in metadata.items())
        result = example(path)
        assert (result.status, result.err) == (0, "")
        assert result.out.decode().splitlines() == expected


def test_example_tells_what_is_wrong(folder, example):
    (folder / "odd.bpk").write_bytes(small_pack() + b"more")
    result = example(folder / "odd.bpk")
    assert (result.status, result.err) == (0, f"lsbpk: {folder}/odd.bpk: 4 bytes follow the last tensor\n")
    (folder / "bad.bpk").write_bytes(b"not a pack")
    result = example(folder / "bad.bpk")
    assert result.status == 1 and re.fullmatch(rf"lsbpk: {re.escape(os.fspath(folder))}/bad\.bpk: .+\n", result.err)
    assert example().status == 2


def test_program_of_the_manual(folder, build_program):
    page = (REPOSITORY / "packaging/man/libbpk.3").read_text(encoding="utf-8")
    (body,) = re.findall(r"^\.Bd -literal[^\n]*\n(struct .*?)^\.Ed$", page, re.M | re.S)
    body = body.replace(r"\e", "\\")
    headers = "".join(f"#include <{name}.h>\n" for name in ("bpk", "err", "stdio"))
    (folder / "names.c").write_text(f"{headers}int main(void) {{\n{body}}}\n")
    program = build_program(folder / "names.c")
    assert program().status == 1
    (folder / "model.bpk").write_bytes(small_pack())
    names = [tensor["name"] for tensor in view.parse(run(BPK, "ls", "--json", folder / "model.bpk").out)]
    result = program()
    assert (result.status, result.out.decode().splitlines(), result.err) == (0, names, "")


def test_program_of_readme(folder, build_program):
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```c\n(.*?)^```$", readme, re.M | re.S)
    (folder / "program.c").write_text(source)
    program = build_program(folder / "program.c")
    assert "model.bpk: cannot open: " in program().err
    tensors = [("fc3.bias", "F32", [2], struct.pack("<2f", 0.5, 7), None)]
    (folder / "model.bpk").write_bytes(bpkref.build(tensors))
    result = program()
    assert (result.status, result.out, result.err) == (0, b"0.500000\n", "")
