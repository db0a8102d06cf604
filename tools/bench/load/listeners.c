/* listeners - N programs without a daemon: each has its own socket on the broadcast port, and so receives, parses and
 * verifies every datagram itself.
 * They do no more than they must (recvmmsg, HMAC with the key's blocks hashed beforehand), so that the daemon is
 * held against the best that programs can do without it.
 *
 *   -p PORT              where, at 127.255.255.255
 *   -N PROGRAMS -n N     how many of them, and how many datagrams each one waits for
 *   -w FILE              the window, see window.h
 * Says "ready" when all listen. */
#include "histogram.h"
#include "message.h"
#include "window.h"
#include <getopt.h>
#include <signal.h>
#include <sys/wait.h>

#define BATCH 64
#define ROOM 2048

struct result {
	uint64_t n, bad, cpu;
	struct histogram latency;
};

/* One program: until it has all, or nothing has come for a second (20 s before the first). */
static void listen_to_all(int fd, struct result *out, struct window *w, int me, uint64_t n)
{
	static char taken[BATCH][ROOM];
	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	struct timeval patience = {0, 100000};
	struct hmac hmac;
	uint64_t cpu = cpu_ns();
	int idle = 0;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	hmac_init(&hmac);
	lay_out(m, v, taken[0], ROOM, BATCH);
	while (out->n < n && idle < (out->n ? 10 : 200)) {
		int r = recvmmsg(fd, m, BATCH, MSG_WAITFORONE, NULL);
		if (r < 0) {
			idle++;
			continue;
		}
		idle = 0;
		for (int i = 0; i < r; i++) {
			struct datagram d;
			uint64_t stamp;
			out->n++;
			if (!datagram_read(taken[i], taken[i] + m[i].msg_len, &d) || !datagram_is_signed(&hmac, &d)) {
				out->bad++;
				continue;
			}
			if ((stamp = get_digits(d.payload, 20)))
				histogram_add(&out->latency, now_ns() - stamp);
		}
		window_tell(w, me, out->n);
	}
	out->cpu = cpu_ns() - cpu;
}

int main(int argc, char **argv)
{
	struct window *w = NULL;
	int port = 0, programs = 8, option, told[2];
	uint64_t n = 100000;
	while ((option = getopt(argc, argv, "p:N:n:w:")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'N': programs = (int)number(optarg, 1, MAX_SLOTS, "-N"); break;
		case 'n': n = number(optarg, 1, PAYLOAD_INDEX_MAX, "-n"); break;
		case 'w': w = window_open(optarg); break;
		default: return 2;
		}
	if (!port || pipe(told))
		refuse("-p PORT: where?");
	if (w)
		atomic_store(&w->slots, (uint32_t)programs);
	struct result *each = mmap(NULL, (size_t)programs * sizeof *each, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (each == MAP_FAILED)
		die("mmap");
	for (int me = 0; me < programs; me++) {
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			int fd = udp_listen("127.255.255.255", port);
			if (write(told[1], "r", 1) != 1)
				_exit(2);
			listen_to_all(fd, &each[me], w, me, n);
			_exit(0);
		}
	}
	char byte;
	close(told[1]);
	for (int i = 0; i < programs; i++)
		if (read(told[0], &byte, 1) != 1)
			refuse("a listener has not come up");
	say_ready();
	while (wait(NULL) > 0)
		;
	struct result sum = {0};
	for (int i = 0; i < programs; i++) {
		sum.n += each[i].n;
		sum.bad += each[i].bad;
		sum.cpu += each[i].cpu;
		histogram_merge(&sum.latency, &each[i].latency);
	}
	printf("{\"program\":\"listeners\",\"n\":%llu,\"bad\":%llu,\"cpu_ns\":%llu,", (unsigned long long)sum.n,
	       (unsigned long long)sum.bad, (unsigned long long)sum.cpu);
	histogram_print(&sum.latency);
	puts("}");
	return 0;
}
