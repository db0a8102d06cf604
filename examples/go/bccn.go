// Package bccn is a client of the bus of bccnd, with Go's standard library only.
//
//	bus, err := bccn.Connect("", "demo/")
//	for {
//		event, err := bus.Receive(0)
//		...
//		if event.Kind == bccn.Message {
//			fmt.Printf("%s %s %s\n", event.Src, event.Key, event.Payload)
//		}
//	}
//
// To use it, copy this folder into your module, or name it in go.mod: replace bccn.invalid/bccn => ../path/to/it.
package bccn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Version is that of bccnd with which this came.
const Version = "2.0.0"

// The largest packet of the bus, and one that comes with some more.
const (
	maxPacket = 409_600
	room      = maxPacket + 4096
)

// A sync, and what ends the payload of ours.
const (
	syncKey = "!/bccn/sync"
	syncEnd = " of Go"
)

// Kind says what an Event is.
type Kind int

const (
	// Message has Key, Payload, Src, Seq, ReceivedNs and Peer.
	Message Kind = iota + 1
	// Gap: here Lost messages were dropped, because this program read too slowly; 0 is an unknown number, as the
	// daemon was killed or has crashed.
	Gap
	// Refusal: the daemon refused something; Reason, and in Key what it was about.
	Refusal
	// Reconnected: here the daemon was away; what was sent meanwhile is missing.
	Reconnected
	// Answer is any other control message: Key and Payload.
	Answer
)

// Event is what came. Payload is good until the next call of the Bus.
type Event struct {
	Kind       Kind
	Key        string
	Payload    []byte
	Src, Peer  string
	Seq        uint64
	ReceivedNs int64
	Lost       uint64
	Reason     string
}

// ErrTimeout: nothing has come in time.
var ErrTimeout = errors.New("bccn: nothing has come in time")

// Bus is a connection to the daemon: one packet is one frame. One goroutine at a time may use it.
type Bus struct {
	path     string
	patterns []string
	conn     *net.UnixConn
	packet   []byte
	syncs    int
	asked    string // the key of the last question, until its answer has come: it may come after that was given up
	waiting  []Event
	batch    [][]byte // what is left of a packet: nothing but this package reads the socket, so it asks for batches
}

// Connect takes a path, or @name for an abstract address; without one that of $BCCN_SOCKET, or the usual one. It
// subscribes to the patterns; whether and why one is refused comes as an Event.
func Connect(path string, patterns ...string) (*Bus, error) {
	if path == "" {
		path = os.Getenv("BCCN_SOCKET")
	}
	if path == "" {
		path = "/run/bccnd/bus.sock"
	}
	bus := &Bus{path: path, patterns: append([]string(nil), patterns...), packet: make([]byte, room)}
	for _, pattern := range patterns {
		if err := check(pattern); err != nil {
			return bus, err
		}
	}
	return bus, bus.join()
}

// check refuses a key or pattern with a NUL, where it would end on the bus: what is before may match everything.
func check(key string) error {
	if strings.Contains(key, "\x00") {
		return fmt.Errorf("bccn: a NUL cannot be part of a key or pattern: %q", key)
	}
	return nil
}

func (bus *Bus) join() error {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: bus.path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	bus.conn, bus.asked = conn, ""
	// Without room for the largest packet, what is larger than 208 KiB could not be sent.
	err = conn.SetWriteBuffer(maxPacket)
	frames := []string{"CMSG !/bccn/meta/on", "CMSG !/bccn/batch/on"}
	for _, pattern := range bus.patterns {
		frames = append(frames, "SUB "+pattern)
	}
	for _, frame := range frames {
		if err == nil {
			_, err = conn.Write([]byte(frame))
		}
	}
	if err != nil {
		bus.lose()
	}
	return err
}

func (bus *Bus) lose() {
	if bus.conn != nil {
		bus.conn.Close()
	}
	bus.conn = nil
}

func (bus *Bus) send(verb, key string, rest ...byte) error {
	if err := check(key); err != nil {
		return err
	}
	if bus.conn == nil {
		return fmt.Errorf("bccn: the daemon at %s is away", bus.path)
	}
	_, err := bus.conn.Write(append([]byte(verb+" "+key), rest...))
	return err
}

