/* subscribe - prints the messages of a pattern, as they arrive from bccnd; says on stderr what was lost.
 *   cc -o subscribe subscribe.c && ./subscribe /run/bccnd/bus.sock 'demo/'
 * When the daemon restarts it connects again; what is sent before that does not arrive. With -b, before the socket, it
 * asks for batches: for channels with much traffic. */
#include "bccn.h"

static char buffer[BCCN_BUFFER];

static void print_events(struct bccn *bus)
{
	struct bccn_event got;

	while (bccn_receive(bus, -1, &got) > 0) {
		if (got.kind == BCCN_GAP)
			fprintf(stderr, "subscribe: %llu messages were lost here: this reader is too slow\n", got.lost);
		if (got.kind == BCCN_REFUSAL)
			fprintf(stderr, "subscribe: refused: %s %s\n", got.reason, got.key);
		if (got.kind != BCCN_MESSAGE)
			continue;
		printf("MSG %s ", got.key);
		fwrite(got.payload, 1, got.length, stdout);
		putchar('\n');
		if (!bccn_pending(bus)) /* once for a batch */
			fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	struct bccn bus;
	int connected = 0, batches = argc > 1 && !strcmp(argv[1], "-b");

	argv += batches;
	if (argc - batches != 3) {
		fprintf(stderr, "usage: subscribe [-b] SOCKET PATTERN\n");
		return 2;
	}
	for (;; sleep(1)) {
		if (bccn_connect(&bus, argv[1], buffer, sizeof buffer) == 0) {
			connected = 1;
			if (batches)
				bccn_control(&bus, "!/bccn/batch/on", NULL, 0);
			bccn_subscribe(&bus, argv[2]); /* whether and why it is refused comes as an event */
			print_events(&bus);
		}
		fprintf(stderr, "subscribe: %s: %s\n", argv[1], strerror(errno));
		bccn_close(&bus);
		if (!connected)
			return 1;
	}
}
