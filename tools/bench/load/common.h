/* common.h - clock, CPU time, numbers and errors of the load programs.
 * What cannot be measured as asked for ends the program with status 2 and a line that says why. */
#ifndef COMMON_H
#define COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline void die(const char *what)
{
	perror(what);
	exit(2);
}

static inline void refuse(const char *why)
{
	fprintf(stderr, "%s\n", why);
	exit(2);
}

static inline uint64_t number(const char *text)
{
	return strtoull(text, NULL, 10);
}

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* user and system time of this process */
static inline uint64_t cpu_ns(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return ((uint64_t)r.ru_utime.tv_sec + (uint64_t)r.ru_stime.tv_sec) * 1000000000ull +
	       ((uint64_t)r.ru_utime.tv_usec + (uint64_t)r.ru_stime.tv_usec) * 1000ull;
}

/* `count` buffers of `size` bytes behind one recvmmsg or sendmmsg */
static inline void lay_out(struct mmsghdr *m, struct iovec *v, char *memory, size_t size, int count)
{
	memset(m, 0, (size_t)count * sizeof *m);
	for (int i = 0; i < count; i++) {
		v[i].iov_base = memory + (size_t)i * size;
		v[i].iov_len = size;
		m[i].msg_hdr.msg_iov = &v[i];
		m[i].msg_hdr.msg_iovlen = 1;
	}
}

/* tell who has started us that it can go on */
static inline void say_ready(void)
{
	puts("ready");
	fflush(stdout);
}
#endif
