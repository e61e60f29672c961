/* Keeps a journal of what a program does to the files below $POWER_LOSS_ROOT: LD_PRELOAD it. tests/state/power_loss.py says what
   a disk could hold of that after a power failure.

   A record is appended to $POWER_LOSS_LOG by one write, so that records of several processes are whole and in order:
   kind (1 byte), inode, a, b (8 bytes each), bytes of data (4 bytes), data.
     C inode            a file was created       data: path
     W inode offset     bytes were written       data: the bytes
     T inode size       cut off or lengthened
     S inode            fsync, fdatasync
     R inode            renamed                  data: old path \0 new path
     U inode            unlinked                 data: path
   fsync does nothing else: the record is the moment at which the bytes are safe. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FDS 65536
static char tracked[MOST_FDS];
static const char *root;
static int journal = -1;

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static void begin(void) {
    if (journal >= 0) return;
    root = getenv("POWER_LOSS_ROOT");
    const char *name = getenv("POWER_LOSS_LOG");
    if (!root || !name) { root = NULL; return; }
    REAL(int, "open64", const char *, int, ...);
    int fd = real(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    journal = fcntl(fd, F_DUPFD_CLOEXEC, 60000);  /* out of the way of programs that close all descriptors below theirs */
    if (journal < 0) journal = fd; else close(fd);
}

static void record(char kind, uint64_t inode, uint64_t a, const void *data, uint32_t size) {
    char head[29];
    uint64_t b = 0;
    head[0] = kind;
    memcpy(head + 1, &inode, 8); memcpy(head + 9, &a, 8); memcpy(head + 17, &b, 8); memcpy(head + 25, &size, 4);
    struct iovec parts[2] = {{head, sizeof head}, {(void *)data, size}};
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    int kept = errno;
    if (real(journal, parts, 2) != (ssize_t)(sizeof head + size)) abort();
    errno = kept;
}

static uint64_t inode_of(int fd) { struct stat s; return fstat(fd, &s) ? 0 : s.st_ino; }

/* The absolute path, its last part as it is. 0: not below the root. */
static int place(int dir, const char *path, char *found) {
    begin();
    if (!root || !path) return 0;
    char folder[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    if (slash) snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    else if (dir == AT_FDCWD) strcpy(folder, ".");
    else snprintf(folder, sizeof folder, "/proc/self/fd/%d", dir);
    if (!realpath(folder, real)) return 0;
    if (snprintf(found, PATH_MAX, "%s/%s", real, last) >= PATH_MAX) return 0;
    size_t n = strlen(root);
    return strncmp(found, root, n) == 0 && found[n] == '/';
}

static int opened(int fd, const char *path, int flags, int was_there, int below) {
    if (fd < 0 || fd >= MOST_FDS) return fd;
    tracked[fd] = 0;
    if (!below) return fd;
    struct stat s;
    if (fstat(fd, &s)) return fd;
    tracked[fd] = 1;
    if (S_ISREG(s.st_mode) && !was_there) record('C', s.st_ino, 0, path, strlen(path));
    else if (S_ISREG(s.st_mode) && (flags & O_TRUNC)) record('T', s.st_ino, 0, "", 0);
    if (flags & (O_SYNC | O_DSYNC)) abort();  /* nobody here does that */
    return fd;
}

#define OPEN(name, dirfd, real_call, ...) { \
    int mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more); } \
    char found[PATH_MAX]; \
    int below = place(dirfd, path, found); \
    struct stat s; \
    int was_there = below && !lstat(found, &s); \
    return opened(real_call, found, flags, was_there, below); }

int open(const char *path, int flags, ...) { REAL(int, "open", const char *, int, ...); OPEN("open", AT_FDCWD, real(path, flags, mode)) }
int open64(const char *path, int flags, ...) { REAL(int, "open64", const char *, int, ...); OPEN("open64", AT_FDCWD, real(path, flags, mode)) }
int openat(int dir, const char *path, int flags, ...) { REAL(int, "openat", int, const char *, int, ...); OPEN("openat", dir, real(dir, path, flags, mode)) }
int openat64(int dir, const char *path, int flags, ...) { REAL(int, "openat64", int, const char *, int, ...); OPEN("openat64", dir, real(dir, path, flags, mode)) }

static int is_tracked(int fd) { return fd >= 0 && fd < MOST_FDS && tracked[fd]; }

int close(int fd) { REAL(int, "close", int); if (fd >= 0 && fd < MOST_FDS) tracked[fd] = 0; return real(fd); }

/* The record comes first: bytes that another process reads are in the journal. */
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (is_tracked(fd)) record('W', inode_of(fd), at, data, size);
    return real(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) { return pwrite(fd, data, size, at); }

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (is_tracked(fd)) {
        struct stat s;
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        off_t at = appends ? (fstat(fd, &s), s.st_size) : lseek(fd, 0, SEEK_CUR);
        if (at >= 0) record('W', inode_of(fd), at, data, size);
    }
    return real(fd, data, size);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    off_t to = at;
    if (is_tracked(fd)) for (int i = 0; i < count; to += parts[i++].iov_len) record('W', inode_of(fd), to, parts[i].iov_base, parts[i].iov_len);
    return real(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return pwritev(fd, parts, count, at); }

int ftruncate(int fd, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    if (is_tracked(fd)) record('T', inode_of(fd), size, "", 0);
    return real(fd, size);
}
int ftruncate64(int fd, off64_t size) { return ftruncate(fd, size); }

int posix_fallocate(int fd, off_t at, off_t size) {
    REAL(int, "posix_fallocate", int, off_t, off_t);
    int done = real(fd, at, size);
    struct stat s;
    if (is_tracked(fd) && !done && !fstat(fd, &s)) record('T', s.st_ino, s.st_size, "", 0);
    return done;
}
int posix_fallocate64(int fd, off64_t at, off64_t size) { return posix_fallocate(fd, at, size); }

int fsync(int fd) {
    REAL(int, "fsync", int);
    if (!is_tracked(fd)) return real(fd);
    record('S', inode_of(fd), 0, "", 0);
    return 0;
}
int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    if (!is_tracked(fd)) return real(fd);
    record('S', inode_of(fd), 0, "", 0);
    return 0;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    char both[2 * PATH_MAX], source[PATH_MAX], target[PATH_MAX];
    struct stat s;
    if (place(AT_FDCWD, from, source) && place(AT_FDCWD, to, target) && !lstat(source, &s)) {
        size_t n = strlen(source) + 1;
        memcpy(both, source, n); strcpy(both + n, target);
        record('R', s.st_ino, 0, both, n + strlen(target));
    }
    return real(from, to);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    char found[PATH_MAX];
    struct stat s;
    if (place(AT_FDCWD, path, found) && !lstat(found, &s)) record('U', s.st_ino, 0, found, strlen(found));
    return real(path);
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    char found[PATH_MAX];
    if (place(AT_FDCWD, to, found)) abort();  /* nobody here does that */
    return real(from, to);
}
