/* witness - many programs of one host in one process: connections to the bus that take note of all they are told.
 * Every message is noted by connection, publisher and number; an end of file, an error, a gap and a packet that is
 * not understood are noted too. Nothing is called again: a connection that is lost stays lost, and is told of.
 *
 *   -s PATH       the bus
 *   -n N          connections (1)
 *   -b N          so many of them in batch mode, from the first one on (0)
 *   -w N          so many of them slow, the last ones (0): not reading for -p ms, then reading for 500 ms, and so on;
 *                 every second one of these is in batch mode
 *   -p MS         (2500)
 *   -q MS         how long all must be silent before the end (500)
 *   -m PATTERN    what they subscribe to (load/: daemons broadcast reports of their own)
 * Says "ready" when all subscriptions are in force. SIGUSR1: a report, a line of JSON. SIGTERM: reads on until nothing
 * comes any more, then a last report. */
#include "numbered.h"
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define CONNECTIONS 1000
#define READING_NS 500000000ull

struct connection {
	int fd, batch, slow, reading, ended, error;
	uint64_t packets, gaps, told, crashes, unannounced, holes, refused, strange, latest_ns, longest_ns;
	char first_refused[128];
	struct seen seen[PUBLISHERS];
};

static struct connection all[CONNECTIONS];
static char packet[PACKET_MOST];
static int epoll, connections = 1;
static uint64_t latest_ns;

static void message(struct connection *c, const char *p, const char *end)
{
	int publisher;
	uint64_t index;
	const char *payload = memchr(p, 0, (size_t)(end - p));
	if (!payload || !get_payload(payload + 1, end, &publisher, &index)) {
		c->strange++;
		return;
	}
	/* Where something is missing, the gap that tells of it comes before what came after. */
	c->holes += seen_add(&c->seen[publisher], index);
	if (c->holes > c->told && !c->crashes)
		c->unannounced++;
}

static void control(struct connection *c, const char *p, const char *end)
{
	if (is_control(p, end, "!/bccn/gap")) {
		c->gaps++;
		uint64_t told = 0;
		for (p += strlen("CMSG !/bccn/gap") + 1; p < end && *p >= '0' && *p <= '9'; p++)
			told = told * 10 + (uint64_t)(*p - '0');
		c->told += told;
		c->crashes += !told; /* an unknown number */
	} else {
		c->refused++;
		if (!*c->first_refused)
			for (int i = 0; p + i < end && i < 120; i++)
				c->first_refused[i] = p[i] > ' ' && p[i] < 127 && p[i] != '"' && p[i] != '\\' ? p[i] : ' ';
	}
}

static void take(struct connection *c, const char *p, const char *end)
{
	c->packets++;
	if (end - p > 4 && !memcmp(p, "MSG ", 4))
		message(c, p, end);
	else if (end - p > 5 && !memcmp(p, "CMSG ", 5))
		control(c, p, end);
	else if (end - p > 5 && !memcmp(p, "MSGS ", 5)) {
		uint64_t n = strtoull(p + 5, NULL, 10);
		const char *q = memchr(p, 0, (size_t)(end - p));
		for (q = q ? q + 1 : end; n && end - q >= 4; n--) {
			const unsigned char *l = (const unsigned char *)q;
			size_t length = (size_t)l[0] | (size_t)l[1] << 8 | (size_t)l[2] << 16 | (size_t)l[3] << 24;
			q += 4;
			if (length > (size_t)(end - q) || length < 5 || memcmp(q, "MSG ", 4))
				break;
			message(c, q, q + length);
			q += length;
		}
		if (n || q != end)
			c->strange++;
	} else
		c->strange++;
}

static void drop(struct connection *c, int error)
{
	c->ended = 1;
	c->error = error;
	epoll_ctl(epoll, EPOLL_CTL_DEL, c->fd, NULL);
}

/* All that is there now, with a bound, so that the others get their turn. */
static void drain(struct connection *c)
{
	for (int i = 0; i < 256; i++) {
		ssize_t n = recv(c->fd, packet, sizeof packet, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			drop(c, n < 0 ? errno : 0);
			return;
		}
		uint64_t now = now_ns();
		if (c->latest_ns && now - c->latest_ns > c->longest_ns)
			c->longest_ns = now - c->latest_ns;
		c->latest_ns = latest_ns = now;
		take(c, packet, packet + n);
	}
}

