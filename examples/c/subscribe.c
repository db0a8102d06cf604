/* subscribe - prints the messages of a pattern, with their senders, as they arrive from bccnd; reports losses on
 * stderr.
 *   cc -o subscribe subscribe.c && ./subscribe /run/bccnd/bus.sock 'demo/'
 * Reconnects when the daemon restarts; messages sent meanwhile do not arrive. -b, before the socket, requests batches,
 * for channels with much traffic. */
#include "bccn.h"

static char buffer[BCCN_BUFFER];

static void print_event(const struct bccn_event *got)
{
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
	default:
		break;
	}
}

int main(int argc, char **argv)
{
	static const char *const controls[] = {"!/bccn/meta/on", "!/bccn/batch/on", NULL};
	static const char *const without_batches[] = {"!/bccn/meta/on", NULL};
	const char *patterns[2] = {NULL, NULL};
	struct bccn_plan plan = {NULL, without_batches, patterns};
	struct bccn_event got;
	struct bccn bus;

	if (argc > 1 && !strcmp(argv[1], "-b")) {
		plan.controls = controls;
		argc--;
		argv++;
	}
	if (argc != 3) {
		fprintf(stderr, "usage: subscribe [-b] SOCKET PATTERN\n");
		return 2;
	}
	plan.path = argv[1];
	patterns[0] = argv[2];
	if (bccn_join(&bus, &plan, buffer, sizeof buffer)) {
		fprintf(stderr, "subscribe: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	for (;;) {
		if (bccn_receive_again(&bus, &plan, -1, &got) < 0)
			fprintf(stderr, "subscribe: %s: %s\n", argv[1], strerror(errno));
		else if (got.kind == BCCN_RECONNECTED)
			fprintf(stderr, "subscribe: %s: the daemon was away, and is back\n", argv[1]);
		else
			print_event(&got);
		if (!bccn_pending(&bus)) /* once for a batch */
			fflush(stdout);
	}
}
