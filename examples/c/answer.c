/* answer - publishes its identity on the channel that each message on demo/question names.
 *   cc -o answer answer.c && ./answer /run/bccnd/bus.sock
 *   bccn pub demo/question demo/answer
 * When the daemon restarts, it reconnects and subscribes again. */
#include "bccn.h"

int main(int argc, char **argv)
{
	static char buffer[BCCN_BUFFER];
	static const char *const controls[] = {"!/bccn/meta/on", NULL}, *const patterns[] = {"demo/question", NULL};
	struct bccn_plan plan = {argc > 1 ? argv[1] : NULL, controls, patterns};
	struct bccn_event got;
	struct bccn bus;
	char identity[129];

	if (bccn_join(&bus, &plan, buffer, sizeof buffer) ||
	    bccn_ask(&bus, "!/bccn/whoami", NULL, 0, 5000, NULL, NULL, &got)) {
		fprintf(stderr, "answer: %s: %s\n", argc > 1 ? argv[1] : "the daemon", strerror(errno));
		return 1;
	}
	snprintf(identity, sizeof identity, "%s", got.payload);
	printf("I am %s\n", identity);
	for (;;) {
		fflush(stdout);
		if (bccn_receive_again(&bus, &plan, -1, &got) < 0) {
			fprintf(stderr, "answer: %s\n", strerror(errno));
		} else if (got.kind == BCCN_MESSAGE && !strcmp(got.key, "demo/question")) {
			printf("%s asks on %s\n", got.src, got.payload);
			bccn_publish(&bus, got.payload, identity, strlen(identity));
		} else if (got.kind == BCCN_REFUSAL) {
			fprintf(stderr, "refused: %s %s\n", got.reason, got.key);
		} else if (got.kind == BCCN_GAP && !got.lost) {
			fprintf(stderr, "messages may have been lost here: the daemon has crashed\n");
		} else if (got.kind == BCCN_GAP) {
			fprintf(stderr, "%llu messages were lost here: this reader is too slow\n", got.lost);
		} else if (got.kind == BCCN_RECONNECTED) {
			fprintf(stderr, "the daemon was away, and is back\n");
		}
	}
}
