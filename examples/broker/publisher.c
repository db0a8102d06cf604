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

struct number {
	int negative;
	uint32_t digits; /* all of them as one whole number */
	int decimals; /* how many of them stand behind the point */
};

/* Reads a decimal number to its last character: digits, at most one point with digits on both sides, and a minus. 0, or
 * -1 where it is none, or where its digits do not fit. */
static int read_number(const char *text, struct number *number)
{
	unsigned long long digits = 0;
	const char *point = NULL, *first;

	*number = (struct number){0, 0, 0};
	number->negative = *text == '-';
	first = text += number->negative;
	for (; *text; text++) {
		if (*text == '.' && !point && text > first) {
			point = text;
			continue;
		}
		if (*text < '0' || *text > '9')
			return -1;
		digits = digits * 10 + (unsigned long long)(*text - '0');
		if (digits > UINT32_MAX)
			return -1;
	}
	number->decimals = point ? (int)(text - point - 1) : 0;
	number->digits = (uint32_t)digits;
	return text == first || (point && !number->decimals) || number->decimals > UINT8_MAX ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in where = {.sin_family = AF_INET};
	struct publication sent = {.type = 255};
	size_t size = 0;
	struct number number;
	uint32_t value;
	int fd, is_number;

	if (argc == 6 && inet_pton(AF_INET, argv[1], &where.sin_addr) == 1 && strlen(argv[3]) <= sizeof sent.topic) {
		is_number = read_number(argv[5], &number) == 0;
		value = htonl(number.digits);
		memcpy(sent.topic, argv[3], strlen(argv[3]));
		sent.content[0] = (uint8_t)number.negative;
		memcpy(sent.content + 1, &value, 4);
		if (!strcmp(argv[4], "INT") && is_number && !number.decimals) {
			sent.type = 0;
			size = 5;
		} else if (!strcmp(argv[4], "SHORT_REAL") && is_number && number.decimals == 2 && !number.negative
			   && number.digits <= UINT16_MAX) {
			sent.type = 1;
			size = 2;
			memmove(sent.content, sent.content + 3, 2); /* the lower half of it */
		} else if (!strcmp(argv[4], "FLOAT") && is_number) {
			sent.type = 2;
			size = 6;
			sent.content[5] = (uint8_t)number.decimals;
		} else if (!strcmp(argv[4], "STRING") && strlen(argv[5]) <= sizeof sent.content) {
			sent.type = 3;
			size = strlen(argv[5]);
			memcpy(sent.content, argv[5], size);
		}
	}
	if (sent.type == 255) {
		fprintf(stderr, "usage: publisher ADDRESS PORT TOPIC INT|SHORT_REAL|FLOAT|STRING VALUE\n"
				"       INT: -4294967295 to 4294967295; SHORT_REAL: 0.00 to 655.35, with two decimals;\n"
				"       FLOAT: at most 4294967295 without its point; STRING: at most 1500 bytes\n");
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