static void open_one(struct connection *c, const char *path, const char *pattern)
{
	char frame[512];
	c->fd = bus_connect(path);
	if (c->batch)
		bus_send(c->fd, "CMSG !/bccn/batch/on", strlen("CMSG !/bccn/batch/on"));
	bus_send(c->fd, frame, (size_t)snprintf(frame, sizeof frame, "SUB %s", pattern));
	bus_send(c->fd, SYNC, strlen(SYNC));
	for (;;) {
		ssize_t n = recv(c->fd, packet, sizeof packet, 0);
		if (n <= 0)
			die("waiting for the echo of a sync");
		if (is_control(packet, packet + n, "!/bccn/sync"))
			return;
		take(c, packet, packet + n);
	}
}

static void set_reading(struct connection *c, int reading)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
	if (c->ended || c->reading == reading)
		return;
	c->reading = reading;
	if (epoll_ctl(epoll, reading ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, c->fd, &event))
		die("epoll_ctl");
}

static void report(void)
{
	printf("{\"connections\":[");
	for (int i = 0; i < connections; i++) {
		struct connection *c = &all[i];
		const char *comma = "";
		printf("%s{\"batch\":%s,\"slow\":%s,\"ended\":%s,\"error\":\"%s\",\"packets\":%llu,\"gaps\":%llu,\"told\":%llu,"
		       "\"crashes\":%llu,\"unannounced\":%llu,\"refused\":%llu,\"first_refused\":\"%s\",\"strange\":%llu,"
		       "\"longest_ms\":%llu,\"publishers\":{",
		       i ? "," : "", c->batch ? "true" : "false", c->slow ? "true" : "false", c->ended ? "true" : "false",
		       c->error ? strerror(c->error) : "", (unsigned long long)c->packets, (unsigned long long)c->gaps,
		       (unsigned long long)c->told, (unsigned long long)c->crashes, (unsigned long long)c->unannounced,
		       (unsigned long long)c->refused, c->first_refused, (unsigned long long)c->strange,
		       (unsigned long long)c->longest_ns / 1000000);
		for (int p = 0; p < PUBLISHERS; p++) {
			struct seen *s = &c->seen[p];
			if (!s->count)
				continue;
			printf("%s\"%d\":{\"last\":%llu,\"count\":%llu,\"doubled\":%llu,\"disordered\":%llu,\"missing\":",
			       comma, p, (unsigned long long)s->last, (unsigned long long)s->count,
			       (unsigned long long)s->doubled, (unsigned long long)s->disordered);
			seen_print_missing(s, s->last);
			putchar('}');
			comma = ",";
		}
		printf("}}");
	}
	puts("]}");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *path = "/run/bccnd/bus.sock", *pattern = "load/";
	int batch = 0, slow = 0, option;
	uint64_t pause = 2500, quiet = 500;
	while ((option = getopt(argc, argv, "s:n:b:w:p:q:m:")) != -1)
		switch (option) {
		case 's': path = optarg; break;
		case 'n': connections = (int)number(optarg, 1, CONNECTIONS, "-n"); break;
		case 'b': batch = (int)number(optarg, 0, CONNECTIONS, "-b"); break;
		case 'w': slow = (int)number(optarg, 0, CONNECTIONS, "-w"); break;
		case 'p': pause = number(optarg, 1, 600000, "-p"); break;
		case 'q': quiet = number(optarg, 1, 600000, "-q"); break;
		case 'm': pattern = optarg; break;
		default: return 2;
		}
	struct rlimit files = {4096, 4096};
	setrlimit(RLIMIT_NOFILE, &files);
	take_signals();
	pause *= 1000000;
	if ((epoll = epoll_create1(EPOLL_CLOEXEC)) < 0)
		die("epoll");
	for (int i = 0; i < connections; i++) {
		all[i].slow = i >= connections - slow;
		all[i].batch = all[i].slow ? i % 2 : i < batch;
		open_one(&all[i], path, pattern);
		set_reading(&all[i], 1);
	}
	say_ready();
	uint64_t asked = 0, start = now_ns();
	for (;;) {
		struct epoll_event events[64];
		int n = epoll_wait(epoll, events, 64, 20);
		uint64_t now = now_ns();
		for (int i = 0; i < n; i++)
			drain(events[i].data.ptr);
		for (int i = connections - slow; i < connections; i++) /* each a little behind the one before */
			set_reading(&all[i], asked_to_end ||
						     (now - start + (uint64_t)i * 100000000ull) % (pause + READING_NS) >= pause);
		if (asked_by_usr1) {
			asked_by_usr1 = 0;
			report();
		}
		if (!asked_to_end)
			continue;
		if (!asked)
			asked = now;
		if (now > asked + quiet * 1000000 && now > latest_ns + quiet * 1000000)
			break;
	}
	report();
	return 0;
}
