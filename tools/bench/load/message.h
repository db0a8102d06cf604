/* message.h - what is sent: the payload of every message, the BCCN1 datagram around it, and its HMAC.
 * A payload has the time at which it was made (20 digits of nanoseconds), '#', its index (9 digits), and is filled up
 * with x. So receivers know losses, order and latency. */
#ifndef MESSAGE_H
#define MESSAGE_H

#include "common.h"
#include <arpa/inet.h>
#include <netinet/in.h>

#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#define KEY "0123456789abcdef0123456789abcdef" /* in relays.py too */
#define HMAC_DIGITS 16
#define PAYLOAD_MIN 30

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

static inline void hmac(const struct hmac *h, const void *data, size_t n, char digits[HMAC_DIGITS])
{
	unsigned char out[32];
	SHA256_CTX c = h->inner;
	SHA256_Update(&c, data, n);
	SHA256_Final(out, &c);
	c = h->outer;
	SHA256_Update(&c, out, 32);
	SHA256_Final(out, &c);
	for (int i = 0; i < HMAC_DIGITS; i++)
		digits[i] = "0123456789abcdef"[out[i / 2] >> (i % 2 ? 0 : 4) & 15];
}

/* ---- BCCN1[<length>:hmac=<16 hex>]<src>:<seq>:<chan>|<payload> ---- */
struct datagram {
	const char *sum, *body, *chan, *payload;
	int body_length, chan_length, payload_length;
};

/* Reads the envelope of the signed datagram at `p`, behind which others may follow; returns where it ends, or NULL. */
static inline const char *datagram_open(const char *p, const char *end, struct datagram *d)
{
	int length = 0;
	if (end - p < 8 || memcmp(p, "BCCN1[", 6))
		return NULL;
	for (p += 6; p < end && *p >= '0' && *p <= '9' && length < 100000; p++)
		length = length * 10 + *p - '0';
	if (end - p < 23 || memcmp(p, ":hmac=", 6) || p[22] != ']' || end - p - 23 < length)
		return NULL;
	d->sum = p + 6;
	d->body = p + 23;
	d->body_length = length;
	return d->body + length;
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
	char sum[HMAC_DIGITS];
	hmac(h, d->body, (size_t)d->body_length, sum);
	return !memcmp(sum, d->sum, HMAC_DIGITS);
}

/* Writes the datagram with this body; returns where it ends. */
static inline char *datagram_write(const struct hmac *h, char *out, const char *body, size_t n)
{
	out += sprintf(out, "BCCN1[%zu:hmac=", n);
	hmac(h, body, n, out);
	out[HMAC_DIGITS] = ']';
	memcpy(out + HMAC_DIGITS + 1, body, n);
	return out + HMAC_DIGITS + 1 + n;
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

static inline int udp_sender(const char *address, int port)
{
	struct sockaddr_in to = loopback(address, port);
	int one = 1, buffer = 4 << 20, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
	if (connect(fd, (struct sockaddr *)&to, sizeof to))
		die("connect");
	return fd;
}
#endif
