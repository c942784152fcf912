"""The commands of examples/README.md."""

import os
import re

import bpkedit as edit
from conftest import BPK, ENVIRONMENT, REPOSITORY, need_programs, need_tool, run, run_bpk

README = (REPOSITORY / "examples/README.md").read_text(encoding="utf-8")


def shell(folder, script):
    path = f"{os.path.dirname(BPK)}:{os.environ['PATH']}"
    who = {f"GIT_{role}_{what}": "tester" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**ENVIRONMENT, **who, "PATH": path, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_PAGER": "cat"}
    result = run("sh", "-ec", script, cwd=folder, env=env)
    assert result.status == 0, result.err
    return result.out.decode()


def test_git_shows_what_changed_in_a_pack(folder):
    need_programs()
    need_tool("git")
    pack = edit.make_pack(folder)
    (commands,) = re.findall(r"```sh\n(git config.*?)```", README, re.S)
    shell(folder, "git init -q && git add model.bpk && git commit -qm one")
    assert run_bpk("set", pack, "note=better").status == 0
    (folder / "bytes").write_bytes(bytes(64))
    assert run_bpk("put", pack, "fc.weight", folder / "bytes").status == 0
    lines = shell(folder, commands).splitlines()
    assert any(line.startswith("+") and "better" in line for line in lines), lines
    changed = [line for line in lines if re.match(r"[-+].* fc\.weight$", line)]
    assert len(changed) == 2 and not any("conv.weight" in line for line in lines if line[0] in "+-")


def test_jq_answers_what_is_said(folder):
    need_tool("jq")
    pack = edit.make_pack(folder)
    (block,) = re.findall(r"## jq\n\n```text\n(.*?)```", README, re.S)
    with edit.edited(pack) as mount:
        script = block.replace("mnt/", f"{mount.path}/").replace("model.bpk", str(pack))
        out = shell(folder, script)
        assert '"F32": 76864' in out and out.startswith('[\n  "conv.weight"')
        assert (mount / "scalars.json").read_text().split() == '{ "epoch": { "UInt": 12 }, "lr": { "Float": 0.001 } }'.split()
