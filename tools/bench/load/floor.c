/* floor - the least that a relay can do: recvmmsg on a UDP port, send() of each datagram to each of F clients.
 * No pattern, no number, no name is looked at. Whatever hands a packet to each client pays at least this to the
 * kernel, so a relay's cost is told as a multiple of it.
 *
 *   -p PORT -u PATH  where from, and the SEQPACKET socket of the clients
 *   -F CLIENTS       it begins when so many have connected
 *   -m CHECK         none; hmac: over each datagram, with the key's blocks hashed beforehand
 *   -x PACKETS       each: one per client and datagram; batch: one per client with all that recvmmsg gave
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

static volatile sig_atomic_t ended;

static void on_term(int number)
{
	(void)number;
	ended = 1;
}

static char taken[BATCH][ROOM], joined[BATCH * ROOM];
static int clients[MAX_CLIENTS];

static void give_one(int client, const char *packet, size_t length)
{
	send(client, packet, length, MSG_DONTWAIT | MSG_NOSIGNAL); /* who is full loses it; drain sees that */
}

static void give(int n, const char *packet, size_t length)
{
	for (int i = 0; i < n; i++)
		give_one(clients[i], packet, length);
}

int main(int argc, char **argv)
{
	const char *path = NULL;
	int port = 0, n = 1, check = 0, join = 0, share = 0, loop = -1, option;
	while ((option = getopt(argc, argv, "p:u:F:m:x:se")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'u': path = optarg; break;
		case 'F': n = (int)number(optarg, 1, MAX_CLIENTS, "-F"); break;
		case 'm': check = !strcmp(optarg, "hmac"); break;
		case 'x': join = !strcmp(optarg, "batch"); break;
		case 's': share = 1; break;
		case 'e':
			if ((loop = epoll_create1(EPOLL_CLOEXEC)) < 0)
				die("epoll_create1");
			break;
		default: return 2;
		}
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	if (!port || !path || strlen(path) >= sizeof at.sun_path)
		refuse("-p PORT -u PATH: where?");
	strcpy(at.sun_path, path);
	struct sigaction action = {.sa_handler = on_term};
	sigaction(SIGTERM, &action, NULL);
	int in = udp_listen("127.0.0.1", port), door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(path);
	if (bind(door, (struct sockaddr *)&at, sizeof at) || listen(door, MAX_CLIENTS))
		die(path);
	say_ready();
	for (int i = 0; i < n; i++)
		if ((clients[i] = accept(door, NULL, NULL)) < 0)
			return ended ? 0 : 2;

	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	struct hmac hmac;
	hmac_init(&hmac);
	lay_out(m, v, taken[0], ROOM, BATCH);
	struct epoll_event event = {.events = EPOLLIN};
	if (loop >= 0 && epoll_ctl(loop, EPOLL_CTL_ADD, in, &event))
		die("epoll_ctl");
	while (!ended) {
		size_t length = 0;
		if (loop >= 0 && epoll_wait(loop, &event, 1, -1) <= 0)
			continue;
		int r = recvmmsg(in, m, BATCH, loop >= 0 ? MSG_DONTWAIT : MSG_WAITFORONE, NULL);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			die("recvmmsg");
		for (int i = 0; i < r; i++) {
			struct datagram d;
			const char *p = taken[i], *end = p + m[i].msg_len;
			if ((check || share) && !(share ? datagram_read(p, end, &d) : datagram_open(p, end, &d)))
				continue;
			if (check && !datagram_is_signed(&hmac, &d))
				continue;
			if (join) {
				memcpy(joined + length, taken[i], m[i].msg_len);
				length += m[i].msg_len;
			} else if (share)
				give_one(clients[get_digits(d.chan + d.chan_length - 7, 7) % (uint64_t)n], p, m[i].msg_len);
			else
				give(n, p, m[i].msg_len);
		}
		if (length)
			give(n, joined, length);
	}
	return 0;
}
