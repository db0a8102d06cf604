/* floor - the least that a relay can do: recvmmsg, the sum of each datagram, and send() of each message to each of F
 * clients. No rule, pattern, number or name is looked at. Whatever passes a packet to each client pays at least this to
 * the kernel, so a relay's cost is told as a multiple of it.
 *
 *   -p PORT -u PATH  the UDP port on loopback, and the SEQPACKET socket of the clients
 *   -F CLIENTS       it begins when so many have connected
 *   -b               one packet for a client has all that recvmmsg gave
 *   -s               each datagram to one client only: the one with the number of its channel, mod F
 *   -e               waits in epoll_wait and receives without waiting, as whatever has several sockets must
 *   -P               publishing, with epoll: one more client connects, which publishes MSG packets. Each of them goes to
 *                    the clients, and as a signed datagram to the broadcast address, where it is received and verified
 * Says "ready" when it listens; SIGTERM ends it. */
#include "message.h"
#include <getopt.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/un.h>

#define MAX_CLIENTS 1024
#define BATCH 64 /* of one recvmmsg */
#define ROOM 2048

static char taken[BATCH][ROOM], joined[BATCH * ROOM];
static int clients[MAX_CLIENTS + 1], n = 1, join, share, publisher, out;
static struct hmac key;

static void give_one(int client, const char *packet, size_t length)
{
	send(client, packet, length, MSG_DONTWAIT | MSG_NOSIGNAL); /* who is full loses it; drain sees that */
}

static void give(const char *packet, size_t length)
{
	for (int i = 0; i < n; i++)
		give_one(clients[i], packet, length);
}

/* Passes on a MSG packet, and broadcasts its datagram. */
static void publish(const char *packet, size_t length)
{
	static uint64_t seq = 1700000000000000ull;
	static char body[ROOM + 64], datagram[ROOM + 256];
	const char *chan = packet + 4, *nul = length < 5 ? NULL : memchr(chan, 0, length - 4);
	if (!nul)
		return;
	size_t head = (size_t)sprintf(body, "bench/pub/12345:%llu:%s|", (unsigned long long)++seq, chan);
	size_t payload = (size_t)(packet + length - nul - 1);
	memcpy(body + head, nul + 1, payload);
	char *end = datagram_write(&key, datagram, body, head + payload);
	give(packet, length);
	send(out, datagram, (size_t)(end - datagram), 0);
}

static void pass_on(const struct mmsghdr *m, int count)
{
	size_t length = 0;
	for (int i = 0; i < count; i++) {
		struct datagram d = {0};
		const char *p = taken[i], *end = p + m[i].msg_len;
		if (!(share ? datagram_read(p, end, &d) : datagram_open(p, end, &d)) || !datagram_is_signed(&key, &d))
			continue;
		if (join) {
			memcpy(joined + length, p, m[i].msg_len);
			length += m[i].msg_len;
		} else if (share)
			give_one(clients[get_digits(d.chan + d.chan_length - 7, 7) % (uint64_t)n], p, m[i].msg_len);
		else if (!publisher)
			give(p, m[i].msg_len);
	}
	if (length)
		give(joined, length);
}

static void watch(int loop, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event))
		die("epoll_ctl");
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	int port = 0, publishing = 0, loop = -1, option;
	while ((option = getopt(argc, argv, "p:u:F:bseP")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg); break;
		case 'u': path = optarg; break;
		case 'F': n = (int)number(optarg); break;
		case 'b': join = 1; break;
		case 's': share = 1; break;
		case 'P': publishing = 1; /* fall through */
		case 'e': loop = epoll_create1(EPOLL_CLOEXEC); break;
		default: return 2;
		}
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	if (!port || !path || strlen(path) >= sizeof at.sun_path)
		refuse("-p PORT -u PATH: where?");
	strcpy(at.sun_path, path);
	hmac_init(&key);
	int in = udp_listen(publishing ? "127.255.255.255" : "127.0.0.1", port);
	int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, MAX_CLIENTS))
		die(path);
	say_ready();
	for (int i = 0; i < n + publishing; i++)
		if ((clients[i] = accept(door, NULL, NULL)) < 0)
			die("accept");
	if (loop >= 0)
		watch(loop, in);
	if (publishing) {
		watch(loop, publisher = clients[n]);
		out = udp_sender("127.255.255.255", port);
	}

	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	lay_out(m, v, taken[0], ROOM, BATCH);
	for (;;) {
		struct epoll_event event[2] = {{.data.fd = in}};
		int ready = loop >= 0 ? epoll_wait(loop, event, 2, -1) : 1;
		for (int e = 0; e < ready; e++) {
			int fd = event[e].data.fd;
			int r = recvmmsg(fd, m, BATCH, loop >= 0 ? MSG_DONTWAIT : MSG_WAITFORONE, NULL);
			if (fd != publisher)
				pass_on(m, r);
			else if (r <= 0 || !m[0].msg_len)
				epoll_ctl(loop, EPOLL_CTL_DEL, fd, NULL);
			else
				for (int i = 0; i < r; i++)
					publish(taken[i], m[i].msg_len);
		}
	}
}
