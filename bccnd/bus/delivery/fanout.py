"""Sends messages to the clients of the local bus: at once, in batches, or into their queues.

`Fanout.deliver` sends messages from a segment, `send` those published here or received from a link, `send_batches`
those gathered for clients in batch mode, and `send_control` messages for one client only.

Invariant: no send blocks. Messages for a full socket go to `delivery.client_queues`. Source: sbus, "Protocol".
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from bccnd.bus.clients.client import Client
from bccnd.bus.clients.registry import ClientRegistry
from bccnd.bus.delivery.client_queues import NO_ROOM, ClientQueues, batch_packet, enlarge_send_buffer
from bccnd.core.matching.receivers import Part, Receivers
from bccnd.core.receiving.deliveries import Deliveries
from bccnd.core.sending.message_groups import MessageGroups, portions
from bccnd.net.loop import Loop


class Fanout:
    """Sends to the clients in ``registry``, or puts into their ``queues``."""

    def __init__(self, loop: Loop, registry: ClientRegistry, queues: ClientQueues) -> None:
        self.queues = queues
        self._counters = registry.counters
        self._clients = registry.by_fd
        self._sender = queues.sender
        self._waiting = queues.waiting
        self._batched = queues.batched
        #: incremented when a client begins or ends batch mode; receivers divided before are divided again
        self._modes = 0
        #: messages that are sent together: for clients in batch mode in one packet when the segment was drained, for
        #: others with one call
        self._batches = MessageGroups()
        self._groups = MessageGroups()
        #: whether messages are gathered: the end of this turn or round will send them
        self.due = False
        #: whether published messages are gathered for clients not in batch mode, too: others follow in this turn
        self.gathers = False
        self._loop = loop
        registry.on_end.append(self._forget)

    def _forget(self, client: Client) -> None:
        """Drop the queue of a client that ends."""
        if client.fd in self._batched:
            self.set_batch(client, False)
        else:
            self.send_batches()
        self.queues.clear(client)
        self.queues.blockers.discard(client.fd)
        if len(self._clients) == 1:  # it is the last
            self._batches.reset()
            self._groups.reset()

    # -- messages

    def deliver(self, deliveries: Deliveries) -> None:
        """Send the deliveries of one batch of datagrams, in order, and clear them.

        A lone frame goes to clients in batch mode at once: the batch of datagrams is an input by itself, and no other
        follows at once. Of several frames, those for the same receivers are sent together.
        """
        if deliveries.count == 1 and not self.due:
            receivers, frame = self._divided(deliveries.receivers[0]), deliveries.frames[0]
            if receivers.single.all:
                self._send_packet(receivers.single.all, frame, None)
            if receivers.batched.all:
                self._send_batch(receivers.batched.all, [frame])
        else:
            for number in range(deliveries.count):
                receivers, frame = self._divided(deliveries.receivers[number]), deliveries.frames[number]
                if receivers.single.all:
                    self._groups.put(receivers.single, frame)
                if receivers.batched.all:
                    self._gather(self._batches, receivers.batched, frame)
            self._send_groups()
        deliveries.clear()

    def send(self, receivers: Receivers, frame: bytes) -> None:
        """Send one message that a client, a link or the daemon publishes.

        Others may follow: clients in batch mode get it at the end of the round, with them.
        """
        receivers = self._divided(receivers)
        if receivers.batched.all:
            self._gather(self._batches, receivers.batched, frame)
        if not self.gathers:
            self._send_packet(receivers.single.all, frame, None)
        elif receivers.single.all:
            self._gather(self._groups, receivers.single, frame)

    def send_batches(self) -> None:
        """Send the gathered messages, at the end of a turn or round, or before a message that must come after them."""
        if not self.due:
            return
        self.due = False
        self._send_groups()
        for fds, messages in self._batches.take():
            for some in portions(messages):
                self._send_batch(fds, some)

    def _send_groups(self) -> None:
        for fds, messages in self._groups.take():
            if len(messages) == 1:
                self._send_packet(fds, messages[0], None)
            else:
                self._send_packets(fds, messages)

    def _send_packet(self, fds: tuple[int, ...], packet: bytes, messages: list[bytes] | None) -> None:
        """Send the same packet to each receiver: one message, or a batch of ``messages``; or have these queued."""
        sent = 0
        count = 1 if messages is None else len(messages)
        for fd in fds:
            if self._waiting and fd in self._waiting:
                self.queues.enqueue_all(self._clients[fd], [packet] if messages is None else messages)
                continue
            failed = self._sender.send_one(fd, packet)
            if failed:
                self._not_sent(fd, [packet] if messages is None else messages, failed)
            else:
                sent += count
        self._counters.deliveries += sent

    def _send_batch(self, fds: tuple[int, ...], messages: list[bytes]) -> None:
        """Send messages that fit into one packet to clients in batch mode."""
        self._send_packet(fds, batch_packet(messages), messages)

    def _send_packets(self, fds: tuple[int, ...], messages: list[bytes]) -> None:
        """Send several messages to each receiver with one call, each as a packet of its own."""
        sent = 0
        count = len(messages)
        self._sender.load(messages)
        for fd in fds:
            if self._waiting and fd in self._waiting:
                self.queues.enqueue_all(self._clients[fd], messages)
                continue
            taken = self._sender.send(fd)
            sent += taken
            for message in messages[taken:] if taken < count else ():
                self._send_packet((fd,), message, None)
        self._counters.deliveries += sent

    # -- batches

    def _divided(self, receivers: Receivers) -> Receivers:
        """Return receivers that are divided by the modes that clients have now."""
        if receivers.version != self._modes:
            receivers.divide(self._batched, self._modes)
        return receivers

    def _gather(self, groups: MessageGroups, part: Part, frame: bytes) -> None:
        """Keep a frame for some clients until the end of this turn or round."""
        groups.put(part, frame)
        if not self.due:
            self.due = True
            self._loop.soon(self.send_batches)

    def in_batch(self, client: Client) -> bool:
        """Whether a client is in batch mode."""
        return client.fd in self._batched

    def set_batch(self, client: Client, wanted: bool) -> None:
        """Set or end batch mode for a client."""
        self.send_batches()
        if wanted and client.open:  # sending the gathered messages may have ended it
            self._batched.add(client.fd)
        else:
            self._batched.discard(client.fd)
        self._modes += 1

    # -- control messages

    def send_control(self, client: Client, frame: bytes) -> None:
        """Send one client a control message, behind its gathered and queued messages."""
        self.send_batches()
        if not client.open:
            return
        if not client.queue:
            failed = self._sender.send_one(client.fd, frame)
            if failed not in NO_ROOM:
                if failed == errno.EMSGSIZE:
                    self.queues.count_control_dropped()
                return
        self.queues.enqueue_control(client, frame)

    # -- messages that the kernel refuses

    def _not_sent(self, fd: int, messages: list[bytes], failed: int) -> None:
        # A client that sending has just ended is no longer here.
        client = self._clients.get(fd)
        if client is not None and failed in NO_ROOM:
            self.queues.enqueue_all(client, messages)
        elif client is not None and failed == errno.EMSGSIZE:
            self._send_large(client, messages)
        else:
            # The peer has closed its side. The loop will report it too, after the last packets of the client are read.
            self._counters.dropped.add("client_gone", len(messages))

    def _send_large(self, client: Client, messages: list[bytes]) -> None:
        """Send again a packet that was too large for the client's socket: one message, or those of a batch."""
        fd = client.fd
        if enlarge_send_buffer(client):
            if fd in self._batched:
                self._send_batch((fd,), messages)
            else:
                self._send_packet((fd,), messages[0], None)
        elif len(messages) > 1:
            for message in messages:
                self._send_batch((fd,), [message])
        else:
            self.queues.drop(client, "too_big")

    # -- blocking publishers

    def may_block(self) -> bool:
        """Whether `blocking_client` is worth asking."""
        blockers = self.queues.blockers
        if not blockers:
            return False
        return self.due or not blockers.isdisjoint(self._waiting)

    def blocking_client(self, receivers: Iterable[int], size: int, publisher: Client) -> Client | None:
        """See `ClientQueues.blocking_client`."""
        if self.due and not self.queues.blockers.isdisjoint(receivers):
            # Whether there is room for more is known only once the gathered messages are sent.
            self.send_batches()
        return self.queues.blocking_client(receivers, size, publisher)
