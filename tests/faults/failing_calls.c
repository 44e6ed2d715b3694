/* Has calls of files and clocks fail: LD_PRELOAD=…, and STEPSCOPE_TEST_RULES="RULE RULE …".
 *
 * A rule is CALL:WHAT:PATH:AFTER[:COUNT]. CALL is open, read, write, sync, truncate, rename, mkdir, stat, lock, list or clock. WHAT is the
 * name of an error, or a number of milliseconds by which the call is late (of clock: by which the time of day is off). PATH is a part
 * of the path of the file, AFTER so many calls do what they should, and COUNT of them fail then (default: all). A clock steps AFTER
 * so many milliseconds. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct rule {
    char call[16], path[256];
    int error;
    long late_ms, after, count;
    atomic_long calls;
};
static struct rule rules[16];
static int rule_count;
static struct timespec begun;

static const struct { const char *name; int number; } errors[] = {
    {"EIO", EIO}, {"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT}, {"EROFS", EROFS}, {"ESTALE", ESTALE}, {"EMFILE", EMFILE}, {"ENFILE", ENFILE},
    {"EACCES", EACCES}, {"EINTR", EINTR}, {"ENOLCK", ENOLCK}, {"ENOENT", ENOENT}, {"ENOMEM", ENOMEM}, {"ETIMEDOUT", ETIMEDOUT},
};

static int real_clock(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock, time);
}

static long milliseconds_since_begun(void) {
    struct timespec now;
    real_clock(CLOCK_MONOTONIC, &now);
    return (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000;
}

__attribute__((constructor)) static void read_rules(void) {
    real_clock(CLOCK_MONOTONIC, &begun);
    const char *text = getenv("STEPSCOPE_TEST_RULES");
    char copy[4096], *rest = copy, *word;
    if (!text) return;
    snprintf(copy, sizeof copy, "%s", text);
    while ((word = strsep(&rest, " ")) && rule_count < 16) {
        struct rule *rule = &rules[rule_count];
        char what[16];
        if (!*word) continue;
        rule->count = -1;
        if (sscanf(word, "%15[^:]:%15[^:]:%255[^:]:%ld:%ld", rule->call, what, rule->path, &rule->after, &rule->count) < 4) {
            fprintf(stderr, "not a rule: %s\n", word);
            abort();
        }
        rule->late_ms = strtol(what, NULL, 10);
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
            if (!strcmp(errors[i].name, what)) rule->error = errors[i].number;
        rule_count++;
    }
}

/* What the call is to fail with, or 0. */
static int wrong(const char *call, const char *path) {
    for (int i = 0; i < rule_count; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->call, call) || !path || !strstr(path, rule->path)) continue;
        long place = atomic_fetch_add(&rule->calls, 1) - rule->after;
        if (place < 0 || (rule->count >= 0 && place >= rule->count)) continue;
        if (rule->error) return rule->error;
        usleep(rule->late_ms * 1000);
    }
    return 0;
}

static int wrong_fd(const char *call, int fd) {
    if (!rule_count) return 0;
    char link[32], path[4096];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return wrong(call, path);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL_FD(call, fd) { int error = wrong_fd(call, fd); if (error) { errno = error; return -1; } }
#define FAIL_PATH(call, path, failed) { int error = wrong(call, path); if (error) { errno = error; return failed; } }
#define MODE \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }

int open(const char *path, int flags, ...) { REAL(open); MODE; FAIL_PATH("open", path, -1); return real(path, flags, mode); }
int open64(const char *path, int flags, ...) { REAL(open64); MODE; FAIL_PATH("open", path, -1); return real(path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { REAL(openat); MODE; FAIL_PATH("open", path, -1); return real(at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { REAL(openat64); MODE; FAIL_PATH("open", path, -1); return real(at, path, flags, mode); }
ssize_t read(int fd, void *bytes, size_t count) { REAL(read); FAIL_FD("read", fd); return real(fd, bytes, count); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { REAL(pread); FAIL_FD("read", fd); return real(fd, bytes, count, at); }
ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) { REAL(pread64); FAIL_FD("read", fd); return real(fd, bytes, count, at); }
ssize_t write(int fd, const void *bytes, size_t count) {
    REAL(write);
    int error = wrong_fd("write", fd);
    if (!error) return real(fd, bytes, count);
    /* A disk that fills up takes a part of the last piece. */
    if (count > 1 && error == ENOSPC) {
        if (real(fd, bytes, count / 2) > 0 && wrong_fd("write", fd) == 0) return count / 2;
    }
    errno = error;
    return -1;
}
ssize_t writev(int fd, const struct iovec *pieces, int count) { REAL(writev); FAIL_FD("write", fd); return real(fd, pieces, count); }
int fsync(int fd) { REAL(fsync); FAIL_FD("sync", fd); return real(fd); }
int ftruncate(int fd, off_t length) { REAL(ftruncate); FAIL_FD("truncate", fd); return real(fd, length); }
int ftruncate64(int fd, off64_t length) { REAL(ftruncate64); FAIL_FD("truncate", fd); return real(fd, length); }
int flock(int fd, int operation) { REAL(flock); FAIL_FD("lock", fd); return real(fd, operation); }
int rename(const char *from, const char *to) { REAL(rename); FAIL_PATH("rename", to, -1); return real(from, to); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); FAIL_PATH("mkdir", path, -1); return real(path, mode); }
DIR *opendir(const char *path) { REAL(opendir); FAIL_PATH("list", path, NULL); return real(path); }
int statx(int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict found) {
    REAL(statx);
    /* Whoever asks whether there is such a call gives no path. */
    const char *volatile named = path;
    if (!named) return real(at, path, flags, mask, found);
    if (*path) { FAIL_PATH("stat", path, -1) } else { FAIL_FD("stat", at) }
    return real(at, path, flags, mask, found);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    int outcome = real_clock(clock, time);
    for (int i = 0; i < rule_count && clock == CLOCK_REALTIME; i++)
        if (!strcmp(rules[i].call, "clock") && milliseconds_since_begun() >= rules[i].after) {
            time->tv_sec += rules[i].late_ms / 1000;
        }
    return outcome;
}
