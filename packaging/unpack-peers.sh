#!/bin/sh
# Puts Debian's mosquitto, redis-server and nats-server into a folder, for the benchmark, without installing them: the
# packages would start services on this machine. What they need and this machine lacks comes along. Prints nothing when
# they are there already, in the folder or on this machine.
#   unpack-peers.sh FOLDER
set -eu
PATH=$PATH:/usr/sbin:/sbin
folder=$1
missing=""
for package in mosquitto redis-server nats-server; do
    [ -x "$folder/usr/sbin/$package" ] || [ -x "$folder/usr/bin/$package" ] ||
        command -v "$package" >/dev/null 2>&1 || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "+ apt-get install --download-only$missing    unpacked into $folder (nothing is installed or started)"
mkdir -p "$folder/debs/partial"
folder=$(cd "$folder" && pwd)
# -d only downloads; it takes no lock, and so no root.
fetch() {
    # shellcheck disable=SC2086  # the list is meant to be split
    apt-get install -qq -y -d --no-install-recommends -o Debug::NoLocking=1 \
        -o Dir::Cache::archives="$folder/debs" $missing >/dev/null 2>&1
}
fetch || {
    sudo=""
    [ "$(id -u)" -eq 0 ] || sudo="sudo "
    echo "+ ${sudo}apt-get update"
    ${sudo}apt-get update -qq
    fetch
} || {
    echo "cannot get$missing with apt-get: the benchmark does without them" >&2
    rm -rf "$folder/debs"
    exit 0
}
for package in "$folder"/debs/*.deb; do
    dpkg-deb -x "$package" "$folder"
done
rm -rf "$folder/debs"
