#!/bin/sh
# Publishes one message, or each line of its input, through bccnd; needs socat.
#   ./publish.sh /run/bccnd/bus.sock demo/hello 'hello, world'
#   printf 'one\ntwo\n' | ./publish.sh /run/bccnd/bus.sock demo/lines
# Exits with 0 if the daemon accepted everything, with 1 if it refused something; it reports refusals on stderr.
# type=5 is SOCK_SEQPACKET, on both sides of socat: each write of the shell is one packet, and dd joins
# the writes of printf into one. All messages come from one program, <host>/socat/<pid>.
# Limits of a shell: payloads cannot have a NUL (arguments hold none, and read drops them) or more than some 200 KiB. It
# is slow: a line costs two processes.
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: publish.sh SOCKET CHANNEL [PAYLOAD]" >&2 && exit 2; }
# shellcheck disable=SC2016  # the shell behind socat expands these
if [ $# -eq 3 ]; then
    send='printf "MSG %s\0%s" "$channel" "$payload" | dd obs=400k status=none'
else
    send='while IFS= read -r line <&3 || [ -n "$line" ]; do
        printf "MSG %s\0%s" "$channel" "$line" | dd obs=400k status=none
    done'
fi
# The daemon echoes a sync after it has processed everything before it. Refusals go to the outer shell (fd 4).
# shellcheck disable=SC2016
sync='printf "CMSG !/bccn/sync\0%s" "$$"
    until case $got in "CMSG !/bccn/sync "*) ;; *) false ;; esac; do
        got=$(dd bs=409600 count=1 status=none | tr "\000" " ")
        case $got in
        "CMSG !/bccn/error "*) echo "refused: ${got#CMSG !/bccn/error }" >&4 ;;
        "CMSG !/bccn/gap 0") echo "answers may have been lost: the daemon has crashed" >&4 ;;
        "CMSG !/bccn/gap "*) echo "${got#CMSG !/bccn/gap } answers were lost" >&4 ;;
        "") echo "the connection has ended" >&4 && exit ;;
        esac
    done'
channel=$2 payload=${3-} got=
export channel payload send sync got
refused=$(socat -b 409600 "UNIX-CONNECT:$1,type=5" 'SYSTEM:eval \"$send\"; eval \"$sync\",socktype=5' 3<&0 4>&1) || exit 1
[ -z "$refused" ] || { echo "$refused" | sed 's/^/publish.sh: /' >&2 && exit 1; }
