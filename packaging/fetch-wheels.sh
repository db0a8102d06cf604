#!/bin/sh
# Fetches the wheels of the Debian package with the system's Python: fetch-wheels.sh FOLDER KIND ...     (packaging/deb.sh)
#
# Each KIND is a list of packaging/wheels, and becomes a folder in FOLDER. Only wheels with a hash of the list are taken;
# FOLDER/.complete is there once all of them are.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
rm -rf "$folder"
mkdir -p "$folder"
/usr/bin/python3 -m venv "$folder/venv"
# Constraints have no hashes, and are not needed: the lists are complete.
unset PIP_CONSTRAINT
for kind in "$@"; do
    "$folder/venv/bin/pip" -q --disable-pip-version-check download --only-binary :all: --no-deps --require-hashes \
        -r "packaging/wheels/$kind.txt" -d "$folder/$kind"
done
rm -rf "$folder/venv"
touch "$folder/.complete"
