// A program on the bus of bccnd, with Go's standard library only: prints the messages of a pattern, or publishes one
// message or each line of its input.
//
//	go build -o bus . && ./bus subscribe /run/bccnd/bus.sock 'demo/'
//	./bus publish /run/bccnd/bus.sock demo/hello 'hello, world'
//	printf 'one\ntwo\n' | ./bus publish /run/bccnd/bus.sock demo/lines
//
// subscribe connects again when the daemon restarts; what is sent before that does not arrive. publish ends with 0 when
// the daemon has taken all, with 1 when it has refused something.
package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// The largest packet of the bus, and one that comes with some more.
const (
	maxPacket = 409_600
	room      = maxPacket + 4096
)

// Bus is a connection: one packet is one frame.
type Bus struct {
	conn   *net.UnixConn
	packet []byte
}

// Frame is a packet taken apart. Payload is good until the next Receive.
type Frame struct {
	Control bool
	Key     string
	Payload []byte
}

// Connect takes a path, or @name for an abstract address.
func Connect(path string) (*Bus, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	// Without room for the largest packet, what is larger than 208 KiB could not be sent.
	if err := conn.SetWriteBuffer(maxPacket); err != nil {
		conn.Close()
		return nil, err
	}
	return &Bus{conn, make([]byte, room)}, nil
}

func (bus *Bus) Subscribe(pattern string) error {
	_, err := bus.conn.Write([]byte("SUB " + pattern))
	return err
}

func (bus *Bus) Publish(key string, payload []byte) error {
	_, err := bus.conn.Write(append([]byte("MSG "+key+"\x00"), payload...))
	return err
}

func (bus *Bus) Control(key string, payload []byte) error {
	_, err := bus.conn.Write(append([]byte("CMSG "+key+"\x00"), payload...))
	return err
}

// Receive waits for the next frame; io.EOF when the daemon has ended.
func (bus *Bus) Receive() (Frame, error) {
	for {
		n, err := bus.conn.Read(bus.packet)
		if err != nil {
			return Frame{}, err
		}
		verb, rest, _ := bytes.Cut(bus.packet[:n], []byte(" "))
		key, payload, whole := bytes.Cut(rest, []byte{0})
		control := string(verb) == "CMSG"
		if whole && (control || string(verb) == "MSG") {
			return Frame{control, string(key), payload}, nil
		}
	}
}

func (bus *Bus) Close() error {
	return bus.conn.Close()
}

// printMessages does so until the connection ends.
func printMessages(path, pattern string, out *bufio.Writer) (connected bool, err error) {
	bus, err := Connect(path)
	if err != nil {
		return false, err
	}
	defer bus.Close()
	if err := bus.Subscribe(pattern); err != nil {
		return false, err
	}
	for {
		frame, err := bus.Receive()
		if err != nil {
			return true, err
		}
		switch {
		case !frame.Control:
			fmt.Fprintf(out, "MSG %s %s\n", frame.Key, frame.Payload)
			if err := out.Flush(); err != nil {
				return false, err
			}
		case frame.Key == "!/bccn/gap":
			fmt.Fprintf(os.Stderr, "bus: %s messages were lost here: this reader is too slow\n", frame.Payload)
		case frame.Key == "!/bccn/error":
			fmt.Fprintf(os.Stderr, "bus: refused: %s\n", frame.Payload)
		}
	}
}

func subscribe(path, pattern string) error {
	for connected := false; ; time.Sleep(time.Second) {
		served, err := printMessages(path, pattern, bufio.NewWriter(os.Stdout))
		connected = connected || served
		if !connected {
			return err
		}
		fmt.Fprintf(os.Stderr, "bus: %s: %v\n", path, err)
	}
}

func publish(path, channel string, payload []string) error {
	bus, err := Connect(path)
	if err != nil {
		return err
	}
	defer bus.Close()
	if len(payload) > 0 {
		if err := bus.Publish(channel, []byte(payload[0])); err != nil {
			return err
		}
	} else if err := publishLines(bus, channel, bufio.NewReader(os.Stdin)); err != nil {
		return err
	}
	return sync(bus)
}

func publishLines(bus *Bus, channel string, lines *bufio.Reader) error {
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

// sync waits until the daemon is done with all that was sent before; until then it says what it has refused.
func sync(bus *Bus) error {
	if err := bus.Control("!/bccn/sync", []byte("done")); err != nil {
		return err
	}
	var refused error
	for {
		frame, err := bus.Receive()
		if err != nil {
			return err
		}
		if frame.Control && frame.Key == "!/bccn/error" {
			refused = fmt.Errorf("refused: %s", frame.Payload)
			fmt.Fprintln(os.Stderr, "bus:", refused)
		}
		if frame.Control && frame.Key == "!/bccn/sync" {
			return refused
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
