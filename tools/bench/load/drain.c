/* drain - K subscribers: counts what they get, checks its order, and measures how long it took.
 *
 *   -P bccn|floor|seq|mqtt|redis|nats  -u PATH or -t PORT (127.0.0.1)
 *       bccn: without a relay. Each has its own socket on the broadcast port, and so receives, parses and verifies every
 *       datagram itself; floor: datagrams as they are, one or several in a packet; seq: the frames of bccnd
 *   -K CLIENTS -p PROCESSES  by turns; each process has one epoll loop (1)
 *   -N N                     messages that are sent
 *   -s PATTERN               what each client subscribes to; may be repeated
 *   -e CHANNELS              instead of -s: client i wants only the channels with number mod K = i, so it gets every
 *                            K-th message (CHANNELS and N are multiples of K)
 *   -g STEP                  what is subscribed to with -s is every STEP-th message, from the first on; nobody wants the
 *                            others (N is a multiple of STEP)
 *   -x M                     patterns of each client that match nothing, sent first
 *   -o PATTERN               client 0 subscribes to this instead of the last of those, and is the only one that counts
 *   -M                       batch mode of bccnd: packets hold several frames
 *   -w FILE                  the window, see window.h
 * Says "ready" when all have subscribed. */
#include "peers.h"
#include "window.h"
#include <getopt.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#define STREAM (256 << 10) /* of a client's stream, at most */
#define PACKETS 32
#define PACKET (80 << 10) /* a packet of batch mode has 64 KiB at most */
#define MAX_PATTERNS 256
#define LATENCIES (1 << 17) /* that are kept, of each process */
#define IDLE_MS 1500 /* without a message, and it is taken for over; 20 s before the first */

struct client {
	int fd, have;
	uint64_t n, next; /* messages; the index that comes next */
	char *stream;
};

/* `bad`: unreadable, twice, out of order, a connection that was closed */
struct result {
	uint64_t n, bad, cpu, latencies, latency[LATENCIES];
};

static enum protocol protocol;
static uint64_t step = 1, taken_at;
static struct hmac key;
static struct result *out;

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return (x > y) - (x < y);
}

static void got(struct client *c, const char *payload)
{
	uint64_t index = get_digits(payload + 21, 9);
	c->n++;
	if (protocol == FLOOR && step > 1 && c->n == 1)
		c->next = index; /* whose share it is, is for the floor to say */
	if (index < c->next)
		out->bad++;
	else
		c->next = index + step;
	if (out->latencies < LATENCIES)
		out->latency[out->latencies++] = taken_at - get_digits(payload, 20);
}

/* Counts the payloads, whatever is around them: only in a payload a # stands behind 20 digits. Returns where the first one
 * begins that is not all there. What a relay says of a loss is no payload, and so it is missed. */
static const char *take_payloads(struct client *c, const char *p, const char *end)
{
	const char *mark;
	while ((mark = memchr(p, '#', (size_t)(end - p)))) {
		int digits = 0;
		if (end - mark < PAYLOAD_MIN - 20)
			return mark - p < 20 ? p : mark - 20;
		while (digits < 20 && mark - digits > p && mark[-1 - digits] >= '0' && mark[-1 - digits] <= '9')
			digits++;
		if (digits == 20)
			got(c, mark - 20);
		p = mark + 1;
	}
	return end - p < 20 ? p : end - 20;
}

/* A program without a relay checks each datagram itself. */
static void take_datagram(struct client *c, const char *p, const char *end)
{
	struct datagram d;
	if (datagram_read(p, end, &d) && datagram_is_signed(&key, &d) && d.payload_length >= PAYLOAD_MIN)
		got(c, d.payload);
	else
		out->bad++;
}

/* Reads what is there; returns 0 when the relay has closed. */
static int take(struct client *c)
{
	static char memory[PACKETS][PACKET];
	static struct mmsghdr m[PACKETS];
	static struct iovec v[PACKETS];
	if (!v[0].iov_base)
		lay_out(m, v, memory[0], PACKET, PACKETS);
	if (protocol > SEQ) {
		ssize_t n = recv(c->fd, c->stream + c->have, (size_t)(STREAM - c->have), MSG_DONTWAIT);
		taken_at = now_ns();
		if (n > 0) {
			const char *end = c->stream + c->have + n, *rest = take_payloads(c, c->stream, end);
			c->have = (int)(end - rest);
			memmove(c->stream, rest, (size_t)c->have);
		}
		return n != 0;
	}
	int n = recvmmsg(c->fd, m, PACKETS, MSG_DONTWAIT, NULL);
	taken_at = now_ns();
	for (int i = 0; i < n; i++) {
		if (!m[i].msg_len)
			return 0;
		if (m[i].msg_hdr.msg_flags & MSG_TRUNC)
			out->bad++;
		if (protocol == BCCN)
			take_datagram(c, memory[i], memory[i] + m[i].msg_len);
		else
			take_payloads(c, memory[i], memory[i] + m[i].msg_len);
	}
	return 1;
}

struct wishes {
	const char *pattern[MAX_PATTERNS], *only, *path;
	int clients, processes, patterns, each, never, batches, port;
	uint64_t n;
	struct window *window;
};

