/* bccn.h - programs in C or C++ on the bus of bccnd: one header, libc, nothing else.
 * SPDX-License-Identifier: MIT
 *
 *	static char buffer[BCCN_BUFFER];
 *	struct bccn bus;
 *	struct bccn_event got;
 *
 *	if (bccn_connect(&bus, NULL, buffer, sizeof buffer) == 0 && bccn_subscribe(&bus, "demo/") == 0)
 *		while (bccn_receive(&bus, -1, &got) > 0)
 *			if (got.kind == BCCN_MESSAGE)
 *				printf("%s %.*s\n", got.key, (int)got.length, got.payload);
 *
 * C99 or C++11, Linux; with -std=c99 include this first, or define _POSIX_C_SOURCE=200809L. Nothing is allocated, no
 * signal is raised, nothing is printed.
 *
 * Threads: there is no state but that in struct bccn and your buffer. Several threads may use several connections at
 * once, each with a buffer of its own; two that share one take turns by a lock of yours. After fork() the child leaves
 * the connection of its parent alone, and makes its own.
 *
 * What an event points to lies in your buffer, until the next bccn_receive, bccn_ask or bccn_sync: these may take one
 * packet for several events, so leave the buffer alone. Where timeout_ms is asked for, -1 waits for ever and 0 not.
 *
 * bccn_run asks for batches: the daemon puts messages that wait for you into one packet, at a fraction of the cost. Other
 * programs ask with bccn_control(&bus, "!/bccn/batch/on", NULL, 0). bccn_receive hands them out one by one, from where they lie; what it hands out and in which
 * order is the same. The rest of such a batch lies in your buffer, and poll(2) does not know of it: after each poll call
 * bccn_receive(&bus, 0, &got) until it returns 0, or do not wait in poll while bccn_pending(&bus) is not 0.
 *
 * bccn_control(&bus, "!/bccn/local/on", NULL, 0) keeps what you publish on this host: nothing of it is broadcast. Ask
 * bccn_sync before you rely on it: a daemon too old to know it says unknown_control.
 *
 * Functions return 0, and -1 with errno for:
 *   EPIPE     the connection is over: bccn_close, then connect and subscribe again, or leave that to
 *             bccn_receive_again; what is sent meanwhile you miss
 *   EINTR     a signal handler without SA_RESTART has run, and nothing else was done
 *   EMSGSIZE  sending: more than BCCN_MAX_PACKET, or more than the kernel takes; receiving: a packet larger than your
 *             buffer is lost, and the next call goes on behind it
 *   EBADMSG   receiving: a packet that is no frame of the bus, or a batch that is not in order, is dropped as a whole,
 *             and the next call goes on behind it
 *   EAGAIN    sending: the daemon is busy, and you have made bus.fd non-blocking
 *   ETIMEDOUT, ENOTSUP  see bccn_ask
 * and what socket(2) and connect(2) say: ENOENT and ECONNREFUSED where no daemon is, EACCES where you may not. */
#ifndef BCCN_H
#define BCCN_H

/* the version of bccnd that this header came with, and the same as a number: 1.2.3 is 10203 */
#define BCCN_VERSION "2.0.0"
#define BCCN_VERSION_NUMBER 20000

#if defined(__STRICT_ANSI__) && !defined(_POSIX_C_SOURCE) && !defined(_GNU_SOURCE) && !defined(_DEFAULT_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* the largest packet that may be sent, and a buffer for the largest that may come: with meta, and a NUL behind it */
#define BCCN_MAX_PACKET 409600
#define BCCN_BUFFER (BCCN_MAX_PACKET + 4096)
/* the largest batch: a smaller buffer than this and one byte more cannot take all */
#define BCCN_MAX_BATCH 65536
/* ends the payload of each bccn_sync */
#define BCCN_SYNC_ " of bccn.h"

