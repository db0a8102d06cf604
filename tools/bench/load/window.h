/* window.h - the closed window, and the pace.
 * A sender has at most so many messages under way as the slowest receiver allows, so that nothing is lost although
 * UDP has no back-pressure. Receivers tell in shared memory how far they are; a sender without room sleeps on a futex,
 * which costs the relay that is measured nothing. */
#ifndef WINDOW_H
#define WINDOW_H

#include "common.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MAX_SLOTS 512

struct window {
	_Atomic uint32_t bump;    /* the futex */
	_Atomic uint32_t waiting; /* a sender sleeps on it */
	_Atomic uint32_t slots;
	struct {
		_Atomic uint64_t done;
		char pad[56]; /* a cache line each */
	} slot[MAX_SLOTS];
};

static inline struct window *window_open(const char *path)
{
	struct window *w;
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof *w))
		die(path);
	w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (w == MAP_FAILED)
		die("mmap");
	close(fd);
	return w;
}

/* what the slowest receiver has behind it */
static inline uint64_t window_done(struct window *w)
{
	uint64_t least = UINT64_MAX;
	uint32_t n = atomic_load_explicit(&w->slots, memory_order_relaxed);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t done = atomic_load_explicit(&w->slot[i].done, memory_order_relaxed);
		if (done < least)
			least = done;
	}
	return n ? least : 0;
}

static inline void window_tell(struct window *w, int slot, uint64_t done)
{
	if (!w)
		return;
	atomic_store(&w->slot[slot].done, done);
	if (atomic_load(&w->waiting)) {
		atomic_fetch_add(&w->bump, 1);
		syscall(SYS_futex, &w->bump, FUTEX_WAKE, 1, NULL, NULL, 0);
	}
}

/* Waits until fewer than `size` are under way, and returns how many more may go. What is not through after 200 ms is
 * taken for lost: `base` is then raised to what was sent. */
static inline uint64_t window_wait(struct window *w, uint64_t sent, uint64_t size, uint64_t *base)
{
	for (;;) {
		struct timespec patience = {0, 200000000};
		uint64_t done = window_done(w);
		uint32_t seen;
		if (done < *base)
			done = *base;
		if (sent < done + size)
			return done + size - sent;
		seen = atomic_load(&w->bump);
		atomic_store(&w->waiting, 1);
		done = window_done(w); /* again: a receiver that has not seen us wait does not wake us */
		if (sent >= (done < *base ? *base : done) + size &&
		    syscall(SYS_futex, &w->bump, FUTEX_WAIT, seen, &patience, NULL, 0) < 0 && errno == ETIMEDOUT)
			*base = sent;
		atomic_store(&w->waiting, 0);
	}
}

/* How many of a batch may be sent now at `rate` a second since `start` (all that is due, at least one); sleeps until
 * the first of them is due. Times are absolute, so that a late wake-up does not slow the rest. */
static inline uint64_t pace(uint64_t start, uint64_t sent, uint64_t rate)
{
	uint64_t at = start + sent * 1000000000ull / rate, due;
	struct timespec t = {(time_t)(at / 1000000000ull), (long)(at % 1000000000ull)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
	due = (now_ns() - start) * rate / 1000000000ull + 1;
	return due > sent ? due - sent : 1;
}

/* What a sender sends next: a batch, less what window, pace and end allow. */
struct sender {
	struct window *window;
	uint64_t size, rate, batch, total, first, start, sent, base;
};

static inline uint64_t sender_room(struct sender *s)
{
	uint64_t n = s->batch, room;
	if (s->window && s->size && (room = window_wait(s->window, s->sent, s->size, &s->base)) < n)
		n = room;
	if (s->rate && (room = pace(s->start, s->sent - s->first, s->rate)) < n)
		n = room;
	return n < s->total - s->sent ? n : s->total - s->sent;
}

static inline void sender_start(struct sender *s)
{
	prctl(PR_SET_TIMERSLACK, 1); /* wake when it is due, not 50 us later */
	s->sent = s->first;
	s->start = now_ns();
}

/* Waits until all has arrived, 20 s at most: the end of a connection could cut a stream short. */
static inline void sender_finish(const struct sender *s)
{
	for (int i = 0; s->window && i < 2000 && window_done(s->window) < s->total; i++)
		usleep(10000);
}
#endif