static void subscribe_all(const struct wishes *w, struct client *c, int id)
{
	char b[64];
	int never = w->never - (w->only && !id);
	c->fd = protocol == BCCN ? udp_listen("127.255.255.255", w->port) : connect_to(protocol, w->path, w->port);
	c->next = w->each ? (uint64_t)id : 0;
	c->stream = protocol > SEQ ? malloc(STREAM) : NULL;
	greet(protocol, c->fd, id);
	if (w->batches)
		packet(c->fd, "CMSG !/bccn/batch/on", strlen("CMSG !/bccn/batch/on"));
	for (int i = 0; i < never; i++) {
		sprintf(b, "other/c%07d/n%03d/*", id, i);
		subscribe(protocol, c->fd, b);
	}
	if (w->only && !id)
		subscribe(protocol, c->fd, w->only);
	for (int i = 0; i < w->patterns; i++)
		subscribe(protocol, c->fd, w->pattern[i]);
	for (int i = id; i < w->each; i += w->clients) {
		sprintf(b, "bench/c%07d", i);
		subscribe(protocol, c->fd, b);
	}
	settle(protocol, c->fd);
}

/* One process: the clients me, me + processes, ... until each one that counts has all. */
static void work(const struct wishes *w, int me, int told)
{
	struct client *c = calloc((size_t)w->clients, sizeof *c);
	struct epoll_event event[256];
	int k = 0, counted, complete = 0, waited = 0, poll = epoll_create1(EPOLL_CLOEXEC);
	uint64_t n = w->n / step, published = 0;
	for (int id = me; id < w->clients; id += w->processes, k++) {
		struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)k};
		subscribe_all(w, &c[k], id);
		if (epoll_ctl(poll, EPOLL_CTL_ADD, c[k].fd, &e))
			die("epoll_ctl");
	}
	counted = w->only ? me == 0 : k;
	if (write(told, "r", 1) != 1)
		exit(2);
	uint64_t cpu = cpu_ns();
	while (complete < counted) {
		int r = epoll_wait(poll, event, 256, 100);
		waited = r > 0 ? 0 : waited + 100;
		if (waited >= (published ? IDLE_MS : 20000))
			break;
		for (int i = 0; i < r; i++) {
			struct client *q = &c[event[i].data.u32];
			uint64_t before = q->n;
			int open = take(q);
			if (!open) {
				out->bad++;
				epoll_ctl(poll, EPOLL_CTL_DEL, q->fd, NULL);
			}
			if (before < n && (q->n >= n || !open) && q - c < counted)
				complete++;
		}
		uint64_t least = UINT64_MAX;
		for (int i = 0; i < counted; i++)
			if (c[i].next < least)
				least = c[i].next;
		if (counted && least != published)
			window_tell(w->window, me, published = least);
	}
	out->cpu = cpu_ns() - cpu;
	for (int i = 0; i < k; i++)
		out->n += c[i].n;
}

/* The median latency is that of the first process, which is the only one where messages are paced. */
static void report(struct result *each, int processes)
{
	uint64_t n = 0, bad = 0, cpu = 0;
	for (int i = 0; i < processes; i++) {
		n += each[i].n;
		bad += each[i].bad;
		cpu += each[i].cpu;
	}
	qsort(each->latency, each->latencies, sizeof *each->latency, by_size);
	printf("{\"n\":%llu,\"bad\":%llu,\"cpu_ns\":%llu,\"p50_us\":%.2f}\n", (unsigned long long)n,
	       (unsigned long long)bad, (unsigned long long)cpu, (double)each->latency[each->latencies / 2] / 1e3);
}

int main(int argc, char **argv)
{
	struct wishes w = {.clients = 1, .processes = 1, .n = 100000};
	int option, told[2];
	while ((option = getopt(argc, argv, "P:u:t:K:p:N:s:e:g:x:o:Mw:")) != -1)
		switch (option) {
		case 'P': protocol = protocol_of(optarg); break;
		case 'u': w.path = optarg; break;
		case 't': w.port = (int)number(optarg); break;
		case 'K': w.clients = (int)number(optarg); break;
		case 'p': w.processes = (int)number(optarg); break;
		case 'N': w.n = number(optarg); break;
		case 's': w.pattern[w.patterns++] = optarg; break;
		case 'e': w.each = (int)number(optarg); break;
		case 'g': step = number(optarg); break;
		case 'x': w.never = (int)number(optarg); break;
		case 'o': w.only = optarg; break;
		case 'M': w.batches = 1; break;
		case 'w': w.window = window_open(optarg); break;
		default: return 2;
		}
	hmac_init(&key);
	if (w.processes > w.clients)
		w.processes = w.clients;
	if (w.each)
		step = (uint64_t)w.clients;
	if (w.window) /* where only client 0 counts, the others hold nobody up */
		atomic_store(&w.window->slots, w.only ? 1 : (uint32_t)w.processes);
	struct result *each = mmap(NULL, (size_t)w.processes * sizeof *each, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (each == MAP_FAILED || pipe(told))
		die("mmap");
	for (int me = 0; me < w.processes; me++) {
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(told[0]);
			out = &each[me];
			work(&w, me, told[1]);
			_exit(0);
		}
	}
	char byte;
	close(told[1]);
	for (int i = 0; i < w.processes; i++)
		if (read(told[0], &byte, 1) != 1)
			return 2; /* it has said why */
	say_ready();
	while (wait(NULL) > 0)
		;
	report(each, w.processes);
	return 0;
}
