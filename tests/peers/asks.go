// asks - as asks.pl.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"bccn.invalid/bccn"
)

func useNuls(bus *bccn.Bus) {
	nul := "\x00x"
	_, connecting := bccn.Connect(os.Args[1], nul)
	_, asking := bus.Ask(nul, nil, time.Second)
	for _, err := range []error{
		connecting, bus.Subscribe(nul), bus.Unsubscribe(nul), bus.Publish(nul, []byte("payload")), asking,
	} {
		fmt.Println(err)
	}
	if _, err := bus.Sync(20 * time.Second); err != nil {
		panic(err)
	}
}

func main() {
	bus, err := bccn.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
	if os.Args[2] == "nul" {
		useNuls(bus)
		return
	}
	if _, err := bus.Ask("!/slow", nil, 50*time.Millisecond); !errors.Is(err, bccn.ErrTimeout) {
		os.Exit(1)
	}
	bus.Publish("gave/up", nil)
	if pause, _ := time.ParseDuration(os.Args[2] + "ms"); pause > 0 {
		for event, err := bus.Receive(pause); err == nil; event, err = bus.Receive(pause) {
			fmt.Println("received", event.Key)
		}
	}
	answer, err := bus.Ask("!/slow", nil, 20*time.Second)
	if err != nil {
		panic(err)
	}
	fmt.Printf("answer %s\n", answer)
}
