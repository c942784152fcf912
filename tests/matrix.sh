# What `sh tests/run.sh --long` does more, and sources: other compilers and options, the tarball,
# other distributions. Each entry is one test: it builds without a warning, and its unit tests pass.
# shellcheck shell=sh

matrix=build-matrix # below it each build, until it is good, and what it said

# entry NAME COMMAND...
entry() {
    name=$1
    shift
    if "$@" >"$matrix/$name.log" 2>&1; then
        printf 'passed: %s\n' "$name"
        count 1 0 0
        rm -rf "${matrix:?}/$name"
    else
        tail -n 40 "$matrix/$name.log"
        count_failure "$name; see $matrix/$name.log"
    fi
}

# skip_entry NAME REASON
skip_entry() {
    printf 'skipped: %s: %s\n' "$1" "$2"
    count 0 0 1
}

# ---- compilers and options -------------------------------------------------------------------

# build_with CC OPTION...: in the folder of the entry.
build_with() {
    CC=$1
    shift
    dir=$matrix/$name
    rm -rf "$dir"
    CC=$CC meson setup "$dir" -Dwerror=true "$@" && meson compile -C "$dir" || return
    "$dir/src/cli/bpk" --version && "$dir/fs/bpkfs" --version || return
    meson test -C "$dir" --no-rebuild --print-errorlogs
}

# builds CC
builds() {
    entry "$1" build_with "$1" -Dtests=enabled
    entry "$1-debug" build_with "$1" -Dtests=enabled --buildtype=debug
    entry "$1-release" build_with "$1" -Dtests=enabled --buildtype=release
    entry "$1-ndebug" build_with "$1" -Dtests=enabled --buildtype=release -Db_ndebug=true
    entry "$1-bare" build_with "$1" -Dtests=disabled -Dlibrary=disabled
    entry "$1-sanitized" build_with "$1" -Dtests=enabled -Db_sanitize=address,undefined \
        -Db_lundef=false
}

# Builds, tests and installs what is in the archive.
build_tarball() {
    dir=$matrix/$name
    rm -rf "$dir"
    meson setup "$dir" -Dwerror=true -Dtests=enabled && meson dist -C "$dir" --allow-dirty
}

# ---- distributions ---------------------------------------------------------------------------

# In namespaces of its own: what it mounts and starts ends with it. SUITE MIRROR KEYRING FOLDER
# shellcheck disable=SC2016 # for another shell
in_namespaces='
set -eux
debootstrap --variant=minbase --components=main,universe --keyring="$3" "$1" "$4/root" "$2"
mkdir "$4/root/src"
tar --exclude=./.git --exclude="./build*" --exclude=./dist -cf - . | tar -C "$4/root/src" -xf -
mount -t proc proc "$4/root/proc"
[ -e "$4/root/dev/fuse" ] || mknod -m 666 "$4/root/dev/fuse" c 10 229
chroot "$4/root" env -i PATH="$PATH" LC_ALL=C.UTF-8 sh -euxc "$5"
'
# shellcheck disable=SC2016
in_chroot='
cd /src
sh packaging/install-deps.sh
meson setup build -Dwerror=true -Dtests=enabled
meson compile -C build
meson test -C build --no-rebuild --print-errorlogs
python3 packaging/make-demo.py model.bpk
mkdir mnt
build/fs/bpkfs model.bpk mnt
[ "$(wc -c <mnt/tensors/fc3.bias)" -eq 40 ]
echo by-hand >mnt/metadata/note
build/src/cli/bpk umount mnt
build/src/cli/bpk info model.bpk | grep by-hand
'

# bootstrap_and_build SUITE MIRROR KEYRING, in a folder that it removes
bootstrap_and_build() (
    folder=$(mktemp -d /var/tmp/bpk-matrix.XXXXXX) || exit
    trap 'rm -rf --one-file-system "$folder"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    unshare -m -p -f --kill-child --mount-proc sh -c "$in_namespaces" sh "$@" "$folder" "$in_chroot"
)

# Whether apt gets there.
is_reachable() (
    file=$(mktemp) || exit
    trap 'rm -f "$file"' EXIT
    /usr/lib/apt/apt-helper download-file "$1" "$file" >/dev/null 2>&1
)

# distribution NAME SUITE MIRROR KEYRING: built in a fresh root of it, and a pack mounted.
distribution() {
    if [ "$(id -u)" -ne 0 ]; then
        skip_entry "$1" 'not root'
    elif ! command -v debootstrap >/dev/null; then
        skip_entry "$1" 'there is no debootstrap'
    elif [ ! -c /dev/fuse ]; then
        skip_entry "$1" 'there is no /dev/fuse'
    elif ! is_reachable "$3/dists/$2/Release"; then
        skip_entry "$1" 'no mirror'
    elif [ ! -f "$4" ]; then
        skip_entry "$1" "the mirror cannot be verified without $4"
    else
        entry "$1" bootstrap_and_build "$2" "$3" "$4"
    fi
}

# ---- all of it -------------------------------------------------------------------------------

run_matrix() {
    stage 'Matrix'
    mkdir -p "$matrix" || return
    for compiler in gcc clang; do
        if command -v "$compiler" >/dev/null; then
            builds "$compiler"
        else
            skip_entry "$compiler" 'it is not installed'
        fi
    done
    if [ -d .git ]; then
        entry tarball build_tarball
    else
        skip_entry tarball 'not a clone'
    fi
    distribution debian-13 trixie http://deb.debian.org/debian \
        /usr/share/keyrings/debian-archive-keyring.gpg
    distribution ubuntu-22.04 jammy http://archive.ubuntu.com/ubuntu \
        /usr/share/keyrings/ubuntu-archive-keyring.gpg
    end_stage
}