/* One connection. fd is yours to poll for input; with bccn_receive(&bus, 0, &got) until it returns 0. */
struct bccn {
	int fd;
	int meta;
	unsigned long syncs;
	char *buffer;
	size_t size;
	unsigned long pending; /* messages of a batch that are still to be handed out */
	char *next;            /* the first of them, and its size */
	size_t next_size;
	char asked[64]; /* the key of the last bccn_ask, until its answer has come: it may come after that gave up */
};

enum bccn_kind {
	BCCN_MESSAGE = 1, /* key, payload, length; with meta on, src, seq, received_ns, peer */
	BCCN_GAP,         /* here `lost` messages were dropped, because you did not read fast enough; 0: unknown, a crash */
	BCCN_REFUSAL,     /* the daemon refused what you have sent: reason, and in key and payload what it was about */
	BCCN_ANSWER,      /* any other control message: key, payload, length */
	BCCN_RECONNECTED  /* only from bccn_receive_again: here the daemon was away; what was sent meanwhile is missing */
};

/* What came. No pointer is ever NULL except src and peer, and all texts end with a NUL; so does the payload, which may
 * hold others, and length does not count the last. */
struct bccn_event {
	enum bccn_kind kind;
	const char *key;
	const char *payload;
	size_t length;
	const char *reason;
	unsigned long long lost;
	const char *src; /* NULL without meta */
	const char *peer;
	unsigned long long seq;
	unsigned long long received_ns; /* since 1970 */
};

/* What a connection is made for, again and again: where the daemon is (as for bccn_connect), which control messages it
 * gets first ("!/bccn/meta/on"), and what is subscribed to. Each list ends with a NULL; a list that is NULL is empty. */
struct bccn_plan {
	const char *path;
	const char *const *controls;
	const char *const *patterns;
};

/* Gets what comes before an answer that is waited for. */
typedef void bccn_each(void *arg, const struct bccn_event *event);

/* Gets what comes to bccn_run; anything but 0 ends that. */
typedef int bccn_handle(void *arg, const struct bccn_event *event);

/* -- inside */

static inline int bccn_over_(void)
{
	if (errno == ECONNRESET || errno == ENOTCONN)
		errno = EPIPE;
	return -1;
}

