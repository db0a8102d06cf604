#!/bin/sh
# Makes the tree of a small host that systemd boots, for the booted tests: Debian (or Ubuntu) of the same release as
# this machine, or of RELEASE, with systemd, what Ansible needs to install packages, and what a package depends on (or
# DEPENDENCIES, as in a control file), nothing else. It is kept packed, under a name made of all that went into it. The
# last line of its output is that name; what it does it says on the error output.
#   tree.sh FOLDER PACKAGE.deb|DEPENDENCIES
set -eu
PATH=$PATH:/usr/sbin:/sbin
folder=$1
# shellcheck disable=SC1091
. /etc/os-release
suite=${RELEASE:-$VERSION_CODENAME}
architecture=$(dpkg --print-architecture)
components=main
[ "$ID" != ubuntu ] || components=main,universe
base=systemd,systemd-sysv,dbus,python3-apt
case $2 in
    *.deb) depends=$(dpkg-deb -f "$2" Pre-Depends Depends | sed 's/^[A-Za-z-]*: //' | paste -s -d , -) ;;
    *) depends=$2 ;;
esac
key=$(printf '%s\n' "$ID" "$suite" "$architecture" "$components" "$base" "$depends" | cat - "$0" | sha256sum | cut -c 1-16)
archive=$folder/$suite-$key.tar.zst
if [ -s "$archive" ]; then
    echo "$archive"
    exit 0
fi

echo "making a tree of $suite (a minute; kept as $archive)" >&2
mkdir -p "$folder"
work=$(mktemp -d "${TMPDIR:-/var/tmp}/bccnd-tree.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root
make() {
    debootstrap --variant=minbase --components="$components" --include="$base" "$suite" "$root" &&
        chroot "$root" apt-get update -q &&
        chroot "$root" env DEBIAN_FRONTEND=noninteractive apt-get satisfy -q -y --no-install-recommends "$depends"
}
make >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" "$root/debootstrap/debootstrap.log" >&2 || true
    exit 1
}
rm -rf "$root"/usr/share/doc/* "$root"/usr/share/man/* "$root"/usr/share/locale/* "$root"/usr/share/info/* \
    "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
# A host that was set up long ago: systemd does not take its boot for the first one.
tr -d - </proc/sys/kernel/random/uuid >"$root/etc/machine-id"
tar -C "$root" --numeric-owner --one-file-system -c . | zstd -q -T0 -o "$archive.$$"
mv "$archive.$$" "$archive"
# Those of packages that are no more; two branches, each with two releases, may go on side by side.
find "$folder" -name '*.tar.zst' -printf '%T@ %p\n' | sort -rn | tail -n +7 | cut -d ' ' -f 2- | xargs -r rm -f
echo "$archive"
