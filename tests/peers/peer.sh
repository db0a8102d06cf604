#!/bin/sh
# peer.sh - BCCN in a POSIX shell with socat and openssl, written from the protocol's text and sharing no line with
# bccnd.
#
#   peer.sh send ADDRESS PORT SRC SEQ CHAN PAYLOAD [--key FILE | --sign PRIVATE.pem]
#   peer.sh listen PORT             prints each datagram as it came and a line end; two at a time may change places
#   peer.sh verify PUBLIC.pem       reads one datagram with a sig from stdin; status 0 if the signature fits
#
# A key shows in the list of processes while openssl runs: good enough for looking at things, not for a service.
set -eu
LC_ALL=C # the length of a body is counted in bytes
export LC_ALL
work=$(mktemp -d) # openssl signs and verifies files only
trap 'rm -rf "$work"' EXIT

hmac_of() { # BODY KEYFILE
    printf %s "$1" | openssl dgst -sha256 -mac HMAC -macopt "key:$(cat "$2")" -r | cut -c 1-16
}

signature_of() { # BODY PRIVATE.pem
    printf %s "$1" >"$work/body"
    openssl pkeyutl -sign -rawin -inkey "$2" -in "$work/body" -out "$work/signature"
    od -An -v -tx1 "$work/signature" | tr -d ' \n'
}

bytes_of() { # HEX; printf knows octal numbers only
    rest=$1
    while [ -n "$rest" ]; do
        behind=${rest#??}
        # shellcheck disable=SC2059  # the format is the byte
        printf "\\$(printf %03o "0x${rest%"$behind"}")"
        rest=$behind
    done
}

send() { # ADDRESS PORT SRC SEQ CHAN PAYLOAD [OPTION FILE]
    body="$3:$4:$5|$6"
    case ${7-} in
    --key) check=":hmac=$(hmac_of "$body" "$8")" ;;
    --sign) check=":sig=$(signature_of "$body" "$8")" ;;
    *) check= ;;
    esac
    printf %s "BCCN1[${#body}$check]$body" | socat -u - "UDP4-DATAGRAM:$1:$2,broadcast"
}

listen() { # PORT; a child for each datagram, so that each gets its line end
    rm -rf "$work" # exec leaves no one to do it later
    exec socat -u "UDP4-RECVFROM:$1,reuseaddr,fork" SYSTEM:'cat; echo'
}

verify() { # PUBLIC.pem
    cat >"$work/datagram"
    envelope=$(sed -n '1s/^\(BCCN1\[[^]]*]\).*/\1/p' "$work/datagram")
    tail -c "+$((${#envelope} + 1))" "$work/datagram" >"$work/body"
    inside=${envelope#*[}
    length=${inside%%:*} check=${inside#*:}
    [ "$(wc -c <"$work/body")" -eq "$length" ]
    hex=${check%]}
    bytes_of "${hex#sig=}" >"$work/signature"
    openssl pkeyutl -verify -rawin -pubin -inkey "$1" -sigfile "$work/signature" -in "$work/body"
}

mode=${1-}
[ $# -gt 0 ] && shift
case $mode:$# in
send:6 | send:8 | listen:1 | verify:1) "$mode" "$@" ;;
*) echo "usage: peer.sh send ADDRESS PORT SRC SEQ CHAN PAYLOAD | listen PORT | verify PUBLIC.pem" >&2 && exit 2 ;;
esac
