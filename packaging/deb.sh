#!/bin/sh
# Builds the Debian packages of this tree and puts them into ./dist.
#
#     sh packaging/deb.sh
#
# It needs dpkg-dev, debhelper and what packaging/debian/control names; DEB_BUILD_OPTIONS and
# DEB_BUILD_PROFILES are respected (nocheck leaves the tests out).
set -eu

fail() {
    printf 'deb.sh: %s\n' "$*" >&2
    exit 1
}

if [ $# -ne 0 ]; then
    echo 'usage: sh packaging/deb.sh' >&2
    exit 2
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
dist=$PWD/dist
command -v dpkg-buildpackage >/dev/null || fail 'dpkg-buildpackage is missing: install dpkg-dev'
command -v dh >/dev/null || fail 'dh is missing: install debhelper'

version=$(sed -n "s/^ *version: '\(.*\)',$/\1/p" "$root/meson.build")
packaged=$(dpkg-parsechangelog -l "$root/packaging/debian/changelog" -S Version)
[ "$packaged" = "$version" ] ||
    fail "meson.build has version $version, packaging/debian/changelog has $packaged"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/bpkfs-deb.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# dpkg looks for debian/ at the top; it stands in packaging/ with the others.
tree=$work/bpkfs-$version
mkdir "$tree"
tar -C "$root" --exclude=./.git --exclude='./build*' --exclude=./dist -cf - . | tar -C "$tree" -xf -
cp -R "$tree/packaging/debian" "$tree/debian"
(cd "$tree" && dpkg-buildpackage -b -us -uc)

mkdir -p "$dist"
rm -f "$dist"/*.deb "$dist"/*.changes "$dist"/*.buildinfo
mv "$work"/*_* "$dist"
ls "$dist"/*.deb