static inline long long bccn_now_ms_(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Sends a packet; with a timeout of 0 or more, only while there is time. */
static inline int bccn_send_packet_(int fd, const struct msghdr *packet, int timeout_ms)
{
	long long deadline = timeout_ms > 0 ? bccn_now_ms_() + timeout_ms : 0, left;
	struct pollfd state;

	for (;;) {
		if (sendmsg(fd, packet, MSG_NOSIGNAL | (timeout_ms < 0 ? 0 : MSG_DONTWAIT)) >= 0)
			return 0;
		if (timeout_ms < 0 || (errno != EAGAIN && errno != ENOBUFS))
			return bccn_over_();
		left = timeout_ms > 0 ? deadline - bccn_now_ms_() : 0;
		if (left <= 0) {
			errno = ETIMEDOUT;
			return -1;
		}
		state.fd = fd;
		state.events = POLLOUT;
		state.revents = 0;
		if (poll(&state, 1, (int)left) < 0)
			return -1;
		/* There may be room, and too little of it. */
		if (state.revents && poll(NULL, 0, 1) < 0)
			return -1;
	}
}

/* Sends "<verb> <key>", and behind a NUL the payload. Parts, so that nothing has to be copied. */
static inline int bccn_send_(struct bccn *bus, const char *verb, const char *key, int with_payload,
			     const void *payload, size_t length, int timeout_ms)
{
	struct iovec parts[4];
	struct msghdr packet;

	parts[0].iov_base = (void *)verb;
	parts[0].iov_len = strlen(verb);
	parts[1].iov_base = (void *)key;
	parts[1].iov_len = strlen(key);
	parts[2].iov_base = (void *)"";
	parts[2].iov_len = 1;
	parts[3].iov_base = (void *)payload;
	parts[3].iov_len = with_payload ? length : 0;
	if (parts[1].iov_len > BCCN_MAX_PACKET || parts[3].iov_len > BCCN_MAX_PACKET ||
	    parts[0].iov_len + parts[1].iov_len + parts[3].iov_len + !!with_payload > BCCN_MAX_PACKET) {
		errno = EMSGSIZE;
		return -1;
	}
	memset(&packet, 0, sizeof packet);
	packet.msg_iov = parts;
	packet.msg_iovlen = with_payload ? 4 : 2;
	return bccn_send_packet_(bus->fd, &packet, timeout_ms);
}

/* Whether nothing more will come: the daemon has hung up, and nothing is left to be read. */
static inline int bccn_ended_(int fd)
{
	struct pollfd state;
	int unread = 0;

	state.fd = fd;
#ifdef POLLRDHUP
	state.events = POLLRDHUP;
#else
	state.events = 0x2000; /* POLLRDHUP, which POSIX does not have */
#endif
	state.revents = 0;
	return poll(&state, 1, 0) == 1 && ioctl(fd, FIONREAD, &unread) == 0 && unread == 0;
}

/* The next packet's true size, which may be more than the buffer has taken; 0 when the time is over. */
static inline ssize_t bccn_packet_(struct bccn *bus, int timeout_ms)
{
	long long deadline = timeout_ms > 0 ? bccn_now_ms_() + timeout_ms : 0, left;
	struct pollfd state;
	ssize_t size;
	int resets = 0, ready;

	for (;;) {
		size = recv(bus->fd, bus->buffer, bus->size - 1, MSG_TRUNC | (timeout_ms < 0 ? 0 : MSG_DONTWAIT));
		if (size > 0)
			return size;
		if (size < 0 && errno == ECONNRESET && !resets++)
			continue; /* said once, when the daemon has not read all; what it sent before is still there */
		if (size < 0 && errno != EAGAIN)
			return bccn_over_();
		if (size == 0) { /* an empty packet, which says nothing, or the end */
			if (!bccn_ended_(bus->fd))
				continue;
			errno = EPIPE;
			return -1;
		}
		left = timeout_ms > 0 ? deadline - bccn_now_ms_() : timeout_ms;
		if (timeout_ms >= 0 && left <= 0)
			return 0;
		state.fd = bus->fd;
		state.events = POLLIN;
		state.revents = 0;
		ready = poll(&state, 1, (int)left);
		if (ready < 0)
			return -1;
	}
}

/* Reads a number that is written from begin up to end. */
static inline int bccn_number_(const char *begin, const char *end, unsigned long long *out)
{
	unsigned long long number = 0, digit;

	if (begin == end)
		return -1;
	for (; begin < end; begin++) {
		if (*begin < '0' || *begin > '9')
			return -1;
		digit = (unsigned long long)(*begin - '0');
		if (number > (~0ULL - digit) / 10)
			return -1;
		number = number * 10 + digit;
	}
	*out = number;
	return 0;
}

/* Whether messages on a key carry meta: those on a legal channel do. */
static inline int bccn_has_meta_(const char *key)
{
	size_t length = strlen(key), i;

	if (length == 0 || length > 1024 || (key[0] == '!' && (key[1] == '/' || key[1] == '?')))
		return 0;
	for (i = 0; i < length; i++)
		if (key[i] < 0x21 || key[i] > 0x7e || key[i] == ':' || key[i] == '|')
			return 0;
	return 1;
}

/* Takes "<src>:<seq>:<received_ns>:<peer>|" off a payload; one without it stays as it is. */
static inline void bccn_take_meta_(char *payload, struct bccn_event *event)
{
	unsigned long long seq, received_ns;
	char *bar, *first, *second, *third;

	if (!(bar = (char *)memchr(payload, '|', event->length)) ||
	    !(first = (char *)memchr(payload, ':', (size_t)(bar - payload))) ||
	    !(second = (char *)memchr(first + 1, ':', (size_t)(bar - first - 1))) ||
	    !(third = (char *)memchr(second + 1, ':', (size_t)(bar - second - 1))) ||
	    memchr(payload, '\0', (size_t)(bar - payload)) || bccn_number_(first + 1, second, &seq) ||
	    bccn_number_(second + 1, third, &received_ns))
		return;
	*first = *bar = '\0';
	event->src = payload;
	event->seq = seq;
	event->received_ns = received_ns;
	event->peer = third + 1;
	event->payload = bar + 1;
	event->length -= (size_t)(bar + 1 - payload);
}

static inline int bccn_bad_(void)
{
	errno = EBADMSG;
	return -1;
}

/* The number of bytes that stands before a message in a batch. */
static inline size_t bccn_prefix_(const char *at)
{
	const unsigned char *byte = (const unsigned char *)at;

	return byte[0] | (size_t)byte[1] << 8 | (size_t)byte[2] << 16 | (size_t)byte[3] << 24;
}

/* Makes a batch ("MSGS <n>", a NUL, n times a length and a whole MSG) what is handed out next. All of it is looked at
 * first, and no length is believed. */
static inline int bccn_open_batch_(struct bccn *bus, char *packet, size_t size)
{
	char *end = packet + size, *at = (char *)memchr(packet, '\0', size);
	unsigned long long count, left;
	size_t length;

	if (!at || bccn_number_(packet + 5, at, &count) || count == 0 || count > size)
		return bccn_bad_();
	bus->next = ++at;
	for (left = count; left; left--, at += length) {
		if (end - at < 4 || (length = bccn_prefix_(at)) > (size_t)(end - at) - 4)
			return bccn_bad_();
		at += 4;
		if (length < 4 || memcmp(at, "MSG ", 4) || !memchr(at, '\0', length))
			return bccn_bad_();
	}
	if (at != end)
		return bccn_bad_();
	bus->pending = (unsigned long)count;
	bus->next_size = bccn_prefix_(bus->next);
	bus->next += 4;
	return 0;
}

/* Takes a frame apart in place; the byte behind it is ours, too. */
static inline int bccn_parse_(char *packet, size_t size, int meta, struct bccn_event *event)
{
	int control = size >= 5 && !memcmp(packet, "CMSG ", 5);
	char *end = packet + size, *key, *nul, *blank, *payload;

	memset(event, 0, sizeof *event);
	*end = '\0';
	if (!control && (size < 4 || memcmp(packet, "MSG ", 4)))
		return bccn_bad_();
	key = packet + (control ? 5 : 4);
	nul = (char *)memchr(key, '\0', (size_t)(end - key));
	if (!nul && !control)
		return bccn_bad_();
	payload = nul ? nul + 1 : end;
	event->kind = control ? BCCN_ANSWER : BCCN_MESSAGE;
	event->key = key;
	event->payload = payload;
	event->length = (size_t)(end - payload);
	event->reason = end;
	if (!control && meta && bccn_has_meta_(key))
		bccn_take_meta_(payload, event);
	if (control && !strcmp(key, "!/bccn/gap")) {
		event->kind = BCCN_GAP;
		if (bccn_number_(payload, end, &event->lost))
			return bccn_bad_();
	}
	if (control && !strcmp(key, "!/bccn/error")) {
		event->kind = BCCN_REFUSAL;
		event->reason = payload;
		blank = (char *)memchr(payload, ' ', event->length);
		event->key = event->payload = blank ? blank + 1 : end;
		event->length = (size_t)(end - event->key);
		if (blank)
			*blank = '\0';
	}
	return 0;
}

/* -- for programs */

/* Connects to the daemon at a path or, with "@name", at an abstract address; at $BCCN_SOCKET where path is NULL or
 * empty, at /run/bccnd/bus.sock where that is, too. Everything that comes must fit in the buffer (BCCN_BUFFER). */
static inline int bccn_connect(struct bccn *bus, const char *path, char *buffer, size_t size)
{
	struct sockaddr_un to;
	int room = BCCN_MAX_PACKET, failed;
	size_t length;

	memset(bus, 0, sizeof *bus);
	bus->fd = -1;
	bus->buffer = buffer;
	bus->size = size;
	if (!path || !*path)
		path = getenv("BCCN_SOCKET");
	if (!path || !*path)
		path = "/run/bccnd/bus.sock";
	length = strlen(path) + (*path != '@'); /* the name of an abstract address has no NUL at its end */
	if (length > sizeof to.sun_path || size == 0) {
		errno = size ? ENAMETOOLONG : EINVAL;
		return -1;
	}
	memset(&to, 0, sizeof to);
	to.sun_family = AF_UNIX;
	memcpy(to.sun_path, path, length);
	if (*path == '@')
		to.sun_path[0] = '\0';
	bus->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bus->fd < 0)
		return -1;
	/* Without room for the largest packet, what is larger than 208 KiB could not be sent. */
	setsockopt(bus->fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
	if (!connect(bus->fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)))
		return 0;
	failed = errno;
	close(bus->fd);
	bus->fd = -1;
	errno = failed;
	return -1;
}

