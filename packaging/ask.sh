#!/bin/sh
# Asks a user at a terminal before sudo is used: ask.sh WHAT-FOR COMMAND. Status 0: go on; there is no question where CI
# is set, nor without a terminal.
set -eu
[ -t 0 ] && [ -t 2 ] && [ -z "${CI:-}" ] || exit 0
printf '%s\nRun "sudo %s"? [Y/n] ' "$1" "$2" >&2
read -r answer || answer=n
case $answer in
    "" | [Yy]*) ;;
    *) exit 1 ;;
esac
