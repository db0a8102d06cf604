#!/bin/sh
# Puts Debian's Prometheus server into a folder, for the tests, without installing it: the package would start a
# service on this machine. Prints nothing when it is there already.
#   unpack-prometheus.sh FOLDER
set -eu
folder=$1
[ -x "$folder/usr/bin/prometheus" ] && exit 0
echo "unpacking Debian's prometheus into $folder (nothing is installed or started)"
mkdir -p "$folder"
cd "$folder"
apt-get download -qq prometheus 2>/dev/null || {
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; else sudo apt-get update -qq; fi
    apt-get download -qq prometheus
}
dpkg-deb -x prometheus_*.deb .
rm -f prometheus_*.deb