/* Ends the connection; what was sent before still reaches the daemon. Does nothing where there is none. */
static inline void bccn_close(struct bccn *bus)
{
	if (bus->fd >= 0)
		close(bus->fd);
	bus->fd = -1;
	bus->pending = 0;
}

static inline int bccn_subscribe(struct bccn *bus, const char *pattern)
{
	return bccn_send_(bus, "SUB ", pattern, 0, NULL, 0, -1);
}

static inline int bccn_unsubscribe(struct bccn *bus, const char *pattern)
{
	return bccn_send_(bus, "UNSUB ", pattern, 0, NULL, 0, -1);
}

/* Sends a message to the programs of this host and to the segment. Waits while the daemon is busy; whether it has
 * refused it is told by a later event, and for certain by bccn_sync. */
static inline int bccn_publish(struct bccn *bus, const char *key, const void *payload, size_t length)
{
	return bccn_send_(bus, "MSG ", key, 1, payload, length, -1);
}

static inline int bccn_control_(struct bccn *bus, const char *key, const void *payload, size_t length, int timeout_ms)
{
	int failed = bccn_send_(bus, "CMSG ", key, payload != NULL, payload, length, timeout_ms);

	if (!failed && !strcmp(key, "!/bccn/meta/on"))
		bus->meta = 1;
	if (!failed && !strcmp(key, "!/bccn/meta/off"))
		bus->meta = 0;
	return failed;
}

