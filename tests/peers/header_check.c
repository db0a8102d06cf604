/* header_check - drives examples/c/bccn.h step by step and prints what comes of it; bytes in hex, so that nothing can
 * be mistaken for anything else.
 *
 *   header_check SOCKET SIZE STEP...
 *
 * SOCKET may be empty, SIZE is the buffer's. Steps, each printed with 0 or an errno:
 *   sub PATTERN, unsub PATTERN, pub KEY TEXT, ctl KEY, ask KEY MS, sync MS, recv MS (events until there is none for so
 *   long), signal (wait for what comes or a SIGUSR1), wait (for a line of stdin), next (one event, and how many wait
 *   behind it)
 * Then it receives until the end of the connection.
 *
 *   cc -Wall -Wextra -Wpedantic -Werror -fsanitize=address,undefined -I examples/c -o header_check header_check.c
 */
#include "bccn.h"
#include <signal.h>

static const char *name_of(int number)
{
	switch (number) {
	case EPIPE: return "EPIPE";
	case EINTR: return "EINTR";
	case EMSGSIZE: return "EMSGSIZE";
	case EBADMSG: return "EBADMSG";
	case ETIMEDOUT: return "ETIMEDOUT";
	case ENOTSUP: return "ENOTSUP";
	case EBADF: return "EBADF";
	case ENAMETOOLONG: return "ENAMETOOLONG";
	default: return strerror(number);
	}
}

static void print_hex(const char *label, const char *bytes, size_t length)
{
	printf(" %s=", label);
	while (length--)
		printf("%02x", (unsigned char)*bytes++);
}

static void print_event(void *when, const struct bccn_event *got)
{
	static const char *const kinds[] = {"none", "message", "gap", "refusal", "answer"};

	printf("%s%s", (const char *)when, kinds[got->kind]);
	print_hex("key", got->key, strlen(got->key));
	print_hex("payload", got->payload, got->length);
	if (got->payload[got->length] != '\0')
		printf(" no NUL behind the payload");
	print_hex("reason", got->reason, strlen(got->reason));
	printf(" lost=%llu", got->lost);
	if (got->src) {
		print_hex("src", got->src, strlen(got->src));
		print_hex("peer", got->peer, strlen(got->peer));
		printf(" seq=%llu ns=%llu", got->seq, got->received_ns);
	}
	putchar('\n');
	fflush(stdout); /* whoever reads this waits for it */
}

static void said(const char *step, int result)
{
	printf("%s %s\n", step, result < 0 ? name_of(errno) : "0");
	fflush(stdout);
}

/* Events until there is none for so many milliseconds; returns whether there may be more. */
static int events(struct bccn *bus, int timeout_ms)
{
	struct bccn_event got;
	int result;

	while ((result = bccn_receive(bus, timeout_ms, &got)) != 0) {
		if (result < 0 && errno == EINTR)
			continue;
		if (result > 0)
			print_event((void *)"", &got);
		else
			said("receive", -1);
		if (result < 0 && errno != EMSGSIZE && errno != EBADMSG)
			return 0;
	}
	return 1;
}

static int next_event(struct bccn *bus)
{
	struct bccn_event got;
	int result = bccn_receive(bus, -1, &got);

	if (result > 0) {
		print_event((void *)"", &got);
		printf("pending %lu\n", bccn_pending(bus));
		fflush(stdout);
	}
	return result;
}

static void on_signal(int number)
{
	(void)number;
}

static int step(struct bccn *bus, const char *name, char **words)
{
	struct bccn_event answer;
	int result;

	if (!strcmp(name, "sub"))
		return bccn_subscribe(bus, words[0]);
	if (!strcmp(name, "unsub"))
		return bccn_unsubscribe(bus, words[0]);
	if (!strcmp(name, "pub"))
		return bccn_publish(bus, words[0], words[1], strlen(words[1]));
	if (!strcmp(name, "ctl"))
		return bccn_control(bus, words[0], NULL, 0);
	if (!strcmp(name, "ask")) {
		memset(&answer, 0, sizeof answer);
		result = bccn_ask(bus, words[0], NULL, 0, atoi(words[1]), print_event, (void *)"before: ", &answer);
		if (!result || errno == ENOTSUP)
			print_event((void *)"asked: ", &answer);
		return result;
	}
	if (!strcmp(name, "sync"))
		return bccn_sync(bus, atoi(words[0]), print_event, (void *)"before: ");
	if (!strcmp(name, "recv"))
		return events(bus, atoi(words[0])) - 1;
	if (!strcmp(name, "next"))
		return next_event(bus);
	if (!strcmp(name, "wait"))
		return getchar() == EOF ? -1 : 0;
	return bccn_receive(bus, -1, &answer);
}

int main(int argc, char **argv)
{
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	char *buffer = (char *)malloc(size); /* not a byte more, for the sanitizer to see */
	struct sigaction heard;
	struct bccn bus;
	int i, result;

	if (argc < 3)
		return 2;
	memset(&heard, 0, sizeof heard);
	heard.sa_handler = on_signal;
	sigaction(SIGUSR1, &heard, NULL);
	result = bccn_connect(&bus, argv[1], buffer, size);
	said("connect", result);
	for (i = 3; !result && i < argc; i++) {
		char *name = argv[i], **words = argv + i + 1;
		int two = !strcmp(name, "pub") || !strcmp(name, "ask");

		i += two ? 2 : strcmp(name, "wait") && strcmp(name, "signal") && strcmp(name, "next");
		if (i >= argc)
			return 2;
		said(name, step(&bus, name, words));
	}
	if (!result)
		events(&bus, -1);
	bccn_close(&bus);
	bccn_close(&bus);
	free(buffer);
	return 0;
}
