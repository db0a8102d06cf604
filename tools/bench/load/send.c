/* send - one sender: BCCN1 datagrams over loopback, or what a publisher writes to a relay.
 * A message is as large on the wire as the datagram it is compared with, envelope included.
 *
 *   -P bccn|floor|seq|mqtt|redis|nats   bccn: signed datagrams; floor and seq: MSG packets
 *   -a ADDRESS -t PORT, or -u PATH      where to; addresses in 127.0.0.0/8 (127.0.0.1; 127.255.255.255 is its broadcast)
 *   -b FIRST -n N                       the index of the first message (0), and of the one behind the last
 *   -S SOURCES                          1 to 1,000,000, by turns (4)
 *   -C CHANNELS                         1 to 1,000,000 (16); -C N gives every message a channel of its own
 *   -R LENGTH                           messages in a row on one channel (1)
 *   -l                                  sources with long names (36 bytes) as hosts have them, not short ones (8)
 *   -z BYTES                            of the whole message (150)
 *   -r RATE                             a second; 0: as fast as window and receivers allow
 *   -w FILE -W SIZE                     the closed window, see window.h */
#include "peers.h"
#include "window.h"
#include <getopt.h>

#define BATCH 32 /* of one write, or sendmmsg */
#define ROOM 2048

struct plan {
	enum protocol protocol;
	uint64_t sources, channels, run;
	int size, long_names;
	struct hmac hmac;
};

/* Writes what stands before a payload of this length; returns its length. */
static int head(enum protocol p, char *out, const char *chan, int payload)
{
	int length = (int)strlen(chan);
	if (p <= SEQ)
		return sprintf(out, "MSG %s", chan) + 1;
	if (p == NATS)
		return sprintf(out, "PUB %s %d\r\n", chan, payload);
	if (p == REDIS)
		return sprintf(out, "*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%s\r\n$%d\r\n", length, chan, payload);
	int n = 0, rest = 2 + length + payload; /* MQTT: PUBLISH, QoS 0 */
	out[n++] = 0x30;
	if (rest > 127) {
		out[n++] = (char)((rest & 127) | 128);
		out[n++] = (char)(rest >> 7);
	} else
		out[n++] = (char)rest;
	out[n++] = 0;
	out[n++] = (char)length;
	memcpy(out + n, chan, (size_t)length);
	return n + length;
}

static char *make_datagram(const struct plan *p, char *out, const char *chan, uint64_t index)
{
	char body[ROOM];
	int source = (int)(index % p->sources), length;
	if (p->long_names)
		length = sprintf(body, "relay%02d.example/cardsys-relay/%07d", source % 50, source);
	else
		length = sprintf(body, "s%07d", source);
	length += sprintf(body + length, ":%llu:%s|", (unsigned long long)(1 + index / p->sources), chan);
	int payload = p->size - length - (int)strlen("BCCN1[123:hmac=0123456789abcdef]");
	if (payload < PAYLOAD_MIN)
		payload = PAYLOAD_MIN;
	put_payload(body + length, payload, now_ns(), index);
	return datagram_write(&p->hmac, out, body, (size_t)(length + payload));
}

/* Writes the message with this index; returns where it ends. */
static char *make(const struct plan *p, char *out, uint64_t index)
{
	char chan[32];
	int tail = p->protocol == REDIS || p->protocol == NATS ? 2 : 0, payload = p->size;
	sprintf(chan, p->protocol == NATS ? "bench.c%07d" : "bench/c%07d", (int)(index / p->run % p->channels));
	if (p->protocol == BCCN)
		return make_datagram(p, out, chan, index);
	payload = p->size - tail - head(p->protocol, out, chan, payload);
	payload = p->size - tail - head(p->protocol, out, chan, payload); /* now with fewer digits, if need be */
	out += head(p->protocol, out, chan, payload);
	put_payload(out, payload, now_ns(), index);
	memcpy(out + payload, "\r\n", (size_t)tail);
	return out + payload + tail;
}

static void send_packets(int fd, struct mmsghdr *m, int n)
{
	for (int done = 0; done < n;) {
		int r = sendmmsg(fd, m + done, (unsigned)(n - done), 0);
		if (r > 0)
			done += r;
		else if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
			die("sendmmsg");
	}
}

int main(int argc, char **argv)
{
	struct plan plan = {.sources = 4, .channels = 16, .run = 1, .size = 150};
	struct sender s = {.batch = BATCH, .total = 100000};
	const char *address = "127.0.0.1", *path = NULL;
	int port = 0, option;
	while ((option = getopt(argc, argv, "P:a:u:t:b:n:S:C:R:lz:r:w:W:")) != -1)
		switch (option) {
		case 'P': plan.protocol = protocol_of(optarg); break;
		case 'a': address = optarg; break;
		case 'u': path = optarg; break;
		case 't': port = (int)number(optarg); break;
		case 'b': s.first = number(optarg); break;
		case 'n': s.total = number(optarg); break;
		case 'S': plan.sources = number(optarg); break;
		case 'C': plan.channels = number(optarg); break;
		case 'R': plan.run = number(optarg); break;
		case 'l': plan.long_names = 1; break;
		case 'z': plan.size = (int)number(optarg); break;
		case 'r': s.rate = number(optarg); break;
		case 'w': s.window = window_open(optarg); break;
		case 'W': s.size = number(optarg); break;
		default: return 2;
		}
	static char out[BATCH * ROOM], answers[65536];
	struct mmsghdr m[BATCH];
	struct iovec v[BATCH];
	int fd = plan.protocol == BCCN ? udp_sender(address, port) : connect_to(plan.protocol, path, port);
	hmac_init(&plan.hmac);
	greet(plan.protocol, fd, 9999);
	lay_out(m, v, out, ROOM, BATCH);
	sender_start(&s);
	while (s.sent < s.total) {
		int n = (int)sender_room(&s);
		char *end = out;
		for (int i = 0; i < n; i++) {
			v[i].iov_base = end;
			end = make(&plan, end, s.sent + (uint64_t)i);
			v[i].iov_len = (size_t)(end - (char *)v[i].iov_base);
		}
		if (plan.protocol <= SEQ)
			send_packets(fd, m, n);
		else
			write_all(fd, out, (size_t)(end - out));
		while (plan.protocol > SEQ && recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0) /* of redis */
			;
		s.sent += (uint64_t)n;
	}
	sender_finish(&s);
	return 0;
}
