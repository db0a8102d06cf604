/* speaker - publishes numbered messages at a steady pace: over the bus, or as BCCN datagrams of a host without a daemon.
 * What is not sent is not counted; a send that has to wait waits, and what was due meanwhile is made up for.
 *
 *   -i ID         the publisher, 0 to 15; the channel is load/ID
 *   -r RATE       messages a second (1000)
 *   -n N          so many, then the end; else at SIGTERM
 *   -z BYTES      of a payload (100)
 *   -s PATH       over the bus
 *   -a ADDRESS -p PORT -c NAME      or as datagrams of NAME to a broadcast address (5400)
 *   -k FILE       their key; of several the first, and at SIGUSR1 the next one
 * Says "ready", and at the end a line of JSON: how many were accepted by the kernel, how many the daemon refused, how
 * often it told of a gap, and for how long the longest one had to wait. Over the bus, the end is when the daemon has worked
 * through all of it. */
#include "numbered.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <sys/prctl.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define KEYS 4
#define DATAGRAM_MOST 1472

struct hmac {
	SHA256_CTX inner, outer;
};

static void hmac_init(struct hmac *h, const char *file)
{
	unsigned char key[64] = {0}, block[64];
	int fd = open(file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, key, sizeof key);
	if (n <= 0)
		die(file);
	while (n && (key[n - 1] == '\n' || key[n - 1] == '\r'))
		key[--n] = 0;
	close(fd);
	for (int i = 0; i < 64; i++)
		block[i] = key[i] ^ 0x36;
	SHA256_Init(&h->inner);
	SHA256_Update(&h->inner, block, 64);
	for (int i = 0; i < 64; i++)
		block[i] = key[i] ^ 0x5c;
	SHA256_Init(&h->outer);
	SHA256_Update(&h->outer, block, 64);
}

static void hmac(const struct hmac *h, const void *data, size_t n, unsigned char out[32])
{
	SHA256_CTX c = h->inner;
	SHA256_Update(&c, data, n);
	SHA256_Final(out, &c);
	c = h->outer;
	SHA256_Update(&c, out, 32);
	SHA256_Final(out, &c);
}

/* BCCN1[<length>:hmac=<16 hex>]<src>:<seq>:<chan>|<payload>; returns its length */
static int datagram(char *out, const struct hmac *key, const char *src, int id, uint64_t index, int size)
{
	char body[DATAGRAM_MOST];
	int length = snprintf(body, sizeof body, "%s:%llu:load/%d|", src, (unsigned long long)index, id), head;
	put_payload(body + length, size, id, index);
	length += size;
	head = sprintf(out, "BCCN1[%d", length);
	if (key) {
		unsigned char mac[32];
		hmac(key, body, (size_t)length, mac);
		head += sprintf(out + head, ":hmac=");
		for (int i = 0; i < 8; i++)
			head += sprintf(out + head, "%02x", mac[i]);
	}
	out[head++] = ']';
	memcpy(out + head, body, (size_t)length);
	return head + length;
}

static int frame(char *out, int id, uint64_t index, int size)
{
	int head = sprintf(out, "MSG load/%d", id) + 1;
	put_payload(out + head, size, id, index);
	return head + size;
}

/* Sleeps until the message with this index is due; less, if asked to end. */
static void pace(uint64_t start, uint64_t index, uint64_t rate)
{
	uint64_t at = start + index * 1000000000ull / rate;
	struct timespec t = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)};
	while (!asked_to_end && !asked_by_usr1 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
}

int main(int argc, char **argv)
{
	const char *path = NULL, *address = NULL, *src = "far/speaker/1", *files[KEYS];
	int id = 0, port = 5400, size = 100, keys = 0, key = 0, option, ended = 0;
	uint64_t rate = 1000, most = NUMBER_MOST, sent = 0, refused = 0, told = 0, again = 0, longest = 0;
	while ((option = getopt(argc, argv, "i:r:n:z:s:a:p:c:k:")) != -1)
		switch (option) {
		case 'i': id = (int)number(optarg, 0, PUBLISHERS - 1, "-i"); break;
		case 'r': rate = number(optarg, 1, 1000000, "-r"); break;
		case 'n': most = number(optarg, 1, NUMBER_MOST, "-n"); break;
		case 'z': size = (int)number(optarg, PAYLOAD_LEAST, 1000, "-z"); break;
		case 's': path = optarg; break;
		case 'a': address = optarg; break;
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'c': src = optarg; break;
		case 'k':
			if (keys == KEYS)
				refuse("-k: too many keys");
			files[keys++] = optarg;
			break;
		default: return 2;
		}
	if (!path == !address || strlen(src) > 200)
		refuse("-s PATH or -a ADDRESS: where to?");
	struct hmac hmacs[KEYS];
	for (int i = 0; i < keys; i++)
		hmac_init(&hmacs[i], files[i]);
	take_signals();
	int fd;
	if (path)
		fd = bus_connect(path);
	else {
		struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		int one = 1;
		fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
		if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(fd, (struct sockaddr *)&to, sizeof to))
			die(address);
	}
	prctl(PR_SET_TIMERSLACK, 1);
	say_ready();
	char out[2048];
	uint64_t start = now_ns();
	while (sent < most && !asked_to_end) {
		pace(start, sent, rate);
		if (asked_by_usr1) {
			asked_by_usr1 = 0;
			if (key + 1 < keys)
				key++;
			continue;
		}
		int length = path ? frame(out, id, sent + 1, size)
				  : datagram(out, keys ? &hmacs[key] : NULL, src, id, sent + 1, size);
		uint64_t before = now_ns(), took;
		ssize_t n = send(fd, out, (size_t)length, MSG_NOSIGNAL);
		if ((took = now_ns() - before) > longest)
			longest = took;
		if (n == length)
			sent++;
		else if (errno == ENOBUFS || errno == EAGAIN || errno == ECONNREFUSED) {
			again++;
			usleep(1000);
		} else if (errno != EINTR) {
			ended = errno;
			break;
		}
	}
	if (path && !ended) {
		struct timeval patience = {20, 0};
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
		if (send(fd, SYNC, strlen(SYNC), MSG_NOSIGNAL) < 0)
			ended = errno;
		while (!ended) {
			ssize_t n = recv(fd, out, sizeof out, 0);
			if (n < 0 && errno == EINTR)
				continue;
			if (n <= 0)
				ended = n ? errno : EPIPE;
			else if (is_control(out, out + n, "!/bccn/sync"))
				break;
			else if (is_control(out, out + n, "!/bccn/gap"))
				told++;
			else
				refused++;
		}
	}
	printf("{\"id\":%d,\"sent\":%llu,\"refused\":%llu,\"told\":%llu,\"again\":%llu,\"longest_ms\":%llu,\"ended\":\"%s\",\"seconds\":%.3f}\n",
	       id, (unsigned long long)sent, (unsigned long long)refused, (unsigned long long)told,
	       (unsigned long long)again, (unsigned long long)longest / 1000000, ended ? strerror(ended) : "", (double)(now_ns() - start) / 1e9);
	return 0;
}
