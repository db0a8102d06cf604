#!/bin/sh
# Prints the messages of a pattern, with their senders, as they arrive from bccnd; reports losses and refusals
# on stderr. Needs socat and GNU sed.
#   ./subscribe.sh /run/bccnd/bus.sock 'demo/'
# Exits with 1 when the daemon ends: run it in a loop to reconnect.
# type=5 is SOCK_SEQPACKET, on both sides of socat: each write of the shell is one packet, and each read of dd takes one.
# It is slow: a message costs two processes.
[ $# -eq 2 ] || { echo "usage: subscribe.sh SOCKET PATTERN" >&2 && exit 2; }
# A frame becomes a line of output (fd 3); status 9 means that a frame was read. A message without meta is local.
# shellcheck disable=SC2016  # the shell behind socat expands these
work='
    printf "CMSG !/bccn/meta/on"
    printf "SUB %s" "$pattern"
    while dd bs=409600 count=1 status=none | LC_ALL=C sed -nE "$show" >&3; [ $? -eq 9 ]; do :; done'
show='1 {
    s/^MSG ([^\x00]*)\x00([^:|\x00]*):[0-9]+:[0-9]+:[^|\x00]*\|/\2 \1 /; t message
    s/^MSG ([^\x00]*)\x00/? \1 /; t message
    s/^CMSG !\/bccn\/gap\x000$/messages may have been lost here: the daemon has crashed/
    s/^CMSG !\/bccn\/gap\x00([0-9]+)/\1 messages were lost here: this reader is too slow/
    s/^CMSG !\/bccn\/error\x00/refused: /
    s/^/subscribe.sh: /w /dev/stderr
    Q 9
}
:message
$ { s/$/\n/; p; Q 9 }
p'
pattern=$2
export pattern work show
socat -b 409600 "UNIX-CONNECT:$1,type=5" 'SYSTEM:eval \"$work\",socktype=5,sndbuf=409600' 3>&1
echo "subscribe.sh: $1: the connection has ended" >&2
exit 1
