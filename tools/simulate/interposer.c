/* Stands between a simulated daemon and the C library: virtual clocks, calls that fail, and a kill at any of them.
 *
 * Loaded by LD_PRELOAD, so that compiled modules, Python and the product's own C all see the same time. A
 * call counts as an effect while a host is stepped (`armed`). At a kill the calls that follow have no effect any more,
 * until the step ends: what the daemon still computes is lost, as with SIGKILL. What it would have sent to clients then
 * stays in its queues, so that these show what has been lost.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SCM_TIMESTAMPNS
#define SCM_TIMESTAMPNS 35
#endif

enum { FAIL_CAST = 1, FAIL_BUS = 2, FAIL_FILE = 4, FAIL_MEMORY = 8, FAIL_RECEIVE = 16, FAIL_ACCEPT = 32,
       FAIL_WATCH = 64, SHORT = 128 };
enum { HISTORY = 1 << 20 };

static int on;
static int64_t mono, wall;
/* the kernel's time at which the virtual wall clock was set, to translate stamps of datagrams */
static int64_t real_at[HISTORY], wall_at[HISTORY];
static uint64_t set;

static int armed, dead, fail_kinds, fail_errno;
static long kill_at, fail_left;
static uint64_t calls, failed_calls;
static int polled_fd = -1, blocked;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

static int64_t kernel_time(clockid_t id)
{
    struct timespec now;
    syscall(SYS_clock_gettime, id, &now);
    return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* -- control, called by the simulation */

int64_t sim_kernel_ns(void) { return kernel_time(CLOCK_MONOTONIC); }

void sim_set_clocks(int64_t mono_ns, int64_t wall_ns)
{
    on = 1, mono = mono_ns, wall = wall_ns;
    real_at[set % HISTORY] = kernel_time(CLOCK_REALTIME);
    wall_at[set % HISTORY] = wall_ns;
    set++;
}

int64_t sim_mono_ns(void) { return mono; }
int64_t sim_wall_ns(void) { return wall; }

void sim_arm(long at_call)
{
    armed = 1, dead = 0, kill_at = at_call, calls = 0, blocked = 0;
}

void sim_disarm(void) { armed = dead = 0, kill_at = 0; }

/* Keep what follows without effect, for the cleaning up after a kill. */
void sim_stay_dead(void) { armed = dead = 1; }

int sim_dead(void) { return dead; }
int sim_polled_fd(void) { return polled_fd; }
int sim_blocked(void) { return blocked; }
uint64_t sim_calls(void) { return calls; }
uint64_t sim_failed(void) { return failed_calls; }

void sim_fail(int kinds, int error, long count) { fail_kinds = kinds, fail_errno = error, fail_left = count; }

/* -- what a call meets */

static int is_dead(void)
{
    if (!armed)
        return 0;
    calls++;
    if (!dead && kill_at && --kill_at == 0)
        dead = 1;
    return dead;
}

static int fails(int kind)
{
    if (!armed || !(fail_kinds & kind) || fail_left <= 0)
        return 0;
    fail_left--, failed_calls++;
    errno = fail_errno;
    return 1;
}

/* As many of the messages of a call as the kernel takes or gives at once. */
static unsigned int some_of(unsigned int count)
{
    if (count < 2 || !armed || !(fail_kinds & SHORT) || fail_left <= 0)
        return count;
    fail_left--, failed_calls++;
    return 1 + fail_left % (count - 1);
}

static int send_kind(int fd)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    if (!armed || !fail_kinds)
        return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size))
        return FAIL_FILE;
    return domain == AF_UNIX ? FAIL_BUS : domain == AF_INET ? FAIL_CAST : 0;
}

/* -- clocks */

int clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t ns;
    if (!on || (id != CLOCK_MONOTONIC && id != CLOCK_REALTIME && id != CLOCK_BOOTTIME && id != CLOCK_MONOTONIC_RAW
                && id != CLOCK_MONOTONIC_COARSE && id != CLOCK_REALTIME_COARSE))
        return (int) syscall(SYS_clock_gettime, id, now);
    ns = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE ? wall : mono;
    now->tv_sec = ns / 1000000000, now->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void) zone;
    int64_t ns = on ? wall : kernel_time(CLOCK_REALTIME);
    now->tv_sec = ns / 1000000000, now->tv_usec = ns % 1000000000 / 1000;
    return 0;
}

time_t time(time_t *at)
{
    time_t now = (time_t) ((on ? wall : kernel_time(CLOCK_REALTIME)) / 1000000000);
    if (at)
        *at = now;
    return now;
}

int clock_nanosleep(clockid_t id, int flags, const struct timespec *span, struct timespec *left)
{
    int64_t ns = (int64_t) span->tv_sec * 1000000000 + span->tv_nsec;
    struct timespec rest;
    if (!on)
        return syscall(SYS_clock_nanosleep, id, flags, span, left) ? errno : 0;
    if (flags & TIMER_ABSTIME)
        ns -= id == CLOCK_REALTIME ? wall : mono;
    if (ns <= 0)
        return 0;
    if (armed) {
        sim_set_clocks(mono + ns, wall + ns);
        return 0;
    }
    /* The simulation itself sleeps. A moment of a virtual clock means nothing to the kernel: it may be an hour ahead. */
    rest.tv_sec = ns / 1000000000, rest.tv_nsec = ns % 1000000000;
    return syscall(SYS_clock_nanosleep, id, 0, &rest, left) ? errno : 0;
}

