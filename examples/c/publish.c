/* publish - publishes one message, or each line of its input, through bccnd.
 *   cc -o publish publish.c && ./publish /run/bccnd/bus.sock demo/hello 'hello, world'
 *   printf 'one\ntwo\n' | ./publish /run/bccnd/bus.sock demo/lines
 * Exits with 0 if the daemon accepted everything, with 1 if it refused something; it reports refusals on stderr. */
#define _POSIX_C_SOURCE 200809L /* getline */
#include "bccn.h"

static void complain(void *failed, const struct bccn_event *got)
{
	if (got->kind != BCCN_REFUSAL)
		return;
	fprintf(stderr, "publish: refused: %s %s\n", got->reason, got->key);
	*(int *)failed = 1;
}

int main(int argc, char **argv)
{
	static char buffer[BCCN_BUFFER];
	struct bccn bus;
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	int failed, refused = 0;

	if (argc != 3 && argc != 4) {
		fprintf(stderr, "usage: publish SOCKET CHANNEL [PAYLOAD]\n");
		return 2;
	}
	failed = bccn_connect(&bus, argv[1], buffer, sizeof buffer);
	if (argc == 4 && !failed)
		failed = bccn_publish(&bus, argv[2], argv[3], strlen(argv[3]));
	while (argc == 3 && !failed && (size = getline(&line, &room, stdin)) >= 0)
		failed = bccn_publish(&bus, argv[2], line, (size_t)size - (line[size - 1] == '\n'));
	if (failed || bccn_sync(&bus, 5000, complain, &refused)) {
		fprintf(stderr, "publish: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	free(line);
	bccn_close(&bus);
	return refused;
}
