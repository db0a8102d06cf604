/* subscribe - prints the messages of a pattern, with their senders, as they arrive from bccnd; reports losses on
 * stderr.
 *   cc -o subscribe subscribe.c && ./subscribe /run/bccnd/bus.sock 'demo/'
 * Reconnects when the daemon restarts; messages sent meanwhile do not arrive. */
#include "bccn.h"

static char buffer[BCCN_BUFFER];

struct subscriber {
	const char *path;
	struct bccn bus;
};

static int print_event(void *arg, const struct bccn_event *got)
{
	struct subscriber *subscriber = arg;

	switch (got->kind) {
	case BCCN_MESSAGE:
		printf("%s %s ", got->src ? got->src : "?", got->key);
		fwrite(got->payload, 1, got->length, stdout);
		putchar('\n');
		break;
	case BCCN_GAP:
		if (got->lost)
			fprintf(stderr, "subscribe: %llu messages were lost here: this reader is too slow\n", got->lost);
		else
			fprintf(stderr, "subscribe: messages may have been lost here: the daemon has crashed\n");
		break;
	case BCCN_REFUSAL:
		fprintf(stderr, "subscribe: refused: %s %s\n", got->reason, got->key);
		break;
	case BCCN_RECONNECTED:
		fprintf(stderr, "subscribe: %s: the daemon was away, and is back\n", subscriber->path);
		break;
	default:
		break;
	}
	if (!bccn_pending(&subscriber->bus)) /* once for a batch */
		fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	static const char *const controls[] = {"!/bccn/meta/on", NULL};
	const char *patterns[2] = {NULL, NULL};
	struct bccn_plan plan = {NULL, controls, patterns};
	struct subscriber subscriber;

	if (argc != 3) {
		fprintf(stderr, "usage: subscribe SOCKET PATTERN\n");
		return 2;
	}
	subscriber.path = plan.path = argv[1];
	patterns[0] = argv[2];
	if (bccn_join(&subscriber.bus, &plan, buffer, sizeof buffer)) {
		fprintf(stderr, "subscribe: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	for (;;) {
		bccn_run(&subscriber.bus, &plan, print_event, &subscriber);
		fprintf(stderr, "subscribe: %s: %s\n", argv[1], strerror(errno));
	}
}