/* Sends a control message; a payload of NULL sends none. Ask for "!/bccn/meta/on" before you subscribe, so that no
 * message without it comes when you count on it. */
static inline int bccn_control(struct bccn *bus, const char *key, const void *payload, size_t length)
{
	return bccn_control_(bus, key, payload, length, -1);
}

/* How many messages the next calls of bccn_receive will find in your buffer, whether or not there is more to read. */
static inline unsigned long bccn_pending(const struct bccn *bus)
{
	return bus->pending;
}

/* As bccn_receive, with answers that come too late. */
static inline int bccn_next_(struct bccn *bus, int timeout_ms, struct bccn_event *event)
{
	char *frame = bus->buffer;
	ssize_t size;

	if (!bus->pending) {
		size = bccn_packet_(bus, timeout_ms);
		if (size <= 0)
			return (int)size;
		if ((size_t)size >= bus->size) {
			errno = EMSGSIZE;
			return -1;
		}
		if (size < 5 || memcmp(frame, "MSGS ", 5))
			return bccn_parse_(frame, (size_t)size, bus->meta, event) ? -1 : 1;
		if (bccn_open_batch_(bus, frame, (size_t)size))
			return -1;
	}
	frame = bus->next;
	size = (ssize_t)bus->next_size;
	if (--bus->pending) { /* before the NUL behind this one's payload is put where the next one's length is */
		bus->next_size = bccn_prefix_(frame + size);
		bus->next = frame + size + 4;
	}
	return bccn_parse_(frame, (size_t)size, bus->meta, event) ? -1 : 1;
}

