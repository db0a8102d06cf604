#!/bin/sh
# Installs what is missing: need.sh COMMAND:PACKAGE ..., or FILE:PACKAGE with the file's whole path
# Says what it does; uses sudo where it is not root, and says what to type where neither helps.
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
echo "need: installing$missing with apt-get"
sudo=""
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "need: not root and no sudo; as root, type: apt-get install$missing" >&2
        exit 2
    fi
    sudo=sudo
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # the list is meant to be split
$sudo apt-get install -qq -y --no-install-recommends $missing >/dev/null 2>&1 || {
    $sudo apt-get update -qq
    $sudo apt-get install -qq -y --no-install-recommends $missing >/dev/null
}
