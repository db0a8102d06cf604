# A host of its own to follow a document on: everything below / is as on this machine, and what is written there is
# forgotten; its network, processes, mounts and name are nobody else's. Started by place.py in fresh namespaces.
#   sh place.sh FOLDER ROOT NETWORK SEEN...
# FOLDER: empty; holds what is between this host and who types (commands, their status). ROOT: the repository.
# NETWORK: `own`, or `shared` with this machine, to install from. SEEN: folders that have to be there, too.
set -eu
folder=$1 root=$2 network=$3
hostname relay01
base=$folder/host
mkdir "$base"
mount -t tmpfs -o mode=755 bccnd-docs "$base"
mkdir "$base/upper" "$base/work" "$base/root"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" bccnd-docs "$base/root"
new=$base/root
mount --rbind /dev "$new/dev"
mount --rbind /sys "$new/sys"
mount -t proc proc "$new/proc"
# Where the repository and its Python are on disks of their own, these are seen through as well.
shift 3
for seen in "$root" "$@"; do
    if ! [ -e "$new$seen/." ]; then
        name=$(printf '%s' "$seen" | tr / _)
        mkdir "$base/upper$name" "$base/work$name"
        mkdir -p "$new$seen"
        mount -t overlay -o "lowerdir=$seen,upperdir=$base/upper$name,workdir=$base/work$name" bccnd-docs "$new$seen"
    fi
done
mkdir -p "$new$folder"
mount --bind "$folder" "$new$folder"
if [ "$network" = own ]; then
    ip link set lo up
    # The other end of the wire takes what comes and answers nothing.
    ip link add eth0 type veth peer name wire
    ip link set wire up
    ip address add 192.0.2.1/24 brd + dev eth0
    ip link set eth0 up
    ip route add default via 192.0.2.254 dev eth0
fi
rm -rf "$new/etc/bccnd" "$new/var/lib/bccnd" "$new/run/bccnd"
mkdir -p "$new/etc/bccnd/keys" "$new/etc/bccnd/tls" "$new/var/lib/bccnd" "$new/run/bccnd" "$new/root/place"
chmod 700 "$new/etc/bccnd/keys" "$new/etc/bccnd/tls"
cp "$root/etc/bccnd.yaml" "$new/etc/bccnd/bccnd.yaml"
# What make would build anew is as good as new: else conftest.py had refused it.
chroot "$new" sh -c 'if [ -d "$1" ]; then touch "$1/.core" && touch "$1/.ready" && touch "$1/.built"; fi' sh "$root/.venv"
echo '192.0.2.1 relay01' >>"$new/etc/hosts"
# As the package makes it.
chroot "$new" groupadd -f --system bccn
cat >"$new/usr/local/bin/place-daemon" <<'DAEMON'
#!/bin/sh
# Start the daemon anew, and wait until it serves: place-daemon [on]; or stop it: place-daemon off.
set -eu
if [ -e /root/place/pid ]; then
    kill "$(cat /root/place/pid)" || true
    while kill -0 "$(cat /root/place/pid)" 2>/dev/null; do sleep 0.05; done
    rm /root/place/pid
fi
if [ "${1:-on}" = off ]; then exit 0; fi
: >/root/place/log
setsid bccnd </dev/null >/dev/null 2>>/root/place/log &
echo $! >/root/place/pid
for turn in $(seq 400); do
    if grep -q 'ready: ' /root/place/log; then exit 0; fi
    if ! kill -0 "$(cat /root/place/pid)" 2>/dev/null; then break; fi
    sleep 0.05
done
cat /root/place/log
exit 1
DAEMON
printf '#!/bin/sh\n' >"$new/usr/local/bin/editor"
chmod 755 "$new/usr/local/bin/place-daemon" "$new/usr/local/bin/editor"
cd /
# This shell stays, as the first process of the host, and takes its dead.
chroot "$new" setsid --ctty --wait bash --noprofile --rcfile "$folder/rc" --noediting -i