// Subscribe asks for the messages of a pattern, also after the daemon was away.
func (bus *Bus) Subscribe(pattern string) error {
	if err := check(pattern); err != nil {
		return err
	}
	bus.patterns = append(bus.patterns, pattern)
	return bus.send("SUB", pattern)
}

// Unsubscribe takes a pattern back, once.
func (bus *Bus) Unsubscribe(pattern string) error {
	for i, one := range bus.patterns {
		if one == pattern {
			bus.patterns = append(bus.patterns[:i:i], bus.patterns[i+1:]...)
			break
		}
	}
	return bus.send("UNSUB", pattern)
}

// Publish sends a message. What the daemon refuses comes as an Event, and for certain by Sync.
func (bus *Bus) Publish(key string, payload []byte) error {
	return bus.send("MSG", key, behindNul(payload)...)
}

func behindNul(payload []byte) []byte {
	return append([]byte{0}, payload...)
}

// Receive waits for the next event, with a timeout above 0 for so long, then it is ErrTimeout. A connection that is lost
// is made again, and then the event is Reconnected.
func (bus *Bus) Receive(timeout time.Duration) (Event, error) {
	if len(bus.waiting) > 0 {
		event := bus.waiting[0]
		bus.waiting = bus.waiting[1:]
		return event, nil
	}
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	for {
		event, err := bus.read(deadline)
		if err != nil || !bus.isLate(event) {
			return event, err
		}
	}
}

func (bus *Bus) read(deadline time.Time) (Event, error) {
	for {
		if len(bus.batch) > 0 {
			frame := bus.batch[0]
			bus.batch = bus.batch[1:]
			if event, known := parse(frame); known && !isOptional(event) {
				return event, nil
			}
			continue
		}
		if bus.conn == nil {
			return bus.rejoin(deadline)
		}
		bus.conn.SetReadDeadline(deadline)
		n, err := bus.conn.Read(bus.packet)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return Event{}, ErrTimeout
		}
		if err != nil || n == 0 {
			bus.lose()
			continue
		}
		bus.batch = split(bus.packet[:n])
	}
}

// isOptional says whether this is the refusal of batches, by a daemon that is too old for them.
func isOptional(event Event) bool {
	return event.Kind == Refusal && event.Key == "!/bccn/batch/on"
}

// split takes the frames of a packet: one, or those of a batch, "MSGS <n>", a NUL, and each behind its length.
func split(packet []byte) [][]byte {
	head, rest, _ := bytes.Cut(packet, []byte{0})
	if !bytes.HasPrefix(head, []byte("MSGS ")) {
		return [][]byte{packet}
	}
	var frames [][]byte
	for len(rest) >= 4 {
		size := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[4:]; size > uint64(len(rest)) {
			break
		}
		frames = append(frames, rest[:size])
		rest = rest[size:]
	}
	return frames
}

func (bus *Bus) rejoin(deadline time.Time) (Event, error) {
	for pause := 50 * time.Millisecond; bus.join() != nil; pause = shorter(2*pause, time.Second) {
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return Event{}, ErrTimeout
			}
			pause = shorter(pause, left)
		}
		time.Sleep(pause)
	}
	return Event{Kind: Reconnected}, nil
}

func shorter(one, other time.Duration) time.Duration {
	if one < other {
		return one
	}
	return other
}

// parse takes a packet apart; a later daemon may send some that are not known here.
func parse(packet []byte) (Event, bool) {
	verb, rest, _ := bytes.Cut(packet, []byte(" "))
	key, payload, whole := bytes.Cut(rest, []byte{0})
	event := Event{Key: string(key), Payload: payload}
	switch {
	case !whole:
		return event, false
	case string(verb) == "MSG":
		event.Kind = Message
		takeMeta(&event)
	case string(verb) != "CMSG":
		return event, false
	case event.Key == "!/bccn/gap":
		event.Kind = Gap
		event.Lost, _ = strconv.ParseUint(string(payload), 10, 64)
	case event.Key == "!/bccn/error":
		event.Kind = Refusal
		event.Reason, event.Key, _ = strings.Cut(string(payload), " ")
	default:
		event.Kind = Answer
	}
	return event, true
}

