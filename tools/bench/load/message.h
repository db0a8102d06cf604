/* message.h - what is sent: the payload of every message, the BCCN1 datagram around it, and its HMAC.
 * A payload says when it was sent (20 digits of nanoseconds, 0 for "not stamped"), '#', which one it is (9 digits),
 * and is filled up with x; so receivers can tell losses, order and latency without knowing anything else. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include "common.h"
#include <arpa/inet.h>
#include <netinet/in.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define KEY "0123456789abcdef0123456789abcdef" /* in cases.py too */
#define PAYLOAD_MIN 30
#define PAYLOAD_INDEX_MAX 999999999
#define SIZE_LEAST 120
#define SIZE_MOST 1472 /* what travels over Ethernet in one piece */

static inline void put_digits(char *p, uint64_t v, int n)
{
	while (n--) {
		p[n] = (char)('0' + v % 10);
		v /= 10;
	}
}

static inline uint64_t get_digits(const char *p, int n)
{
	uint64_t v = 0;
	while (n--)
		v = v * 10 + (uint64_t)(*p++ - '0');
	return v;
}

static inline void put_payload(char *p, int length, uint64_t stamp, uint64_t index)
{
	put_digits(p, stamp, 20);
	p[20] = '#';
	put_digits(p + 21, index, 9);
	memset(p + PAYLOAD_MIN, 'x', (size_t)(length - PAYLOAD_MIN));
}

/* ---- HMAC-SHA256 with both blocks of the key hashed beforehand, the cheapest way there is ---- */
struct hmac {
	SHA256_CTX inner, outer;
};

static inline void hmac_init(struct hmac *h)
{
	unsigned char key[64] = KEY, block[64];
	for (int i = 0; i < 64; i++)
		block[i] = key[i] ^ 0x36;
	SHA256_Init(&h->inner);
	SHA256_Update(&h->inner, block, 64);
	for (int i = 0; i < 64; i++)
		block[i] = key[i] ^ 0x5c;
	SHA256_Init(&h->outer);
	SHA256_Update(&h->outer, block, 64);
}

static inline void hmac(const struct hmac *h, const void *data, size_t n, unsigned char out[32])
{
	SHA256_CTX c = h->inner;
	SHA256_Update(&c, data, n);
	SHA256_Final(out, &c);
	c = h->outer;
	SHA256_Update(&c, out, 32);
	SHA256_Final(out, &c);
}

/* ---- BCCN1[<length>:hmac=<16 hex>]<src>:<seq>:<chan>|<payload> ---- */
struct datagram {
	const char *body, *chan, *payload;
	int body_length, chan_length, payload_length, has_tag;
	unsigned char tag[8];
};

static inline int hex_value(int c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads the envelope of the datagram at `p`, behind which others may follow; returns where it ends, or NULL. */
static inline const char *datagram_open(const char *p, const char *end, struct datagram *d)
{
	int length = 0;
	if (end - p < 8 || memcmp(p, "BCCN1[", 6))
		return NULL;
	for (p += 6; p < end && *p >= '0' && *p <= '9' && length < 100000; p++)
		length = length * 10 + *p - '0';
	d->has_tag = end - p > 22 && !memcmp(p, ":hmac=", 6);
	if (d->has_tag) {
		p += 6;
		for (int i = 0; i < 8; i++, p += 2) {
			int high = hex_value(p[0]), low = hex_value(p[1]);
			if (high < 0 || low < 0)
				return NULL;
			d->tag[i] = (unsigned char)(high << 4 | low);
		}
	}
	if (p >= end || *p++ != ']' || end - p < length)
		return NULL;
	d->body = p;
	d->body_length = length;
	return p + length;
}

/* The same with channel and payload. */
static inline const char *datagram_read(const char *p, const char *end, struct datagram *d)
{
	const char *q;
	if (!(end = datagram_open(p, end, d)) || !(q = memchr(d->body, ':', (size_t)d->body_length)) ||
	    !(q = memchr(q + 1, ':', (size_t)(end - q - 1))))
		return NULL;
	d->chan = q + 1;
	if (!(q = memchr(d->chan, '|', (size_t)(end - d->chan))))
		return NULL;
	d->chan_length = (int)(q - d->chan);
	d->payload = q + 1;
	d->payload_length = (int)(end - d->payload);
	return end;
}

static inline int datagram_is_signed(const struct hmac *h, const struct datagram *d)
{
	unsigned char out[32];
	if (!d->has_tag)
		return 0;
	hmac(h, d->body, (size_t)d->body_length, out);
	return !memcmp(out, d->tag, 8);
}

/* ---- sockets that cannot leave this host ---- */
static inline struct sockaddr_in loopback(const char *address, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	if (inet_pton(AF_INET, address, &a.sin_addr) != 1 || ntohl(a.sin_addr.s_addr) >> 24 != 127)
		refuse("only addresses in 127.0.0.0/8: this load is for no network");
	return a;
}

static inline int udp_listen(const char *address, int port)
{
	struct sockaddr_in a = loopback(address, port);
	int one = 1, buffer = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
	if (bind(fd, (struct sockaddr *)&a, sizeof a))
		die("bind");
	return fd;
}
#endif
