// A program on the bus of bccnd: prints the messages of a pattern with their senders, or publishes one message or each
// line of its input.
//
//	go build -o bus ./cmd/bus && ./bus subscribe /run/bccnd/bus.sock 'demo/'
//	./bus publish /run/bccnd/bus.sock demo/hello 'hello, world'
//	printf 'one\ntwo\n' | ./bus publish /run/bccnd/bus.sock demo/lines
//
// subscribe reconnects when the daemon restarts; messages sent meanwhile do not arrive. publish exits with 0 if the
// daemon accepted everything, with 1 if it refused something.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"bccn.invalid/bccn"
)

func subscribe(path, pattern string) error {
	bus, err := bccn.Connect(path, pattern)
	if err != nil {
		return err
	}
	for {
		event, err := bus.Receive(0)
		if err != nil {
			return err
		}
		switch event.Kind {
		case bccn.Message:
			if _, err := fmt.Printf("%s %s %s\n", event.Src, event.Key, event.Payload); err != nil {
				return err
			}
		case bccn.Gap:
			if event.Lost == 0 {
				fmt.Fprintln(os.Stderr, "bus: messages may have been lost here: the daemon has crashed")
			} else {
				fmt.Fprintf(os.Stderr, "bus: %d messages were lost here: this reader is too slow\n", event.Lost)
			}
		case bccn.Refusal:
			fmt.Fprintf(os.Stderr, "bus: refused: %s %s\n", event.Reason, event.Key)
		case bccn.Reconnected:
			fmt.Fprintf(os.Stderr, "bus: %s: the daemon was away, and is back\n", path)
		}
	}
}

func publish(path, channel string, payload []string) error {
	bus, err := bccn.Connect(path)
	if err != nil {
		return err
	}
	defer bus.Close()
	if len(payload) > 0 {
		err = bus.Publish(channel, []byte(payload[0]))
	} else {
		err = publishLines(bus, channel, bufio.NewReader(os.Stdin))
	}
	if err != nil {
		return err
	}
	refused, err := bus.Sync(time.Minute)
	for _, one := range refused {
		fmt.Fprintf(os.Stderr, "bus: refused: %s %s\n", one.Reason, one.Key)
	}
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%d messages were not published", len(refused))
	}
	return err
}

func publishLines(bus *bccn.Bus, channel string, lines *bufio.Reader) error {
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := bus.Publish(channel, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) == 3 && args[0] == "subscribe":
		err = subscribe(args[1], args[2])
	case (len(args) == 3 || len(args) == 4) && args[0] == "publish":
		err = publish(args[1], args[2], args[3:])
	default:
		fmt.Fprintln(os.Stderr, "usage: bus subscribe SOCKET PATTERN | bus publish SOCKET CHANNEL [PAYLOAD]")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bus:", err)
		os.Exit(1)
	}
}