/* Whether this is the answer to a bccn_ask or bccn_sync that was given up. */
static inline int bccn_is_late_(struct bccn *bus, const struct bccn_event *event)
{
	if (event->kind != BCCN_ANSWER)
		return 0;
	if (bus->asked[0] && !strcmp(event->key, bus->asked)) {
		bus->asked[0] = '\0';
		return 1;
	}
	return !strcmp(event->key, "!/bccn/sync") && strstr(event->payload, BCCN_SYNC_) != NULL;
}

/* Waits for what comes next. Returns 1 with an event, 0 when the time is over, -1 with errno. */
static inline int bccn_receive(struct bccn *bus, int timeout_ms, struct bccn_event *event)
{
	long long deadline = timeout_ms > 0 ? bccn_now_ms_() + timeout_ms : 0;
	int got;

	while ((got = bccn_next_(bus, timeout_ms, event)) > 0 && bccn_is_late_(bus, event))
		if (timeout_ms > 0 && (timeout_ms = (int)(deadline - bccn_now_ms_())) < 0)
			timeout_ms = 0;
	return got;
}

/* Waits for the answer under a key; where echo is not NULL, for the one with this payload. */
static inline int bccn_await_(struct bccn *bus, const char *key, const char *echo, int timeout_ms, long long deadline,
			      bccn_each *each, void *arg, struct bccn_event *answer)
{
	long long left = timeout_ms;
	int got;

	while ((got = bccn_next_(bus, (int)left, answer)) > 0) {
		if (answer->kind == BCCN_ANSWER && !strcmp(answer->key, key) &&
		    (!echo || (answer->length == strlen(echo) && !memcmp(answer->payload, echo, answer->length)))) {
			bus->asked[0] = '\0'; /* by a sync too: what was not answered before it never will be */
			return 0;
		}
		if (answer->kind == BCCN_REFUSAL && !strcmp(answer->key, key)) {
			bus->asked[0] = '\0';
			errno = ENOTSUP;
			return -1;
		}
		if (!bccn_is_late_(bus, answer) && each)
			each(arg, answer);
		if (timeout_ms >= 0 && (left = deadline - bccn_now_ms_()) < 0) {
			got = 0; /* though there may be no end of what comes */
			break;
		}
	}
	if (got == 0)
		errno = ETIMEDOUT;
	return -1;
}

/* Waits until the daemon is done with all that you have sent; each gets the refusals, too. Errors as for bccn_ask. */
static inline int bccn_sync(struct bccn *bus, int timeout_ms, bccn_each *each, void *arg)
{
	struct bccn_event answer;
	char token[40];
	int length = snprintf(token, sizeof token, "%lu" BCCN_SYNC_, ++bus->syncs);
	long long deadline = bccn_now_ms_() + timeout_ms;

	if (bccn_control_(bus, "!/bccn/sync", token, (size_t)length, timeout_ms))
		return -1;
	return bccn_await_(bus, "!/bccn/sync", token, timeout_ms, deadline, each, arg, &answer);
}

/* Sends a control message and waits for its answer ("!/bccn/whoami"). What comes before it, what is left of a batch
 * first, goes to each(arg, event), or nowhere with a NULL. ETIMEDOUT: no answer; ENOTSUP: the daemon knows no such
 * thing, and *answer says why. An answer that comes later is dropped: after an error, this first waits for a sync. */
