#!/bin/sh
# Publishes one message, or each line of its input, through bccnd; needs socat.
#   ./publish.sh /run/bccnd/bus.sock demo/hello 'hello, world'
#   printf 'one\ntwo\n' | ./publish.sh /run/bccnd/bus.sock demo/lines
# type=5 is SOCK_SEQPACKET, on both sides of socat: each write of the shell is one packet, and dd makes one write of
# what printf may write in pieces. All messages come from one program, <host>/socat/<pid>.
# What a shell cannot do: a payload with a NUL (arguments hold none, and read drops them), or larger than some 200 KiB;
# hear what the daemon refuses; be fast (a line costs two processes).
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: publish.sh SOCKET CHANNEL [PAYLOAD]" >&2 && exit 2; }
# shellcheck disable=SC2016  # the shell behind socat expands these
if [ $# -eq 3 ]; then
    send='printf "MSG %s\0%s" "$channel" "$payload" | dd obs=400k status=none'
else
    send='while IFS= read -r line <&3 || [ -n "$line" ]; do
        printf "MSG %s\0%s" "$channel" "$line" | dd obs=400k status=none
    done'
fi
channel=$2 payload=${3-}
export channel payload send
exec socat -u -b 409600 'SYSTEM:eval \"$send\",socktype=5' "UNIX-CONNECT:$1,type=5" 3<&0
