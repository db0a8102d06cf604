/* publish_floor - the least that a relay of local publications can do: recvmmsg of the publisher's MSG packets, a signed
 * BCCN1 datagram of each, sent by broadcast, the packet itself to each of F clients, and its own broadcasts received and
 * verified. No access rule, no pattern and no number is looked at.
 *
 *   -p PORT -u PATH  the UDP port of the segment on loopback, and the SEQPACKET socket of clients and publisher
 *   -F CLIENTS       so many connect first; the next one publishes
 * Says "ready" when it listens; SIGTERM ends it. */
#include "message.h"
#include <getopt.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/un.h>

#define MAX_CLIENTS 1024
#define BATCH 64 /* of one recvmmsg */
#define ROOM 2048

static volatile sig_atomic_t ended;

static void on_term(int number)
{
	(void)number;
	ended = 1;
}

static char taken[BATCH][ROOM];
static struct hmac key;

/* Writes the datagram of a MSG packet; returns its length, 0 if it is none. */
static size_t make(char *out, const char *packet, size_t length, uint64_t seq)
{
	const char *chan = packet + 4, *end = packet + length, *nul;
	char body[ROOM + 64];
	unsigned char mac[32];
	if (length < 5 || memcmp(packet, "MSG ", 4) || !(nul = memchr(chan, 0, length - 4)))
		return 0;
	size_t n = (size_t)sprintf(body, "bench/pub/12345:%llu:%s|", (unsigned long long)seq, chan);
	memcpy(body + n, nul + 1, (size_t)(end - nul - 1));
	n += (size_t)(end - nul - 1);
	hmac(&key, body, n, mac);
	size_t h = (size_t)sprintf(out, "BCCN1[%zu:hmac=", n);
	for (int i = 0; i < 8; i++) {
		out[h++] = "0123456789abcdef"[mac[i] >> 4];
		out[h++] = "0123456789abcdef"[mac[i] & 15];
	}
	out[h++] = ']';
	memcpy(out + h, body, n);
	return h + n;
}

static int broadcaster(int port)
{
	struct sockaddr_in to = loopback("127.255.255.255", port);
	int one = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
	if (connect(fd, (struct sockaddr *)&to, sizeof to))
		die("connect");
	return fd;
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
	int port = 0, n = 1, option, clients[MAX_CLIENTS + 1];
	while ((option = getopt(argc, argv, "p:u:F:")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'u': path = optarg; break;
		case 'F': n = (int)number(optarg, 1, MAX_CLIENTS, "-F"); break;
		default: return 2;
		}
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	if (!port || !path || strlen(path) >= sizeof at.sun_path)
		refuse("-p PORT -u PATH: where?");
	strcpy(at.sun_path, path);
	struct sigaction action = {.sa_handler = on_term};
	sigaction(SIGTERM, &action, NULL);
	hmac_init(&key);
	int in = udp_listen("127.255.255.255", port), out = broadcaster(port);
	int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), loop = epoll_create1(EPOLL_CLOEXEC);
	unlink(path);
	if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, MAX_CLIENTS))
		die(path);
	say_ready();
	for (int i = 0; i <= n; i++)
		if ((clients[i] = accept(door, NULL, NULL)) < 0)
			return ended ? 0 : 2;
	int publisher = clients[n];
	watch(loop, in);
	watch(loop, publisher);

	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	static char datagram[ROOM + 256];
	uint64_t seq = 1700000000000000ull;
	lay_out(m, v, taken[0], ROOM, BATCH);
	while (!ended) {
		struct epoll_event event[2];
		int ready = epoll_wait(loop, event, 2, -1);
		for (int e = 0; e < ready; e++) {
			int fd = event[e].data.fd, r = recvmmsg(fd, m, BATCH, MSG_DONTWAIT, NULL);
			if (fd == publisher && (r == 0 || (r > 0 && !m[0].msg_len)))
				epoll_ctl(loop, EPOLL_CTL_DEL, fd, NULL);
			for (int i = 0; i < r; i++) {
				struct datagram d;
				const char *packet = taken[i];
				size_t length = m[i].msg_len, made;
				if (fd == in) {
					if (!datagram_open(packet, packet + length, &d) || !datagram_is_signed(&key, &d))
						refuse("a datagram of its own has a wrong sum");
				} else if ((made = make(datagram, packet, length, ++seq))) {
					for (int f = 0; f < n; f++) /* who is full loses it; drain sees that */
						send(clients[f], packet, length, MSG_DONTWAIT | MSG_NOSIGNAL);
					send(out, datagram, made, 0);
				}
			}
		}
	}
	return 0;
}