static inline int bccn_ask(struct bccn *bus, const char *key, const void *payload, size_t length, int timeout_ms,
			   bccn_each *each, void *arg, struct bccn_event *answer)
{
	long long deadline = bccn_now_ms_() + timeout_ms;
	size_t size = strlen(key);

	if (bus->asked[0]) {
		if (bccn_sync(bus, timeout_ms, each, arg))
			return -1;
		if (timeout_ms >= 0 && (timeout_ms = (int)(deadline - bccn_now_ms_())) < 0)
			timeout_ms = 0;
	}
	if (bccn_control_(bus, key, payload, length, timeout_ms))
		return -1;
	memcpy(bus->asked, key, size < sizeof bus->asked ? size + 1 : sizeof bus->asked - 1);
	return bccn_await_(bus, key, NULL, timeout_ms, deadline, each, arg, answer);
}

/* Connects as bccn_connect does, sends the control messages of a plan, and subscribes to its patterns. Whether and why
 * one is refused comes as an event. */
static inline int bccn_join(struct bccn *bus, const struct bccn_plan *plan, char *buffer, size_t size)
{
	const char *const *one;
	int failed = bccn_connect(bus, plan->path, buffer, size), why;

	for (one = plan->controls; !failed && one && *one; one++)
		failed = bccn_control(bus, *one, NULL, 0);
	for (one = plan->patterns; !failed && one && *one; one++)
		failed = bccn_subscribe(bus, *one);
	if (failed) {
		why = errno;
		bccn_close(bus);
		errno = why;
	}
	return failed;
}

/* As bccn_receive, but where the connection is over it joins again, every 50 ms at first and every second later, and
 * then returns BCCN_RECONNECTED: subscriptions are in force again, and what was sent meanwhile is missing. While the
 * daemon is away bus->fd is -1. */
static inline int bccn_receive_again(struct bccn *bus, const struct bccn_plan *plan, int timeout_ms,
				     struct bccn_event *event)
{
	long long deadline = bccn_now_ms_() + timeout_ms, left;
	int pause = 50, got;

	if (bus->fd >= 0) {
		got = bccn_receive(bus, timeout_ms, event);
		if (got >= 0 || errno != EPIPE)
			return got;
		bccn_close(bus);
	}
	while (bccn_join(bus, plan, bus->buffer, bus->size)) {
		left = timeout_ms < 0 ? pause : deadline - bccn_now_ms_();
		if (left <= 0)
			return 0;
		if (poll(NULL, 0, left < pause ? (int)left : pause) < 0)
			return -1;
		pause = pause < 500 ? 2 * pause : 1000;
	}
	memset(event, 0, sizeof *event);
	event->kind = BCCN_RECONNECTED;
	event->key = event->payload = event->reason = "";
	return 1;
}

/* Passes what comes to handle(arg, event), as bccn_receive_again gets it, until that returns something else than 0, and
 * returns this; -1 with errno for an error: call it again to go on. Until it returns, messages that wait come in batches.
 * Call bccn_join before. A rest of the last batch may be left: see bccn_pending. */
static inline int bccn_run(struct bccn *bus, const struct bccn_plan *plan, bccn_handle *handle, void *arg)
{
	struct bccn_event event;
	int result = 0, asks = 1;

	while (!result) {
		if (asks && bus->fd >= 0)
			bccn_control(bus, "!/bccn/batch/on", NULL, 0); /* a connection that is over is noticed below */
		if (bccn_receive_again(bus, plan, -1, &event) < 0)
			return -1;
		asks = event.kind == BCCN_RECONNECTED;
		if (event.kind != BCCN_REFUSAL || strcmp(event.key, "!/bccn/batch/on")) /* an old daemon is used without */
			result = handle(arg, &event);
	}
	if (bus->fd >= 0)
		bccn_control(bus, "!/bccn/batch/off", NULL, 0);
	return result;
}

#ifdef __cplusplus
}
#endif
#endif
