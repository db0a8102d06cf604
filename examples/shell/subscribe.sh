#!/bin/sh
# Prints the frames of a pattern, as they arrive from bccnd; needs socat.
#   ./subscribe.sh /run/bccnd/bus.sock 'demo/'
# type=5 is SOCK_SEQPACKET. socat closes its sending side after SUB and goes on receiving for a day (-t); of a packet it
# takes what fits in its buffer (-b). What the daemon itself says is printed, too: "CMSG !/bccn/gap 17" for 17 lost
# messages. There is nothing between two frames: let payloads end with a line end if they are to stand on lines.
printf 'SUB %s' "$2" | socat -t 86400 -b 409600 - "UNIX-CONNECT:$1,type=5" | stdbuf -o0 tr '\000' ' '