/* -- receiving */

static int64_t translated(int64_t real_ns)
{
    uint64_t low = set > HISTORY ? set - HISTORY : 0, high = set;
    while (low + 1 < high) {
        uint64_t middle = low + (high - low) / 2;
        if (real_at[middle % HISTORY] <= real_ns)
            low = middle;
        else
            high = middle;
    }
    return wall_at[low % HISTORY];
}

int recvmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags, struct timespec *timeout)
{
    REAL(recvmmsg);
    int got;
    if (is_dead())
        return errno = EAGAIN, -1;
    if (fails(send_kind(fd) == FAIL_CAST ? FAIL_RECEIVE : 0))
        return -1;
    got = real(fd, messages, some_of(count), flags, timeout);
    for (int i = 0; on && i < got; i++) {
        struct msghdr *head = &messages[i].msg_hdr;
        for (struct cmsghdr *one = CMSG_FIRSTHDR(head); one; one = CMSG_NXTHDR(head, one))
            if (one->cmsg_level == SOL_SOCKET && one->cmsg_type == SCM_TIMESTAMPNS) {
                struct timespec stamp;
                int64_t ns;
                memcpy(&stamp, CMSG_DATA(one), sizeof stamp);
                ns = translated((int64_t) stamp.tv_sec * 1000000000 + stamp.tv_nsec);
                stamp.tv_sec = ns / 1000000000, stamp.tv_nsec = ns % 1000000000;
                memcpy(CMSG_DATA(one), &stamp, sizeof stamp);
            }
    }
    return got;
}

/* A call that has its effect, unless the daemon is dead (`then`) or calls of this kind fail. */
#define CALL(type, name, parameters, arguments, then, kind) \
    type name parameters \
    { \
        REAL(name); \
        if (is_dead()) \
            return then; \
        return fails(kind) ? -1 : real arguments; \
    }
#define BLOCKS (errno = EAGAIN, -1)

CALL(ssize_t, recv, (int fd, void *data, size_t size, int flags), (fd, data, size, flags), BLOCKS, 0)
CALL(ssize_t, readv, (int fd, const struct iovec *vector, int count), (fd, vector, count), BLOCKS, 0)
CALL(int, accept4, (int fd, struct sockaddr *restrict address, socklen_t *restrict size, int flags),
     (fd, address, size, flags), BLOCKS, FAIL_ACCEPT)
CALL(ssize_t, send, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), BLOCKS, send_kind(fd))
CALL(ssize_t, sendto,
     (int fd, const void *data, size_t size, int flags, const struct sockaddr *to, socklen_t length),
     (fd, data, size, flags, to, length), BLOCKS, send_kind(fd))
CALL(int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned int count, int flags),
     (fd, messages, some_of(count), flags), BLOCKS, send_kind(fd))
CALL(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size), (ssize_t) size, send_kind(fd))
CALL(int, shutdown, (int fd, int how), (fd, how), 0, 0)
CALL(int, fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), 0, 0)

/* -- files in memory */

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    struct stat file;
    if (is_dead())
        return (ssize_t) size;
    /* What is there already takes no more memory. */
    if (armed && !fstat(fd, &file) && at + (off64_t) size > file.st_size && fails(FAIL_FILE))
        return -1;
    return real(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) { return pwrite64(fd, data, size, at); }

int ftruncate64(int fd, off64_t size)
{
    struct stat file;
    REAL(ftruncate64);
    if (is_dead())
        return 0;
    return !fstat(fd, &file) && size > file.st_size && fails(FAIL_FILE) ? -1 : real(fd, size);
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int memfd_create(const char *name, unsigned int flags)
{
    REAL(memfd_create);
    if (fails(FAIL_MEMORY))
        return -1;
    return real(name, flags);
}

/* -- waiting */

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    REAL(epoll_wait);
    if (!armed)
        return real(fd, events, most, timeout);
    polled_fd = fd;
    if (is_dead())
        return 0;
    if (timeout)
        blocked |= 1;
    return real(fd, events, most, 0);
}

int epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    REAL(epoll_ctl);
    if (what == EPOLL_CTL_ADD && fails(FAIL_WATCH))
        return -1;
    return real(epoll, what, fd, event);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    REAL(waitpid);
    pid_t found;
    if (!armed || options & WNOHANG)
        return real(pid, status, options);
    found = real(pid, status, options | WNOHANG);
    if (found)
        return found;
    blocked |= 2;
    return errno = ECHILD, -1;
}

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    REAL(waitid);
    if (armed && !(options & WNOHANG))
        options |= WNOHANG, blocked |= 4;
    return real(type, id, info, options);
}
