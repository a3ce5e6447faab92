/* A wall clock that a test can set, for the processes that it starts (LD_PRELOAD).
 *
 * The real one and the number of nanoseconds in the file WALL_CLOCK_FILE, eight bytes of it, which
 * is mapped, so that all processes jump at once and while they are stopped. The monotonic clock is
 * left alone: it is what a machine that was suspended goes on with.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_ns;
static int (*real_clock_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead_ns = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_clock_gettime) begin();
    int failed = real_clock_gettime(clock, now);
    if (failed || !ahead_ns || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return failed;
    int64_t ns = now->tv_nsec + *ahead_ns % 1000000000;
    now->tv_sec += *ahead_ns / 1000000000 + (ns >= 1000000000) - (ns < 0);
    now->tv_nsec = (ns + 1000000000) % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
    if (out) *out = exact.tv_sec;
    return exact.tv_sec;
}
