#!/bin/sh
# Prints the frames of a pattern, as they arrive from bccnd; needs socat.
#   ./subscribe.sh /run/bccnd/bus.sock 'demo/'
# type=5 is SOCK_SEQPACKET. socat closes its sending side after SUB and goes on receiving for a day (-t).
printf 'SUB %s' "$2" | socat -t 86400 - "UNIX-CONNECT:$1,type=5" | stdbuf -o0 tr '\000' ' '
