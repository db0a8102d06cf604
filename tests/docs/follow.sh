# What the script of a page begins with. $output: the file that gets what all commands print.
set -m -o pipefail
exec 3>&1 >"$output" 2>&1 </dev/null

fail() {
    echo "$1; what line $line printed:" >&3
    tail -c +"$start" "$output" >&3
    exit 1
}

# Wait until one of the lines that the command has printed matches.
await() {
    local turn
    for turn in $(seq 400); do
        if tail -c +"$start" "$output" | grep -qP -- "$1"; then return; fi
        sleep 0.1
    done
    fail "line $line does not show $1"
}

# Wait until no process of this host has much to do, in two half seconds: on a busy machine each gets little.
rest() {
    local turn before=-99 now idle=0
    for turn in $(seq 40); do
        sleep 0.5
        now=$(cat /proc/[0-9]*/stat 2>/dev/null | sed 's/.*) //' | awk '{ sum += $12 + $13 } END { print sum }')
        if [ $((now - before)) -le 3 ] && [ $((before - now)) -le 3 ]; then idle=$((idle + 1)); else idle=0; fi
        if [ $idle = 2 ]; then return; fi
        before=$now
    done
}

begin() {
    line=$1 start=$(($(stat -c %s "$output") + 1))
}

ended() {
    if [ "$1" != "$2" ]; then fail "line $line ended with status $1"; fi
}

interrupt() {
    sleep 2
    kill -INT -- -$!
    wait $! || [ $? = 130 ] || fail "line $line does not end by Ctrl-C"
}
