#!/bin/sh
# Puts Debian's Prometheus server into a folder, for the tests, without installing it: the package would start a
# service on this machine. Prints nothing when it is there already.
#   unpack-prometheus.sh FOLDER
set -eu
folder=$1
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$folder/usr/bin/prometheus" ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
    echo "no apt-get: tests that need Prometheus are skipped, unless prometheus and promtool are in PATH" >&2
    exit 0
fi
mkdir -p "$folder"
cd "$folder"
sudo=""
[ "$(id -u)" -eq 0 ] || sudo="sudo "
echo "+ apt-get download prometheus    into $folder (30 MB; nothing is installed or started)"
apt-get download -qq prometheus 2>/dev/null || {
    [ -z "$sudo" ] || "$here/ask.sh" "This needs the lists of packages of the system." "apt-get update" || {
        echo "nothing was fetched: tests that need Prometheus are skipped" >&2
        exit 0
    }
    echo "+ ${sudo}apt-get update"
    ${sudo}apt-get update -qq
    apt-get download -qq prometheus
}
dpkg-deb -x prometheus_*.deb .
rm -f prometheus_*.deb