// takeMeta takes "<src>:<seq>:<received_ns>:<peer>|" off the payload of a message on a channel.
func takeMeta(event *Event) {
	if len(event.Key) == 0 || len(event.Key) > 1024 || strings.HasPrefix(event.Key, "!/") || strings.HasPrefix(event.Key, "!?") {
		return
	}
	for _, one := range []byte(event.Key) {
		if one < 0x21 || one > 0x7e || one == ':' || one == '|' {
			return
		}
	}
	head, rest, found := bytes.Cut(event.Payload, []byte("|"))
	fields := strings.SplitN(string(head), ":", 4)
	if !found || len(fields) != 4 {
		return
	}
	seq, err := strconv.ParseUint(fields[1], 10, 64)
	received, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || err2 != nil {
		return
	}
	event.Src, event.Seq, event.ReceivedNs, event.Peer, event.Payload = fields[0], seq, received, fields[3], rest
}

// Ask sends a control message and waits for its answer. What else comes meanwhile is kept for Receive. An answer that
// comes later is dropped: after an error, Ask first waits for a sync.
func (bus *Bus) Ask(key string, payload []byte, timeout time.Duration) ([]byte, error) {
	deadline := time.Now().Add(timeout)
	if bus.asked != "" {
		if err := bus.sync(deadline); err != nil {
			return nil, err
		}
	}
	var rest []byte
	if payload != nil {
		rest = behindNul(payload)
	}
	if err := bus.send("CMSG", key, rest...); err != nil {
		return nil, err
	}
	bus.asked = key
	return bus.await(key, nil, deadline)
}

func (bus *Bus) sync(deadline time.Time) error {
	bus.syncs++
	token := []byte(fmt.Sprint(bus.syncs, syncEnd))
	err := bus.send("CMSG", syncKey, behindNul(token)...)
	if err == nil {
		_, err = bus.await(syncKey, token, deadline)
	}
	return err
}

// await waits for the answer under a key, where there is an echo for the one with this payload. After it nothing is left
// that was asked: what was not answered before a sync never will be.
func (bus *Bus) await(key string, echo []byte, deadline time.Time) ([]byte, error) {
	for time.Now().Before(deadline) { // there may be no end of what comes
		event, err := bus.read(deadline)
		if err != nil {
			return nil, err
		}
		if event.Kind == Answer && event.Key == key && (echo == nil || bytes.Equal(event.Payload, echo)) {
			bus.asked = ""
			return event.Payload, nil
		}
		if event.Kind == Refusal && event.Key == key {
			bus.asked = ""
			return nil, fmt.Errorf("bccn: refused: %s %s", event.Reason, key)
		}
		if bus.isLate(event) {
			continue
		}
		event.Payload = append([]byte(nil), event.Payload...)
		bus.waiting = append(bus.waiting, event)
		if event.Kind == Reconnected {
			return nil, fmt.Errorf("bccn: the daemon at %s was away meanwhile", bus.path)
		}
	}
	return nil, ErrTimeout
}

// isLate says whether this is the answer to a question or sync that was given up.
func (bus *Bus) isLate(event Event) bool {
	if event.Kind != Answer {
		return false
	}
	if event.Key == bus.asked {
		bus.asked = ""
		return true
	}
	return event.Key == syncKey && bytes.HasSuffix(event.Payload, []byte(syncEnd))
}

// Identity is how this program is known on the segment.
func (bus *Bus) Identity() (string, error) {
	answer, err := bus.Ask("!/bccn/whoami", nil, 5*time.Second)
	return string(answer), err
}

// Sync waits until the daemon is done with all that was sent; it returns what was refused.
func (bus *Bus) Sync(timeout time.Duration) ([]Event, error) {
	if err := bus.sync(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var refused, others []Event
	for _, event := range bus.waiting {
		if event.Kind == Refusal {
			refused = append(refused, event)
		} else {
			others = append(others, event)
		}
	}
	bus.waiting = others
	return refused, nil
}

// Close ends the connection.
func (bus *Bus) Close() {
	bus.lose()
}
