#!/bin/sh
# Installs what bpkfs is built with and, with --tests, what its tests use besides; with --bench,
# what its benchmark does.
#
# Debian and Ubuntu: by apt-get, as root or through sudo; nothing happens where all is there
# already. Elsewhere: prints the packages to install, and fails, if something is missing.
set -eu

build_packages='build-essential meson ninja-build pkg-config libfuse3-dev fuse3 libcbor-dev
    libjansson-dev uthash-dev libxxhash-dev check'
test_packages='python3-pytest python3-numpy python3-cbor2 rsync vim nano jq moreutils xxd patch
    attr acl ripgrep tar strace xfsprogs btrfs-progs e2fsprogs bsdextrautils file mandoc ed zip
    unzip gzip shellcheck zsh fish shared-mime-info'

bench_packages='squashfuse squashfs-tools erofs-utils fuse-zip archivemount tar xfsprogs btrfs-progs
    e2fsprogs'

fail() {
    printf 'install-deps.sh: %s\n' "$*" >&2
    exit 1
}

with_tests=no
with_bench=no
for word; do
    case $word in
    --tests) with_tests=yes ;;
    --bench) with_bench=yes ;;
    *)
        printf 'usage: sh packaging/install-deps.sh [--tests] [--bench]\n' >&2
        exit 2
        ;;
    esac
done

# ---- other distributions ---------------------------------------------------------------------

# Whether a build would find everything; the tests' own tools are not looked for one by one.
has_everything() {
    for tool in cc meson ninja pkg-config fusermount3; do
        command -v "$tool" >/dev/null || return 1
    done
    for library in fuse3 libcbor jansson libxxhash check; do
        pkg-config --exists "$library" || return 1
    done
    echo '#include <uthash.h>' | cc -E - >/dev/null 2>&1 || return 1
    if [ "$with_bench" = yes ]; then
        for tool in mksquashfs squashfuse_ll mkfs.erofs fuse-zip archivemount; do
            command -v "$tool" >/dev/null || return 1
        done
    fi
    [ "$with_tests" = no ] || python3 -c 'import pytest, numpy, cbor2' 2>/dev/null
}

name_packages() {
    cat <<'END'
install-deps.sh: this is neither Debian nor Ubuntu, and something is missing; please install:

  Fedora: dnf install meson ninja-build gcc pkgconf fuse3 fuse3-devel libcbor-devel \
              jansson-devel uthash-devel xxhash-devel check-devel
  Arch:   pacman -S meson ninja gcc pkgconf fuse3 libcbor jansson uthash xxhash check
END
    if [ "$with_bench" = yes ]; then
        cat <<'END'

and for the benchmark, as far as they are there:

  Fedora: dnf install squashfuse squashfs-tools erofs-utils fuse-zip archivemount xfsprogs \
              btrfs-progs e2fsprogs
  Arch:   pacman -S squashfuse squashfs-tools erofs-utils fuse-zip xfsprogs btrfs-progs e2fsprogs
END
    fi
    [ "$with_tests" = yes ] || return 0
    cat <<'END'

and for the tests:

  Fedora: dnf install python3-pytest python3-numpy python3-cbor2 libasan libubsan rsync \
              vim-enhanced xxd nano emacs-nox jq moreutils patch attr acl ripgrep tar \
              strace xfsprogs btrfs-progs e2fsprogs util-linux file mandoc
  Arch:   pacman -S python-pytest python-numpy python-cbor2 rsync vim nano emacs-nox jq \
              moreutils patch attr acl ripgrep tar strace xfsprogs btrfs-progs e2fsprogs \
              util-linux file mandoc
END
}

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    has_everything && exit 0
    name_packages >&2
    exit 1
fi

# ---- Debian and Ubuntu -----------------------------------------------------------------------

wanted=$build_packages
if [ "$with_bench" = yes ]; then
    wanted="$wanted $bench_packages"
fi
if [ "$with_tests" = yes ]; then
    wanted="$wanted $test_packages"
    # Any Emacs will do, and its packages exclude each other.
    command -v emacs >/dev/null || wanted="$wanted emacs-nox"
fi

# shellcheck disable=SC2086,SC2016 # a list of words; a format of dpkg's
present=$(dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' $wanted 2>/dev/null |
    sed -n 's/ .i *$//p' | tr '\n' ' ')
missing=
for package in $wanted; do
    case " $present" in
    *" $package "*) ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
        fail "not root, and there is no sudo; as root: apt-get install$missing"
    as_root=sudo
fi

apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 "$@" \
        >/dev/null
}

# Never at the price of a package that is there.
install_missing() {
    # shellcheck disable=SC2086 # a list of words
    apt install --no-install-recommends --no-remove $missing
}

# Whether apt-get knows all of them; its lists may be absent.
is_known() {
    # shellcheck disable=SC2086 # a list of words
    apt-get -qq -s install --no-install-recommends $missing >/dev/null 2>&1
}

printf 'Installing%s\n' "$missing"
if ! is_known || ! install_missing 2>/dev/null; then
    by_hand="the way by hand, as root: apt-get update; apt-get install$missing"
    apt update || fail "apt-get update failed; $by_hand"
    install_missing || fail "apt-get install failed; $by_hand"
fi
