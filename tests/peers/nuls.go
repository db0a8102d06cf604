// nuls - as nuls.pl.
package main

import (
	"fmt"
	"os"
	"time"

	"bccn.invalid/bccn"
)

func main() {
	nul := "\x00x"
	bus, err := bccn.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
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
