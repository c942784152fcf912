#!/bin/sh
# Measures bpkfs beside filesystems of its kind and beside native files, in one run.
#
#     sh tests/bench/run.sh [--quick] [--only PATTERN] [--out DIR] [--data DIR]
#
#     --quick        3 rounds on small data instead of 5: whether it runs, not how fast it is
#     --only PATTERN only the groups that match, as the shell matches, commas between: reads,
#                    names, overwrite, commit, latency, growth, parse, idle, caches
#     --out DIR      where the results go (default: build-bench/results)
#     --data DIR     where the data is made, and removed again (default: /var/tmp/bpkfs-bench)
#
# Builds with optimisation in build-bench/ and installs what it needs, peers included; with
# BPK_BUILD=DIR it takes the programs from there and installs nothing. As root it also measures
# commits on XFS, btrfs and ext4, and the kernel's EROFS, on loop devices.
# Exit status: 0 if all that was asked for was measured (whatever came out), 1 if not, 2 usage.
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
python=/usr/bin/python3
[ -x "$python" ] || python=python3

for word; do
    case $word in
    -h | --help)
        sed -n '/^# Meas/,/^# Exit/s/^# \{0,1\}//p' "$0"
        exit 0
        ;;
    esac
done
# Options that are wrong are told before a minute went into building.
"$python" "$root/tests/bench/bench.py" --check "$@" || exit

if [ -z "${BPK_BUILD:-}" ]; then
    BPK_BUILD=$root/build-bench
    export BPK_BUILD
    sh "$root/packaging/install-deps.sh" --bench ||
        echo 'Not all could be installed; going on with what there is.' >&2
    [ -f "$BPK_BUILD/build.ninja" ] ||
        meson setup "$BPK_BUILD" "$root" -Dbuildtype=release -Dtests=disabled >/dev/null
    meson compile -C "$BPK_BUILD" >/dev/null
fi
exec "$python" -B "$root/tests/bench/bench.py" "$@"
