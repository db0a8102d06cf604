/* publisher - a publisher of the TCP broker: sends one value on a topic.
 *   cc -o publisher publisher.c && ./publisher 127.0.0.1 5401 upb/kitchen/temp SHORT_REAL 24.30
 * The type is INT, SHORT_REAL, FLOAT or STRING; docs/broker.md has the bytes. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct __attribute__((packed)) publication {
	char topic[50]; /* no NUL behind it where it fills all of this */
	uint8_t type;
	uint8_t content[1500];
};

/* The digits of a decimal number as one whole number; how many of them stand behind the point. */
static int read_decimal(const char *text, uint32_t *value)
{
	unsigned long long whole = 0;
	int decimals = -1;

	for (text += *text == '-'; *text; text++) {
		if (*text == '.') {
			decimals = 0;
			continue;
		}
		whole = whole * 10 + (unsigned long long)(*text - '0');
		decimals += decimals >= 0;
	}
	*value = htonl((uint32_t)whole);
	return decimals < 0 ? 0 : decimals;
}

int main(int argc, char **argv)
{
	struct sockaddr_in where = {.sin_family = AF_INET};
	struct publication sent = {.type = 255};
	size_t size = 0;
	uint32_t value;
	int fd;

	if (argc == 6 && inet_pton(AF_INET, argv[1], &where.sin_addr) == 1 && strlen(argv[3]) <= sizeof sent.topic) {
		int decimals = read_decimal(argv[5], &value);

		memcpy(sent.topic, argv[3], strlen(argv[3]));
		sent.content[0] = argv[5][0] == '-';
		memcpy(sent.content + 1, &value, 4);
		if (!strcmp(argv[4], "INT")) {
			sent.type = 0;
			size = 5;
		} else if (!strcmp(argv[4], "SHORT_REAL") && decimals == 2) {
			sent.type = 1;
			size = 2;
			memmove(sent.content, sent.content + 3, 2); /* the lower half of it */
		} else if (!strcmp(argv[4], "FLOAT")) {
			sent.type = 2;
			size = 6;
			sent.content[5] = (uint8_t)decimals;
		} else if (!strcmp(argv[4], "STRING") && strlen(argv[5]) <= sizeof sent.content) {
			sent.type = 3;
			size = strlen(argv[5]);
			memcpy(sent.content, argv[5], size);
		}
	}
	if (sent.type == 255) {
		fprintf(stderr, "usage: publisher ADDRESS PORT TOPIC INT|SHORT_REAL|FLOAT|STRING VALUE\n"
				"       (a SHORT_REAL has two decimals)\n");
		return 2;
	}
	where.sin_port = htons((uint16_t)atoi(argv[2]));
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	if (fd < 0 || sendto(fd, &sent, 51 + size, 0, (struct sockaddr *)&where, sizeof where) < 0) {
		perror("publisher");
		return 1;
	}
	return 0;
}
