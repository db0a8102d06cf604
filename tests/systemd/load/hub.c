/* hub - the wire between hosts, as a program: it loses, copies, delays and so reorders BCCN datagrams.
 * What it does to which datagram depends on the seed and the order of arrival only, and it tells of every numbered
 * message to which host it has never brought it; so that receivers can be held to exactly that. Whatever is no datagram
 * of the port passes unharmed.
 *
 *   -S SEED -l LOST -c COPIED (of a thousand, for each receiver)  -d MICROSECONDS (delay, from 0 to that, by chance)
 *   -p PORT (5400)
 *   NAMESPACE:INTERFACE ...   it makes these interfaces (TAP), each in its network namespace (a path)
 * Says "ready" when they are there. SIGTERM: brings what is under way, and reports, a line of JSON. */
#include "numbered.h"
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>

#define PORTS 8
#define FRAME_MOST 2048
#define WAITING_MOST 65536

struct waiting {
	uint64_t due, serial;
	int port, length;
	char *frame;
};

static struct port {
	int fd;
	const char *name;
	uint64_t frames, lost, copied, brought, failed;
	struct seen seen[PUBLISHERS];
} ports[PORTS];
static struct seen sent[PUBLISHERS];
static struct waiting heap[WAITING_MOST];
static int count, waiting, udp_port = 5400;
static uint64_t serial, overflow, state;

/* xorshift64* */
static uint32_t chance(uint32_t below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (uint32_t)((state * 2685821657736338717ull >> 32) % below);
}

static int before(const struct waiting *a, const struct waiting *b)
{
	return a->due != b->due ? a->due < b->due : a->serial < b->serial;
}

