/* pub - one local publisher: the same window, pace, sizes and payloads as flood, over the protocol of each relay.
 * A message is as large on the wire as the datagram it is compared with, envelope included.
 *
 *   -P floor|seq|mqtt|redis|nats  -u PATH or -t PORT (127.0.0.1); floor and seq: MSG packets
 *   -n N -C CHANNELS -z BYTES -r RATE -w FILE -W SIZE -T (stamped): as with flood */
#include "message.h"
#include "peers.h"
#include "window.h"
#include <getopt.h>

#define BATCH 32 /* of one write, or sendmmsg */
#define ROOM 2048

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

static char *make(enum protocol p, char *out, int size, uint64_t index, uint64_t channels, uint64_t stamp)
{
	char chan[32];
	int tail = p == REDIS || p == NATS ? 2 : 0, payload = size;
	sprintf(chan, p == NATS ? "bench.c%07d" : "bench/c%07d", (int)(index % channels));
	payload = size - tail - head(p, out, chan, size); /* the second time with fewer digits, if need be */
	payload = size - tail - head(p, out, chan, payload);
	out += head(p, out, chan, payload);
	put_payload(out, payload, stamp, index);
	memcpy(out + payload, "\r\n", (size_t)tail);
	return out + payload + tail;
}

/* A packet each. */
static void send_packets(int fd, char *packets, size_t size, int count)
{
	struct mmsghdr m[BATCH];
	struct iovec v[BATCH];
	lay_out(m, v, packets, size, count);
	for (int done = 0, r; done < count; done += r)
		if ((r = sendmmsg(fd, m + done, (unsigned)(count - done), 0)) < 0)
			die("sendmmsg");
}

int main(int argc, char **argv)
{
	enum protocol p = FLOOR;
	struct sender s = {.batch = BATCH, .total = 100000};
	const char *path = NULL;
	int port = 0, size = 150, stamped = 0, option;
	uint64_t channels = 16;
	while ((option = getopt(argc, argv, "P:u:t:n:C:z:r:w:W:T")) != -1)
		switch (option) {
		case 'P': p = protocol_of(optarg); break;
		case 'u': path = optarg; break;
		case 't': port = (int)number(optarg, 1, 65535, "-t"); break;
		case 'n': s.total = number(optarg, 1, PAYLOAD_INDEX_MAX, "-n"); break;
		case 'C': channels = number(optarg, 1, 1000000, "-C"); break;
		case 'z': size = (int)number(optarg, SIZE_LEAST, SIZE_MOST, "-z"); break;
		case 'r': s.rate = number(optarg, 0, 10000000, "-r"); break;
		case 'w': s.window = window_open(optarg); break;
		case 'W': s.size = number(optarg, 1, UINT32_MAX, "-W"); break;
		case 'T': stamped = 1; break;
		default: return 2;
		}
	static char out[BATCH * ROOM], answers[65536];
	int fd = connect_to(p, path, port);
	greet(p, fd, 9999);
	sender_start(&s);
	uint64_t cpu = cpu_ns();
	while (s.sent < s.total) {
		uint64_t n = sender_room(&s);
		char *end = out;
		for (uint64_t i = 0; i < n; i++)
			end = make(p, end, size, s.sent + i, channels, stamped ? now_ns() : 0);
		if (p <= SEQ)
			send_packets(fd, out, (size_t)size, (int)n);
		else
			write_all(fd, out, (size_t)(end - out));
		while (recv(fd, answers, sizeof answers, MSG_DONTWAIT) > 0) /* of redis; a PING of nats can wait so long */
			;
		s.sent += n;
	}
	cpu = cpu_ns() - cpu;
	/* Stay until all has arrived, 2 s at most: the end of a connection could cut a stream short. */
	for (int i = 0; s.window && i < 200 && window_done(s.window) < s.total; i++)
		usleep(10000);
	sender_report(&s, "pub", cpu);
	return 0;
}
