/* subscriber - a subscriber of the TCP broker: prints what comes on topics, and on those that its id had before.
 *   cc -o subscriber subscriber.c && ./subscriber 127.0.0.1 5401 C1 'upb/+/temp' 'door/+'
 * Any broker of this protocol will do; docs/broker.md has the bytes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct __attribute__((packed)) request {
	uint8_t type; /* 0 subscribe, 1 unsubscribe, 2 disconnect */
	char topic[51];
};

struct __attribute__((packed)) message {
	char peer[50], topic[51];
	uint8_t type;
	uint8_t data[1501];
};

_Static_assert(sizeof(struct request) == 52 && sizeof(struct message) == 1603, "the protocol's sizes");

static uint32_t number(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof value);
	return ntohl(value);
}

/* A number without a detour through floating point: its digits, with the point where it belongs. */
static void print_decimal(int minus, uint32_t value, int decimals)
{
	char digits[300];
	int length = snprintf(digits, sizeof digits, "%0*lu", decimals + 1, (unsigned long)value);

	printf("%s%.*s", minus && value ? "-" : "", length - decimals, digits);
	if (decimals)
		printf(".%s", digits + length - decimals);
}

static void print_message(const struct message *got)
{
	static const char *names[] = {"INT", "SHORT_REAL", "FLOAT", "STRING"};

	if (got->type > 3)
		return;
	printf("%.50s - %.51s - %s - ", got->peer, got->topic, names[got->type]);
	if (got->type == 0)
		print_decimal(got->data[0], number(got->data + 1), 0);
	else if (got->type == 1)
		print_decimal(0, (uint32_t)got->data[0] << 8 | got->data[1], 2);
	else if (got->type == 2)
		print_decimal(got->data[0], number(got->data + 1), got->data[5]);
	else
		printf("%.1501s", (const char *)got->data);
	putchar('\n');
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sockaddr_in where = {.sin_family = AF_INET};
	struct message got;
	char id[11] = "";
	int fd, one = 1;

	if (argc < 4 || inet_pton(AF_INET, argv[1], &where.sin_addr) != 1 || strlen(argv[3]) >= sizeof id) {
		fprintf(stderr, "usage: subscriber ADDRESS PORT ID [TOPIC ...]\n");
		return 2;
	}
	where.sin_port = htons((uint16_t)atoi(argv[2]));
	memcpy(id, argv[3], strlen(argv[3]));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&where, sizeof where) < 0) {
		perror("subscriber");
		return 1;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	send(fd, id, sizeof id, MSG_NOSIGNAL);
	for (int i = 4; i < argc; i++) {
		struct request ask = {.type = 0};

		strncpy(ask.topic, argv[i], sizeof ask.topic - 1);
		send(fd, &ask, sizeof ask, MSG_NOSIGNAL);
	}
	while (recv(fd, &got, sizeof got, MSG_WAITALL) == sizeof got)
		print_message(&got);
	fprintf(stderr, "subscriber: the broker has closed the connection\n");
	return 1;
}