static void heap_put(struct waiting w)
{
	int i = waiting++;
	for (; i && before(&w, &heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = w;
}

static struct waiting heap_take(void)
{
	struct waiting first = heap[0], last = heap[--waiting];
	int i = 0, child;
	while ((child = 2 * i + 1) < waiting) {
		if (child + 1 < waiting && before(&heap[child + 1], &heap[child]))
			child++;
		if (!before(&heap[child], &last))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = last;
	return first;
}

/* The UDP payload of a whole IPv4 datagram for the port, or NULL; `end` moves to where it ends. */
static const char *bccn(const char *frame, const char **end)
{
	const unsigned char *p = (const unsigned char *)frame, *ip = p + 14;
	long length = *end - frame;
	if (length < 42 || p[12] != 8 || p[13] || ip[0] >> 4 != 4 || ip[9] != 17 || (ip[6] & 0x3f) || ip[7])
		return NULL;
	const unsigned char *udp = ip + (ip[0] & 15) * 4;
	if ((const char *)udp + 8 > *end || (udp[2] << 8 | udp[3]) != udp_port)
		return NULL;
	int size = udp[4] << 8 | udp[5];
	if (size < 8 || (const char *)udp + size > *end)
		return NULL;
	*end = (const char *)udp + size;
	return (const char *)udp + 8;
}

/* Which numbered message a frame holds; 0 if none. */
static int which(const char *frame, int length, int *publisher, uint64_t *index)
{
	const char *end = frame + length, *data = bccn(frame, &end);
	const char *bar = data ? memchr(data, '|', (size_t)(end - data)) : NULL;
	return bar && get_payload(bar + 1, end, publisher, index);
}

static void bring(struct port *to, const char *frame, int length)
{
	int publisher;
	uint64_t index;
	int numbered = which(frame, length, &publisher, &index);
	if (write(to->fd, frame, (size_t)length) != length) {
		to->failed += (uint64_t)numbered; /* an interface that is not up yet takes nothing */
		return;
	}
	to->brought++;
	if (numbered)
		seen_add(&to->seen[publisher], index);
}

static void later(int port, const char *frame, int length, uint64_t due)
{
	struct waiting w = {due, serial++, port, length, NULL};
	if (waiting == WAITING_MOST || !(w.frame = malloc((size_t)length))) {
		overflow++;
		return;
	}
	memcpy(w.frame, frame, (size_t)length);
	heap_put(w);
}

static void pass(int from, const char *frame, int length, uint32_t lost, uint32_t copied, uint32_t delay)
{
	const char *end = frame + length;
	int publisher, harm = bccn(frame, &end) != NULL;
	uint64_t index, now = now_ns();
	if (which(frame, length, &publisher, &index))
		seen_add(&sent[publisher], index);
	for (int i = 0; i < count; i++) {
		if (i == from)
			continue;
		if (!harm) {
			bring(&ports[i], frame, length);
			continue;
		}
		if (chance(1000) < lost) {
			ports[i].lost++;
			continue;
		}
		later(i, frame, length, now + 1000ull * chance(delay + 1));
		if (chance(1000) < copied) {
			ports[i].copied++;
			later(i, frame, length, now + 1000ull * chance(delay + 1));
		}
	}
}

static void bring_due(uint64_t now)
{
	while (waiting && heap[0].due <= now) {
		struct waiting w = heap_take();
		bring(&ports[w.port], w.frame, w.length);
		free(w.frame);
	}
}

static int open_tap(const char *namespace, const char *interface)
{
	struct ifreq ask = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int ns = open(namespace, O_RDONLY | O_CLOEXEC), fd;
	if (ns < 0 || setns(ns, CLONE_NEWNET))
		die(namespace);
	close(ns);
	snprintf(ask.ifr_name, sizeof ask.ifr_name, "%s", interface);
	if ((fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0 || ioctl(fd, TUNSETIFF, &ask))
		die("/dev/net/tun");
	return fd;
}

static void report(void)
{
	printf("{\"overflow\":%llu,\"ports\":{", (unsigned long long)overflow);
	for (int i = 0; i < count; i++) {
		struct port *p = &ports[i];
		const char *comma = "";
		printf("%s\"%s\":{\"frames\":%llu,\"lost\":%llu,\"copied\":%llu,\"brought\":%llu,\"failed\":%llu,\"publishers\":{",
		       i ? "," : "", p->name, (unsigned long long)p->frames, (unsigned long long)p->lost,
		       (unsigned long long)p->copied, (unsigned long long)p->brought, (unsigned long long)p->failed);
		for (int id = 0; id < PUBLISHERS; id++) {
			if (!p->seen[id].count)
				continue;
			printf("%s\"%d\":{\"count\":%llu,\"doubled\":%llu,\"disordered\":%llu,\"missing\":", comma, id,
			       (unsigned long long)p->seen[id].count, (unsigned long long)p->seen[id].doubled,
			       (unsigned long long)p->seen[id].disordered);
			seen_print_missing(&p->seen[id], sent[id].last);
			putchar('}');
			comma = ",";
		}
		printf("}}");
	}
	puts("}}");
}

int main(int argc, char **argv)
{
	uint32_t lost = 0, copied = 0, delay = 0;
	int option;
	state = 1;
	while ((option = getopt(argc, argv, "S:l:c:d:p:")) != -1)
		switch (option) {
		case 'S': state = number(optarg, 1, UINT64_MAX - 1, "-S"); break;
		case 'l': lost = (uint32_t)number(optarg, 0, 1000, "-l"); break;
		case 'c': copied = (uint32_t)number(optarg, 0, 1000, "-c"); break;
		case 'd': delay = (uint32_t)number(optarg, 0, 10000000, "-d"); break;
		case 'p': udp_port = (int)number(optarg, 1, 65535, "-p"); break;
		default: return 2;
		}
	for (; optind < argc && count < PORTS; optind++, count++) {
		char *colon = strchr(argv[optind], ':');
		if (!colon)
			refuse("NAMESPACE:INTERFACE: which?");
		*colon = 0;
		ports[count].fd = open_tap(argv[optind], colon + 1);
		ports[count].name = strrchr(argv[optind], '/') ? strrchr(argv[optind], '/') + 1 : argv[optind];
	}
	take_signals();
	prctl(PR_SET_TIMERSLACK, 1);
	say_ready();
	while (!asked_to_end || waiting) {
		struct pollfd polled[PORTS];
		struct timespec rest = {0, 100000000};
		uint64_t now = now_ns();
		if (waiting) {
			uint64_t left = heap[0].due > now ? heap[0].due - now : 0;
			rest.tv_nsec = left < 100000000 ? (long)left : 100000000;
		}
		for (int i = 0; i < count; i++)
			polled[i] = (struct pollfd){.fd = ports[i].fd, .events = POLLIN};
		int ready = ppoll(polled, (nfds_t)count, &rest, NULL);
		bring_due(now_ns());
		for (int i = 0; ready > 0 && i < count; i++) {
			char frame[FRAME_MOST];
			ssize_t n;
			for (int k = 0; k < 64 && polled[i].revents && (n = read(ports[i].fd, frame, sizeof frame)) > 0; k++) {
				ports[i].frames++;
				pass(i, frame, (int)n, lost, copied, delay);
			}
		}
	}
	report();
	return 0;
}
