/* flood - sends BCCN1 datagrams over loopback: BCCN1[<length>:hmac=<16 hex>]<src>:<seq>:<chan>|<payload>
 * What it costs to make a datagram is never part of what is measured (they are made and signed beforehand), but
 * where latency is asked for (-t): then each is made as it is sent, and carries the time.
 *
 *   -p PORT -a ADDRESS   where to, in 127.0.0.0/8 (127.0.0.1; 127.255.255.255 is the broadcast of loopback)
 *   -n N                 how many
 *   -S SOURCES           1 to 1,000,000, by turns (4)
 *   -C CHANNELS          1 to 1,000,000 (16); -C N gives every datagram a channel of its own
 *   -R LENGTH            datagrams in a row on one channel (1); behind the last channel comes the first one again
 *   -l                   sources with long names (36 bytes) as hosts have them, and not with short ones (8)
 *   -z BYTES             of the whole datagram (150)
 *   -H                   no HMAC
 *   -r RATE              a second; 0: as fast as window and receivers allow
 *   -w FILE -W SIZE      the closed window, see window.h
 *   -u WARM              so many first; when they are through it says "warm", stops itself (SIGSTOP), and begins to count
 *                        its time anew when it may go on
 *   -t                   stamped for latency */
#include "message.h"
#include "window.h"
#include <getopt.h>
#include <signal.h>

#define BATCH 32 /* of one sendmmsg */
#define ROOM 2048

struct plan {
	uint64_t n, sources, channels, run;
	int size, sign, long_names;
	struct hmac hmac;
};

/* Writes the datagram with this index; returns its length. */
static int make(char *out, const struct plan *p, uint64_t index, uint64_t stamp)
{
	char head[64], body[ROOM];
	int h, source = (int)(index % p->sources), length;
	if (p->long_names)
		length = sprintf(body, "relay%02d.example/cardsys-relay/%07d", source % 50, source);
	else
		length = sprintf(body, "s%07d", source);
	length += sprintf(body + length, ":%llu:bench/c%07d|", (unsigned long long)(1 + index / p->sources),
			  (int)(index / p->run % p->channels));
	int payload = p->size - length - (int)strlen(p->sign ? "BCCN1[123:hmac=0123456789abcdef]" : "BCCN1[123]");
	if (payload < PAYLOAD_MIN)
		payload = PAYLOAD_MIN;
	put_payload(body + length, payload, stamp, index);
	length += payload;
	h = sprintf(head, "BCCN1[%d", length);
	if (p->sign) {
		unsigned char mac[32];
		hmac(&p->hmac, body, (size_t)length, mac);
		h += sprintf(head + h, ":hmac=");
		for (int i = 0; i < 8; i++)
			h += sprintf(head + h, "%02x", mac[i]);
	}
	head[h++] = ']';
	memcpy(out, head, (size_t)h);
	memcpy(out + h, body, (size_t)length);
	return h + length;
}

/* All that was sent before has arrived; the window knows. */
static void pause_warm(struct sender *s)
{
	for (int i = 0; window_done(s->window) < s->sent; i++) {
		if (i == 20000)
			refuse("-u: some of it does not arrive");
		usleep(1000);
	}
	puts("warm");
	fflush(stdout);
	raise(SIGSTOP);
	s->start = now_ns();
}

static void send_all(int fd, struct mmsghdr *m, int n)
{
	for (int done = 0; done < n;) {
		int r = sendmmsg(fd, m + done, (unsigned)(n - done), 0);
		if (r > 0)
			done += r;
		else if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
			die("sendmmsg");
	}
}

int main(int argc, char **argv)
{
	struct plan plan = {.n = 100000, .sources = 4, .channels = 16, .run = 1, .size = 150, .sign = 1};
	struct sender s = {.batch = BATCH};
	const char *address = "127.0.0.1";
	int port = 0, stamped = 0, option;
	uint64_t warm = 0;
	while ((option = getopt(argc, argv, "p:a:n:S:C:R:lz:Hr:w:W:u:t")) != -1)
		switch (option) {
		case 'p': port = (int)number(optarg, 1, 65535, "-p"); break;
		case 'a': address = optarg; break;
		case 'n': plan.n = number(optarg, 1, PAYLOAD_INDEX_MAX, "-n"); break;
		case 'S': plan.sources = number(optarg, 1, 1000000, "-S"); break;
		case 'C': plan.channels = number(optarg, 1, 1000000, "-C"); break;
		case 'R': plan.run = number(optarg, 1, PAYLOAD_INDEX_MAX, "-R"); break;
		case 'l': plan.long_names = 1; break;
		case 'z': plan.size = (int)number(optarg, SIZE_LEAST, SIZE_MOST, "-z"); break;
		case 'H': plan.sign = 0; break;
		case 'r': s.rate = number(optarg, 0, 10000000, "-r"); break;
		case 'w': s.window = window_open(optarg); break;
		case 'W': s.size = number(optarg, 1, UINT32_MAX, "-W"); break;
		case 'u': warm = number(optarg, 0, PAYLOAD_INDEX_MAX, "-u"); break;
		case 't': stamped = 1; break;
		default: return 2;
		}
	if (!port)
		refuse("-p PORT: where to?");
	if (warm && (!s.window || warm >= plan.n))
		refuse("-u: with -w, and fewer than -n");
	hmac_init(&plan.hmac);
	s.total = plan.n;

	struct sockaddr_in to = loopback(address, port);
	int one = 1, buffer = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	if (connect(fd, (struct sockaddr *)&to, sizeof to))
		die("connect");

	/* Made beforehand they lie one behind the other: a million of 150 bytes are 150 MB. */
	static char fresh[BATCH * ROOM];
	static struct mmsghdr m[BATCH];
	static struct iovec v[BATCH];
	char *made = fresh, *next;
	uint16_t *lengths = NULL;
	lay_out(m, v, fresh, ROOM, BATCH);
	if (!stamped) {
		size_t room = plan.n * ((size_t)plan.size + 64);
		made = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		lengths = malloc(plan.n * sizeof *lengths);
		if (made == MAP_FAILED || !lengths)
			die("memory for the datagrams");
		next = made;
		for (uint64_t i = 0; i < plan.n; i++)
			next += lengths[i] = (uint16_t)make(next, &plan, i, 0);
	}

	next = made;
	sender_start(&s);
	uint64_t cpu = cpu_ns();
	while (s.sent < s.total) {
		if (warm && s.sent == warm) {
			pause_warm(&s);
			cpu = cpu_ns();
			warm = 0;
		}
		int n = (int)sender_room(&s);
		if (warm && s.sent + (uint64_t)n > warm)
			n = (int)(warm - s.sent);
		for (int i = 0; i < n; i++) {
			if (stamped) {
				v[i].iov_len = (size_t)make(v[i].iov_base, &plan, s.sent + (uint64_t)i, now_ns());
			} else {
				v[i].iov_base = next;
				next += v[i].iov_len = lengths[s.sent + (uint64_t)i];
			}
		}
		send_all(fd, m, n);
		s.sent += (uint64_t)n;
	}
	sender_report(&s, "flood", cpu_ns() - cpu);
	return 0;
}
