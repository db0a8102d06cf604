#!/bin/sh
# Installs missing packages: need.sh COMMAND:PACKAGE ..., or FILE:PACKAGE with the file's whole path
# Prints each command before it runs it; at a terminal, a user who is not root is asked first (not where CI is set).
# Without apt-get, or neither root nor sudo, or without consent, prints what to install, and exits 2.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=""
for pair in "$@"; do
    case $pair in
        /*) test -e "${pair%%:*}" || missing="$missing ${pair#*:}" ;;
        *) command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}" ;;
    esac
done
[ -n "$missing" ] || exit 0

install="apt-get install -y --no-install-recommends$missing"
if ! command -v apt-get >/dev/null 2>&1; then
    echo "need: this host has no apt-get. Install these packages of Debian by their names here:$missing" >&2
    names=$(echo "$missing " | sed -e 's/ libc6-dev / glibc-devel /; s/ libssl-dev / openssl-devel /; s/ g++ / gcc-c++ /' \
        -e 's/ lib\(systemd\)-dev / \1-devel /; s/ python3-venv / python3 /; s/ python3-dev / python3-devel /' \
        -e 's/ default-jre-headless / java-21-openjdk-headless /; s/ golang-go / golang /; s/ groff-base / groff /')
    for manager in dnf zypper; do
        ! command -v $manager >/dev/null 2>&1 || echo "need: as root, try: $manager install$names" >&2
    done
    exit 2
fi
sudo=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "need: neither root nor sudo. As root, type: $install" >&2
        exit 2
    fi
    sudo="sudo "
    "$(dirname "$0")/ask.sh" "This needs packages of the system:$missing" "$install" || {
        echo "need: nothing was installed. As root, type: $install" >&2
        exit 2
    }
fi
run() {
    echo "+ $sudo$*"
    # shellcheck disable=SC2086  # the list is meant to be split
    ${sudo}env DEBIAN_FRONTEND=noninteractive $* >/dev/null
}
run "$install" || { run apt-get update && run "$install"; } || {
    echo "need: that failed. As root, type: $install" >&2
    exit 2
}
