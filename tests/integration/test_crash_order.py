"""The order of a commit's system calls, as strace sees it."""

import os
import re

import bpkcrash as crash
import bpkedit

CALLS = "openat,flock,pwrite64,ioctl,fchown,fsetxattr,fchmod,fsync,fdatasync,renameat2,renameat,unlinkat,rmdir,writev"


def test_order_of_a_commit(folder):
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    os.setxattr(pack, "user.note", b"kept")
    with crash.daemon(pack, "-s") as mount:
        crash.edit_all(crash_pack(mount))
        with crash.Strace(mount.daemon.pid, f"-etrace={CALLS}", "-y", "-s0") as trace:
            assert crash.command(mount) == 0
        assert crash.leave(mount) == 0
    lines = [line for _, _, line in trace.calls()]

    def first(pattern, after=-1):
        for number, line in enumerate(lines):
            if number > after and re.search(pattern, line):
                return number
        raise AssertionError(f"no {pattern} after {after}:\n" + "\n".join(lines))

    temp = r"\.model\.bpk\.[0-9a-f]{16}\.tmp"
    created = first(rf'openat\(.*"{temp}".*O_CREAT\|O_EXCL.*0600')
    assert "O_CLOEXEC" in lines[created]
    locked = first(rf"flock\(.*{temp}.*LOCK_EX", created)
    written = first(rf"pwrite64\(.*{temp}", locked)
    attributed = first(rf"fsetxattr\(.*{temp}", written)
    moded = first(rf"fchmod\(.*{temp}", attributed)
    synced = first(rf"fsync\(.*{temp}", moded)
    last_write = max(n for n, line in enumerate(lines) if re.search(rf"pwrite64\(.*{temp}", line))
    assert last_write < synced
    recorded = first(r"pwrite64\(.*edits/journal", synced)
    journal_synced = first(r"f(data)?sync\(.*edits/journal", recorded)
    renamed = first(rf'renameat2\(.*"{temp}".*"model\.bpk", RENAME_EXCHANGE', journal_synced)
    folder_synced = first(rf"fsync\(\d+<{re.escape(str(folder))}>", renamed)
    removed = first(rf'unlinkat\(.*"{temp}"', folder_synced)
    first(r'unlinkat\(.*"\.model\.bpk\.edits", AT_REMOVEDIR', removed)


def crash_pack(mount):
    """`edit_all` wants the long tensor too."""
    (mount.tensors / "long").write_bytes(bytes(300000))
    bpkedit.write_sidecar(mount, "long", "U8", [300000])
    return mount


def test_no_edit_no_write(folder):
    """A mount without edits leaves the pack alone: same inode, same mtime, no call that writes to it."""
    crash.need("strace")
    pack = bpkedit.make_pack(folder)
    before = pack.stat()
    with crash.daemon(pack) as mount:
        with crash.Strace(mount.daemon.pid, "-etrace=pwrite64,write,ftruncate,renameat2,unlinkat,mkdirat,openat") as trace:
            crash.view(mount)
            assert crash.command(mount) == 0
            assert crash.leave(mount) == 0
        for _, name, line in trace.calls():
            assert name == "openat" and "O_WRONLY" not in line and "O_CREAT" not in line or "stderr" in line, line
    after = pack.stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (before.st_ino, before.st_mtime_ns, before.st_ctime_ns)
    assert crash.debris(pack) == []
