# A host of its own for the commands of a page: what is written below these folders is forgotten, and network, processes
# and mounts belong to nobody else. Started in new namespaces: sh host.sh SCRIPT PYTHON FOLDER...
# PYTHON: the folder of the virtual environment. FOLDER: what the commands may write to.
set -eu
script=$1 python=$2 scratch=/mnt
shift 2
mount -t tmpfs bccnd-docs "$scratch"
cp "$script" "$scratch/script"
for folder in "$@"; do
    name=$(printf '%s' "$folder" | tr / _)
    mkdir "$scratch/upper$name" "$scratch/work$name"
    mount -t overlay -o "lowerdir=$folder,upperdir=$scratch/upper$name,workdir=$scratch/work$name" bccnd-docs "$folder"
done
# By the path, as the folder itself lies below the mount.
cd "$(pwd)"
hostname relay01
ip link set lo up
# The other end of the cable answers nothing.
ip link add eth0 type veth peer name cable
ip link set cable up
ip address add 192.0.2.1/24 brd + dev eth0
ip link set eth0 up
ip route add default via 192.0.2.254 dev eth0
echo '192.0.2.1 relay01' >>/etc/hosts
rm -rf /etc/bccnd /run/bccnd /var/lib/bccnd
mkdir -p /etc/bccnd/keys /run/bccnd /var/lib/bccnd
cp etc/bccnd.yaml /etc/bccnd/bccnd.yaml
groupadd -f --system bccn
# Everything is installed and built: conftest.py refuses a library older than its sources.
for step in .core .tests .recorder .report .ready .built; do touch "$python/$step"; done
exec bash --noprofile --norc "$scratch/script"
