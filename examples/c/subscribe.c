/* subscribe - prints the messages of a pattern, as they arrive from bccnd.
 *   cc -o subscribe subscribe.c && ./subscribe /run/bccnd/bus.sock 'demo/' */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static char packet[409601]; /* the largest packet of the bus, and a NUL */

int main(int argc, char **argv)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int bus, n;

	if (argc != 3 || strlen(argv[1]) >= sizeof to.sun_path || strlen(argv[2]) > 1024) {
		fprintf(stderr, "usage: subscribe SOCKET PATTERN\n");
		return 2;
	}
	strcpy(to.sun_path, argv[1]);
	n = snprintf(packet, sizeof packet, "SUB %s", argv[2]);
	bus = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(bus, (struct sockaddr *)&to, sizeof to) < 0 || send(bus, packet, n, 0) != n) {
		perror(argv[1]);
		return 1;
	}
	while ((n = recv(bus, packet, sizeof packet - 1, 0)) > 0) {
		packet[n] = '\0';
		char *payload = strchr(packet, '\0') + 1; /* a packet is a frame: MSG <key> NUL <payload> */
		if (payload > packet + n)
			continue;
		printf("%s ", packet); /* "MSG demo/x", or "CMSG ..." from the daemon itself */
		fwrite(payload, 1, packet + n - payload, stdout);
		putchar('\n');
		fflush(stdout);
	}
	return n < 0;
}
