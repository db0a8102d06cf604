#!/bin/sh
# Builds the Debian packages: deb.sh [VERSION]     (make deb)
#
# Works on a copy in build/deb, with the system's Python, and puts the packages into dist/. Only fetching takes the
# network, of what packaging/wheels pins with hashes; it is kept in .cache/wheels, and the build itself takes none. What
# was compiled is kept in .cache/built for each release, and compiled anew when anything that it is made of has changed.
#
# RELEASE=trixie builds for that release: in a tree of it that has the build dependencies (root), into dist/trixie.
set -eu
cd "$(dirname "$0")/.."
version=${1:-}
# What Python calls 2.0.0.dev0 comes before 2.0.0 here, too.
[ -n "$version" ] || version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' bccnd/version.py | sed 's/\.dev/~dev/')
python=/usr/bin/python3

packaging/need.sh "$python":python3 git:git
"$python" -c 'import ensurepip, venv' 2>/dev/null || packaging/need.sh ensurepip:python3-venv

stage=build/deb/bccnd
dist=dist${RELEASE:+/$RELEASE}
rm -rf build/deb
mkdir -p "$stage" "$dist"
if [ -n "${RELEASE:-}" ]; then
    packaging/need.sh debootstrap:debootstrap zstd:zstd
    needs="$(sed -n '/^Build-Depends:/,/^[^ B]/s/^ //p' packaging/debian/control | tr -d '\n') build-essential"
    # Installed only for apt-cache below, which has no lists there.
    tree=$(packaging/tree.sh .cache/trees "$needs, python3-pydantic")
    tar -C build/deb --numeric-owner -I zstd -xpf "$tree"
    system=build/deb
    inside="chroot $system"
    there=bccnd
else
    packaging/need.sh /usr/share/build-essential:build-essential dh:debhelper dh_python3:dh-python fakeroot:fakeroot \
        /usr/include/openssl/sha.h:libssl-dev /usr/bin/python3-config:python3-dev \
        /usr/lib/python3/dist-packages/click:python3-click /usr/lib/python3/dist-packages/yaml:python3-yaml
    system=/
    inside=""
    there=$stage
fi
if [ -e .git ]; then
    git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null
else
    find . -type f ! -path './.*' ! -path './build/*' ! -path './dist/*'
fi | tar -cf - -T - | tar -xf - -C "$stage"
cp -r packaging/debian "$stage/debian"

# Which of what we need the distribution does not have new enough: to build with, and to run with.
tag=$($inside "$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
has=$(LC_ALL=C $inside apt-cache policy python3-pydantic 2>/dev/null | sed -n 's/^  Candidate: //p')
carry=carried
if [ -n "$has" ] && dpkg --compare-versions "$has" ge 2.7; then carry=; fi
kinds="tools $carry"
# shellcheck disable=SC2086  # the list is meant to be split
wheels=.cache/wheels/$tag-$(cd packaging/wheels && for kind in $kinds; do cat "$kind.txt"; done | sha256sum | cut -c 1-16)
if [ ! -e "$wheels/.complete" ]; then
    echo "fetching what the build takes into $wheels"
    rm -rf ".cache/wheels/$tag"-*
    # shellcheck disable=SC2086
    PIP_PYTHON_VERSION=${tag#cp} packaging/fetch-wheels.sh "$wheels" $kinds
fi
for kind in tools carried; do
    for wheel in "$wheels/$kind"/*.whl; do
        [ ! -e "$wheel" ] || "$python" -m zipfile -e "$wheel" "$stage/debian/$kind"
    done
done

built=.cache/built/$(packaging/built-name.sh "$system" "$tag" "$stage")
[ ! -d "$built" ] || cp -r "$built" "$stage/debian/wheel"

[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || date +%s)
export SOURCE_DATE_EPOCH
# The written changelog has complete versions; any other one gets an entry of its own before them.
complete=$(sed -n '1s/^bccnd (\(.*\)) .*/\1/p' packaging/debian/changelog)
if [ "$version" != "$complete" ]; then
    cat - packaging/debian/changelog > "$stage/debian/changelog" << END
bccnd ($version) unstable; urgency=medium

  * A version in development; the first section of changelog.gz says what is new.

 -- $(sed -n "s/^Maintainer: //p" packaging/debian/control)  $(date -u -R -d "@$SOURCE_DATE_EPOCH")

END
fi

echo "building the packages (what is said goes to build/deb/log)"
# Other Pythons of this machine are none of its business.
(
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    $inside sh -c "cd '$there' && exec dpkg-buildpackage -b -us -uc"
) > build/deb/log 2>&1 || {
    tail -n 40 build/deb/log
    exit 1
}
if [ ! -d "$built" ]; then
    rm -rf "${built%-*}"-*
    mkdir -p .cache/built
    cp -r "$stage/debian/wheel" "$built"
fi
# Ubuntu calls packages with symbols .ddeb.
find build/deb -maxdepth 1 \( -name '*.deb' -o -name '*.ddeb' \) -exec mv {} "$dist/" \;
[ -z "$inside" ] || find build/deb -mindepth 1 -maxdepth 1 ! -name log -exec rm -rf {} +
ls "$dist"/bccnd_"$version"_*.deb "$dist"/bccnd-dev_"$version"_*.deb
