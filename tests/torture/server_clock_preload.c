/* Preloaded into a server, it sets the server's wall clock: time is off by the seconds, a 64-bit number, that stand in
   the file that SERVER_CLOCK_FILE names, and changes as soon as the file does. Monotonic clocks stay.

   libfaketime does the same for PostgreSQL, but not for Redis: it allocates memory while it starts, and jemalloc asks
   for the time while it does. Nothing here allocates. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

static int64_t shifted(void) {
    if (shift == NULL) {
        const char *path = getenv("SERVER_CLOCK_FILE");
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return 0;
        void *page = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (page == MAP_FAILED) return 0;
        shift = page;
    }
    return *shift;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += shifted();
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int failed = (int)syscall(SYS_gettimeofday, now, zone);
    if (!failed) now->tv_sec += shifted();
    return failed;
}

time_t time(time_t *kept) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (kept != NULL) *kept = now.tv_sec;
    return now.tv_sec;
}
