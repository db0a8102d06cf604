/* peer - a small BCCN program in C, written from the protocol's text and sharing no line with bccnd.
 *
 *   peer send ADDRESS PORT SRC FIRST_SEQ CHAN   a datagram for each line of stdin
 *   peer listen ADDRESS PORT                    prints "src seq chan payload" of each datagram
 *
 * It has the habits of the reference programs in C: it sends from whatever port it is given, goes up to 1500 bytes,
 * refuses every datagram that carries a check, and knows no "!": that is part of a name like any other character.
 *
 *   cc -Wall -Wextra -Werror -O1 -o peer peer.c
 */
#define _GNU_SOURCE /* getline */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LARGEST 1500

struct message {
	char *src, *seq, *chan, *payload;
	size_t size; /* of the payload, which may hold any byte */
};

static int is_number(const char *text)
{
	return *text && text[strspn(text, "0123456789")] == '\0';
}

/* Takes a datagram apart in place; a NUL must stand behind it. Returns what is wrong with it, or NULL. */
static const char *take_apart(char *datagram, size_t size, struct message *out)
{
	char *end = datagram + size, *inside = datagram + strlen("BCCN1["), *closing, *body, *bar;

	if (strncmp(datagram, "BCCN1[", strlen("BCCN1[")) || !(closing = memchr(inside, ']', end - inside)))
		return "no envelope of BCCN1";
	*closing = '\0';
	body = closing + 1;
	if (strchr(inside, ':'))
		return "carries a check";
	if (!is_number(inside) || strtoul(inside, NULL, 10) != (size_t)(end - body))
		return "not as long as it says";
	if (!(bar = memchr(body, '|', end - body)))
		return "no payload";
	*bar = '\0';
	out->src = body;
	out->seq = strchr(body, ':');
	out->chan = out->seq ? strchr(out->seq + 1, ':') : NULL;
	if (!out->chan || strlen(body) != (size_t)(bar - body) || strchr(out->chan + 1, ':'))
		return "not three fields";
	*out->seq++ = '\0';
	*out->chan++ = '\0';
	if (!is_number(out->seq))
		return "seq is no number";
	out->payload = bar + 1;
	out->size = end - out->payload;
	return NULL;
}

static int listening(int sock, struct sockaddr_in *at)
{
	static char datagram[65536 + 1];
	struct message got;
	const char *wrong;
	ssize_t size;
	int on = 1;

	/* Other BCCN programs of this host listen on the same port. */
	if (setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || bind(sock, (struct sockaddr *)at, sizeof *at)) {
		perror("bind");
		return 1;
	}
	while ((size = recv(sock, datagram, sizeof datagram - 1, 0)) >= 0) {
		datagram[size] = '\0';
		if ((wrong = take_apart(datagram, size, &got))) {
			fprintf(stderr, "refused: %s\n", wrong);
			continue;
		}
		printf("%s %s %s ", got.src, got.seq, got.chan);
		fwrite(got.payload, 1, got.size, stdout);
		putchar('\n');
		fflush(stdout); /* whoever reads this waits for it */
	}
	perror("recv");
	return 1;
}

static int sending(int sock, struct sockaddr_in *to, const char *src, const char *first_seq, const char *chan)
{
	static char body[LARGEST + 1], datagram[2 * LARGEST];
	unsigned long long seq = strtoull(first_seq, NULL, 10);
	char *line = NULL;
	size_t room = 0;
	ssize_t size;
	int on = 1;

	if (setsockopt(sock, SOL_SOCKET, SO_BROADCAST, &on, sizeof on)) {
		perror("SO_BROADCAST");
		return 1;
	}
	for (; (size = getline(&line, &room, stdin)) >= 0; seq++) {
		if (size && line[size - 1] == '\n')
			size--;
		int head = snprintf(body, sizeof body, "%s:%llu:%s|", src, seq, chan);
		if (head + size > LARGEST) {
			fprintf(stderr, "too long\n");
			return 1;
		}
		memcpy(body + head, line, size);
		size += head;
		int start = snprintf(datagram, sizeof datagram, "BCCN1[%zd]", size);
		if (start + size > LARGEST) {
			fprintf(stderr, "too long\n");
			return 1;
		}
		memcpy(datagram + start, body, size);
		if (sendto(sock, datagram, start + size, 0, (struct sockaddr *)to, sizeof *to) < 0) {
			perror("sendto");
			return 1;
		}
	}
	free(line);
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	int sock = socket(AF_INET, SOCK_DGRAM, 0);

	if (argc >= 4 && sock >= 0 && inet_pton(AF_INET, argv[2], &address.sin_addr) == 1) {
		address.sin_port = htons(atoi(argv[3]));
		if (!strcmp(argv[1], "send") && argc == 7)
			return sending(sock, &address, argv[4], argv[5], argv[6]);
		if (!strcmp(argv[1], "listen") && argc == 4)
			return listening(sock, &address);
	}
	fprintf(stderr, "usage: peer send ADDRESS PORT SRC FIRST_SEQ CHAN | peer listen ADDRESS PORT\n");
	return 2;
}
