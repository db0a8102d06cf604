/* floor - the least that a relay can do: recvmmsg, the sum of each datagram, and send() of each message to each of F
 * clients. No rule, pattern, number or name is looked at. Whatever passes a packet to each client pays at least this to
 * the kernel, so a relay's cost is told as a multiple of it.
 *
 *   -p PORT -u PATH  the UDP port on loopback, and the SEQPACKET socket of the clients
 *   -F CLIENTS       it begins when so many have connected
 *   -b               one packet for a client has all that recvmmsg gave
 *   -s               each datagram to one client only: the one with the number of its channel, mod F
 *   -e               waits in epoll_wait and receives without waiting, as whatever has several sockets must
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
static int clients[MAX_CLIENTS], n = 1, join, share;
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
		else
			give(p, m[i].msg_len);
	}
	if (length)
		give(joined, length);
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	int port = 0, loop = -1, option;
	while ((option = getopt(argc, argv, "p:u:F:bse")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'u': path = optarg; break;
		case 'F': n = (int)number(optarg, 1, MAX_CLIENTS, "-F"); break;
		case 'b': join = 1; break;
		case 's': share = 1; break;
		case 'e': loop = epoll_create1(EPOLL_CLOEXEC); break;
		default: return 2;
		}
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	if (!port || !path || strlen(path) >= sizeof at.sun_path)
		refuse("-p PORT -u PATH: where?");
	strcpy(at.sun_path, path);
	hmac_init(&key);
	int in = udp_listen("127.0.0.1", port);
	int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, MAX_CLIENTS))
		die(path);
	say_ready();
	for (int i = 0; i < n; i++)
		if ((clients[i] = accept(door, NULL, NULL)) < 0)
			die("accept");
	struct epoll_event event = {.events = EPOLLIN};
	if (loop >= 0 && epoll_ctl(loop, EPOLL_CTL_ADD, in, &event))
		die("epoll_ctl");

	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	lay_out(m, v, taken[0], ROOM, BATCH);
	for (;;) {
		if (loop >= 0)
			epoll_wait(loop, &event, 1, -1);
		pass_on(m, recvmmsg(in, m, BATCH, loop >= 0 ? MSG_DONTWAIT : MSG_WAITFORONE, NULL));
	}
}
