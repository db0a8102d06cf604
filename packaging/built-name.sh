#!/bin/sh
# Prints the name under which deb.sh keeps what it has compiled: the release and the architecture that it was compiled
# for, the Python, and a hash of all that it is made of. Compilers and libraries differ from release to release, even
# where the Python is the same.
#   built-name.sh SYSTEM TAG SOURCES     (SYSTEM: the tree of the release, / for this machine's; TAG: such as cp311)
set -eu
system=${1%/}
tag=$2
# shellcheck disable=SC1091
release=$(. "$system/etc/os-release" && echo "$ID-${VERSION_CODENAME:-${VERSION_ID:-}}")
cd "$3"
made_of=$(find bccnd setup.py pyproject.toml README.md LICENSE debian/tools debian/rules -type f -exec sha256sum {} + |
    sort | sha256sum | cut -c 1-16)
echo "$release-$(dpkg --print-architecture)-$tag-$made_of"
