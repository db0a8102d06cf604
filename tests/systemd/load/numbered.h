/* numbered.h - the numbered payload of the load programs of the booted tests, and who has seen which number.
 * A payload names its publisher and its number, P<3 digits>#<9 digits>, numbers beginning with 1 and leaving none
 * out; so whoever receives can tell what is missing, doubled or out of order without knowing anything else. */
#ifndef NUMBERED_H
#define NUMBERED_H

#include "../../../tools/bench/load/common.h"
#include <signal.h>
#include <sys/un.h>

#define PUBLISHERS 16
#define PAYLOAD_LEAST 14 /* P000#000000000 */
#define NUMBER_MOST 999999999
#define PACKET_MOST (1 << 19) /* more than the bus ever sends in one piece */

static inline void put_digits(char *p, uint64_t v, int n)
{
	while (n--) {
		p[n] = (char)('0' + v % 10);
		v /= 10;
	}
}

static inline void put_payload(char *p, int length, int publisher, uint64_t index)
{
	p[0] = 'P';
	put_digits(p + 1, (uint64_t)publisher, 3);
	p[4] = '#';
	put_digits(p + 5, index, 9);
	memset(p + PAYLOAD_LEAST, 'x', (size_t)(length - PAYLOAD_LEAST));
}

/* Reads what put_payload wrote; 0 if it is something else. */
static inline int get_payload(const char *p, const char *end, int *publisher, uint64_t *index)
{
	uint64_t id = 0, value = 0;
	if (end - p < PAYLOAD_LEAST || p[0] != 'P' || p[4] != '#')
		return 0;
	for (int i = 1; i < PAYLOAD_LEAST; i++) {
		if (i == 4)
			continue;
		if (p[i] < '0' || p[i] > '9')
			return 0;
		if (i < 4)
			id = id * 10 + (uint64_t)(p[i] - '0');
		else
			value = value * 10 + (uint64_t)(p[i] - '0');
	}
	*publisher = (int)id;
	*index = value;
	return id < PUBLISHERS && value > 0;
}

/* ---- which numbers were seen, and how often more than once ---- */
struct seen {
	uint8_t *bits;
	uint64_t room, last, count, doubled, disordered;
};

/* Takes note of a number; returns how many were left out just now, if it is the highest so far. */
static inline uint64_t seen_add(struct seen *s, uint64_t index)
{
	uint64_t hole = 0;
	if (index >= s->room) {
		uint64_t room = s->room ? s->room : 8192;
		while (room <= index)
			room *= 2;
		if (!(s->bits = realloc(s->bits, room / 8)))
			die("realloc");
		memset(s->bits + s->room / 8, 0, (room - s->room) / 8);
		s->room = room;
	}
	if (s->bits[index / 8] & 1 << index % 8) {
		s->doubled++;
		return 0;
	}
	s->bits[index / 8] |= (uint8_t)(1 << index % 8);
	s->count++;
	if (index < s->last)
		s->disordered++;
	else {
		hole = index - s->last - 1;
		s->last = index;
	}
	return hole;
}

/* Prints the numbers up to `last` that were not seen, as JSON: [[first, last], ...] */
static inline void seen_print_missing(const struct seen *s, uint64_t last)
{
	const char *comma = "";
	putchar('[');
	for (uint64_t i = 1; i <= last; i++) {
		uint64_t first = i;
		while (i <= last && !(i < s->room && s->bits[i / 8] & 1 << i % 8))
			i++;
		if (i > first) {
			printf("%s[%llu,%llu]", comma, (unsigned long long)first, (unsigned long long)i - 1);
			comma = ",";
		}
	}
	putchar(']');
}

/* ---- the bus ---- */
static inline int bus_connect(const char *path)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (strlen(path) >= sizeof to.sun_path)
		refuse("-s: the path is too long");
	strcpy(to.sun_path, path);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
		die(path);
	return fd;
}

static inline void bus_send(int fd, const char *frame, size_t length)
{
	if (send(fd, frame, length, MSG_NOSIGNAL) != (ssize_t)length)
		die("send");
}

#define SYNC "CMSG !/bccn/sync"
static inline int is_control(const char *p, const char *end, const char *key)
{
	size_t n = strlen(key);
	return (size_t)(end - p) >= 5 + n && !memcmp(p, "CMSG ", 5) && !memcmp(p + 5, key, n) &&
	       (p + 5 + n == end || !p[5 + n]);
}

/* ---- signals: asked for, and looked at between two messages ---- */
static volatile sig_atomic_t asked_to_end, asked_by_usr1;

static inline void on_signal(int which)
{
	if (which == SIGUSR1)
		asked_by_usr1 = 1;
	else
		asked_to_end = 1;
}

static inline void take_signals(void)
{
	struct sigaction act = {.sa_handler = on_signal}; /* no SA_RESTART: a send that waits is to look */
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGUSR1, &act, NULL);
	signal(SIGPIPE, SIG_IGN);
}
#endif
