/* peers.h - the least of each protocol that a publisher and a subscriber need.
 * What is asked of a relay is known to be done before anything is measured: each of them is made to answer, but
 * the floor, of which nothing is asked. */
#ifndef PEERS_H
#define PEERS_H

#include "message.h"
#include <netinet/tcp.h>
#include <sys/un.h>

enum protocol { BCCN, FLOOR, SEQ, MQTT, REDIS, NATS };

static inline enum protocol protocol_of(const char *name)
{
	static const char *const names[] = {"bccn", "floor", "seq", "mqtt", "redis", "nats"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (!strcmp(name, names[i]))
			return (enum protocol)i;
	refuse("-P: bccn, floor, seq, mqtt, redis or nats");
	return BCCN;
}

static inline void write_all(int fd, const void *data, size_t n)
{
	for (const char *p = data; n;) {
		ssize_t r = write(fd, p, n);
		if (r < 0 && errno != EINTR && errno != EAGAIN)
			die("write");
		if (r > 0) {
			p += r;
			n -= (size_t)r;
		}
	}
}

/* Reads one byte at a time, so that nothing of what follows is taken, until `text` has come. */
static inline void read_until(int fd, const char *text)
{
	char got[1024] = "";
	size_t n = 0, length = strlen(text);
	while (n < length || memcmp(got + n - length, text, length)) {
		if (n == sizeof got - 1) {
			memmove(got, got + n / 2, n - n / 2);
			n -= n / 2;
		}
		if (recv(fd, got + n++, 1, 0) != 1)
			die("the relay has not answered");
	}
}

static inline void read_exactly(int fd, char *out, size_t n)
{
	if (recv(fd, out, n, MSG_WAITALL) != (ssize_t)n)
		die("the relay has not answered");
}

/* a Unix socket's path, or a TCP port on 127.0.0.1 */
static inline int connect_to(enum protocol p, const char *path, int port)
{
	int fd, one = 1;
	if (port) {
		struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			die("connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	} else {
		struct sockaddr_un a = {.sun_family = AF_UNIX};
		if (!path || strlen(path) >= sizeof a.sun_path)
			refuse("-u PATH or -t PORT: where to?");
		strcpy(a.sun_path, path);
		fd = socket(AF_UNIX, (p <= SEQ ? SOCK_SEQPACKET : SOCK_STREAM) | SOCK_CLOEXEC, 0);
		if (connect(fd, (struct sockaddr *)&a, sizeof a))
			die(path);
	}
	return fd;
}

static inline void greet(enum protocol p, int fd, int id)
{
	static const char nats[] = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n";
	char b[128];
	if (p == MQTT) { /* CONNECT, MQTT 3.1.1, clean session; CONNACK */
		int n = 0, length = sprintf(b + 14, "m%d-%d", (int)getpid(), id);
		b[n++] = 0x10;
		b[n++] = (char)(12 + length);
		memcpy(b + n, "\0\4MQTT\4\2\0\0\0", 11);
		b[13] = (char)length;
		write_all(fd, b, 14 + (size_t)length);
		read_exactly(fd, b, 4);
	} else if (p == NATS) {
		read_until(fd, "\r\n");
		write_all(fd, nats, sizeof nats - 1);
		read_until(fd, "PONG\r\n");
	}
}

static inline void packet(int fd, const char *frame, size_t n)
{
	if (send(fd, frame, n, 0) != (ssize_t)n)
		die("send");
}

static inline void subscribe(enum protocol p, int fd, const char *pattern)
{
	char b[512];
	int n, length = (int)strlen(pattern);
	if (p == SEQ) {
		packet(fd, b, (size_t)sprintf(b, "SUB %s", pattern));
	} else if (p == MQTT) { /* SUBSCRIBE, QoS 0; SUBACK */
		n = sprintf(b, "%c%c%c%c%c%c", 0x82, 5 + length, 0, 1, 0, length);
		memcpy(b + n, pattern, (size_t)length);
		b[n + length] = 0;
		write_all(fd, b, (size_t)(n + length + 1));
		read_exactly(fd, b, 5);
	} else if (p == REDIS) {
		n = sprintf(b, "*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n", length, pattern);
		write_all(fd, b, (size_t)n);
		read_until(fd, "\r\n:");
		read_until(fd, "\r\n");
	} else if (p == NATS) {
		n = sprintf(b, "SUB %s 1\r\nPING\r\n", pattern);
		write_all(fd, b, (size_t)n);
		read_until(fd, "PONG\r\n");
	}
}

/* Waits until bccnd has done everything that was asked; what it refuses ends us. */
static inline void settle(enum protocol p, int fd)
{
	char b[4096];
	if (p != SEQ)
		return;
	packet(fd, "CMSG !/bccn/sync", strlen("CMSG !/bccn/sync"));
	for (;;) {
		ssize_t n = recv(fd, b, sizeof b - 1, 0);
		if (n <= 0)
			die("the relay has not answered");
		b[n] = 0;
		if (!strcmp(b, "CMSG !/bccn/sync"))
			return;
		if (!strcmp(b, "CMSG !/bccn/error")) {
			fprintf(stderr, "the relay refuses: %s\n", b + strlen(b) + 1);
			exit(2);
		}
	}
}
#endif
