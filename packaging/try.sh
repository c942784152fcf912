#!/bin/sh
# Builds bpkfs and shows it: mounts PACK, or a small model that it makes itself, on a new folder
# and looks around. With a terminal the mount stays; without one it is taken down again.
#
#     sh packaging/try.sh [PACK]
#
# BPK_BUILD names the build directory (default: build/ beside packaging/).
set -eu

fail() {
    printf 'try.sh: %s\n' "$*" >&2
    exit 1
}

absolute() {
    case $1 in
    /*) printf '%s' "$1" ;;
    *) printf '%s/%s' "$PWD" "$1" ;;
    esac
}

# The word as a shell wants it, quoted only where it must be.
quote() {
    case $1 in
    *[!A-Za-z0-9_./=@%+,:-]*) printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")" ;;
    *) printf '%s' "$1" ;;
    esac
}

if [ $# -gt 1 ]; then
    printf 'usage: sh packaging/try.sh [PACK]\n' >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
build=$(absolute "${BPK_BUILD:-$root/build}")
pack=
if [ $# -eq 1 ]; then
    pack=$(absolute "$1")
    [ -e "$pack" ] || fail "$1: there is no such file"
    [ -f "$pack" ] || fail "$1: not a file"
    [ -r "$pack" ] || fail "$1: cannot be read by this user"
fi
[ -e /dev/fuse ] || fail "/dev/fuse is missing, so nothing can be mounted here: try 'modprobe fuse';" \
    "in a container, start it with '--device /dev/fuse --cap-add SYS_ADMIN'"
[ -w /dev/fuse ] || fail "/dev/fuse cannot be opened by this user, so nothing can be mounted"

# ---- the folder of this run ------------------------------------------------------------------

base=${XDG_RUNTIME_DIR:-/var/tmp}
if [ ! -d "$base" ] || [ ! -w "$base" ]; then
    base=/var/tmp
fi
work=$(mktemp -d "$base/bpkfs-try.XXXXXX") || fail "cannot make a folder in $base"
mnt=$work/mnt
daemon=
keep=no

# Whether the daemon is there and more than a zombie.
is_alive() {
    [ -r "/proc/$1/status" ] && ! grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# Leaves in $refusal why it was not possible: something may look in for a moment.
unmount() {
    tries=20
    until refusal=$(fusermount3 -u "$mnt" 2>&1); do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

# The daemon works on for a moment after the unmount.
wait_for_end() {
    tries=300
    while is_alive "$daemon"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || return 1
        sleep 0.1
    done
}

clean_up() {
    status=$?
    trap - EXIT
    [ "$keep" = no ] || exit "$status"
    if [ -n "$daemon" ] && ! unmount && ! fusermount3 -u -z "$mnt"; then
        printf 'try.sh: it is still mounted on %s\n' "$mnt" >&2
        exit "$status"
    fi
    rm -f "$work/build.log" "$work/model.bpk"
    rmdir "$mnt" "$work" 2>/dev/null || true
    exit "$status"
}
trap clean_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# ---- building --------------------------------------------------------------------------------

compile() {
    [ -f "$build/build.ninja" ] || meson setup "$build" "$root" || return
    meson compile -C "$build"
}

sh "$root/packaging/install-deps.sh" || fail 'what bpkfs is built with is not all there (see above)'
mkdir -p "$build" 2>/dev/null || true
[ -w "$build" ] || fail "cannot write to $build; BPK_BUILD=DIR takes another folder"
printf 'Building in %s\n' "$build"
if ! compile >"$work/build.log" 2>&1; then
    tail -n 40 "$work/build.log" >&2
    fail "the build in $build failed"
fi
bpkfs=$build/fs/bpkfs

# ---- mounting --------------------------------------------------------------------------------

if [ -z "$pack" ]; then
    pack=$work/model.bpk
    python3 "$root/packaging/make-demo.py" "$pack" || fail 'cannot make the small model'
fi
mkdir "$mnt"
"$bpkfs" "$pack" "$mnt" || fail 'the mount failed, for the reason above'
daemon=unknown
daemon=$(sed -n 's/^ *"pid": \([0-9]*\).*/\1/p' "$mnt/.bpkfs/status.json")
[ -n "$daemon" ] || fail 'the mount does not answer'

# ---- showing ---------------------------------------------------------------------------------

tab=$(printf '\t')

show() {
    printf '\n$ %s\n' "$1"
    (cd "$mnt" && sh -c "$1") || fail "this command failed: $1"
}

# The whole of a text, or how it begins.
show_text() {
    if [ "$(wc -c <"$mnt/$1")" -le 4096 ]; then
        show "cat $(quote "$1")"
    else
        show "head -c 1000 $(quote "$1")"
        echo
    fi
}

printf '\n$ bpkfs %s %s\n$ cd %s\n' "$(quote "$pack")" "$(quote "$mnt")" "$(quote "$mnt")"
show 'ls -l'
show 'ls -l tensors | head -n 9'
# A tensor to look at: the first of 64 bytes, or else the first that has any.
tensor=$(awk -F "$tab" '
    NR > 1 && $4 > 0 && some == "" { some = $1 }
    NR > 1 && $4 >= 64 { some = $1; exit }
    END { print some }' "$mnt/index.tsv")
[ -z "$tensor" ] || show_text "tensors/$tensor.json"
show_text metadata.json
show_text scalars.json
if command -v column >/dev/null; then
    show 'head -n 9 index.tsv | column -t'
else
    show 'head -n 9 index.tsv'
fi
[ -z "$tensor" ] || show "od -A x -t x1z -N 64 $(quote "tensors/$tensor")"
show 'ls -lR tree | head -n 16'
echo

if [ -t 1 ]; then
    keep=yes
    printf 'It stays mounted on %s. What you edit gets into the pack when you take it down:\n\n' \
        "$(quote "$mnt")"
    printf '    %s umount %s && rm -r %s\n' "$(quote "$build/src/cli/bpk")" "$(quote "$mnt")" \
        "$(quote "$work")"
    exit 0
fi
unmount || fail "cannot unmount $mnt: $refusal"
wait_for_end || fail "bpkfs (process $daemon) has not ended within 30 seconds"
daemon=
echo 'Unmounted.'
