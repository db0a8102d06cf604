// A program that publishes its identity on the channel that each message on demo/question names.
//
//	go build -o answer ./cmd/answer && ./answer /run/bccnd/bus.sock
//	bccn pub demo/question demo/answer
//
// When the daemon restarts, it reconnects and subscribes again.
package main

import (
	"fmt"
	"os"

	"bccn.invalid/bccn"
)

func main() {
	if err := answer(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "answer:", err)
		os.Exit(1)
	}
}

func answer(path string) error {
	bus, err := bccn.Connect(path, "demo/question")
	if err != nil {
		return err
	}
	identity, err := bus.Identity()
	if err != nil {
		return err
	}
	fmt.Println("I am", identity)
	for {
		event, err := bus.Receive(0)
		if err != nil {
			return err
		}
		switch {
		case event.Kind == bccn.Message && event.Key == "demo/question":
			channel := string(event.Payload)
			fmt.Println(event.Src, "asks on", channel)
			if err := bus.Publish(channel, []byte(identity)); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		case event.Kind == bccn.Refusal:
			fmt.Fprintf(os.Stderr, "refused: %s %s\n", event.Reason, event.Key)
		case event.Kind == bccn.Gap && event.Lost == 0:
			fmt.Fprintln(os.Stderr, "messages may have been lost here: the daemon has crashed")
		case event.Kind == bccn.Gap:
			fmt.Fprintf(os.Stderr, "%d messages were lost here: this reader is too slow\n", event.Lost)
		case event.Kind == bccn.Reconnected:
			fmt.Fprintln(os.Stderr, "the daemon was away, and is back")
		}
	}
}
