/* Programs that look for devices at fixed places, before or instead of calling verbs, find those of
 * software SRD: calls with a path below /sys/class/infiniband, /sys/class/infiniband_verbs or
 * /dev/infiniband get the same path below the tree that libibverbs.so.1 has written. Every other
 * path is passed on as it is.
 *
 * This is a library of its own because its symbols have no versions: the loader takes a symbol with
 * another version than glibc's for another symbol. */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* Protocol of netlink sockets for RDMA, in linux/netlink.h. */
#define NETLINK_PROTOCOL_RDMA 20

/* In libibverbs.so.1. */
void **ibv_get_device_list(int *count);
void ibv_free_device_list(void **list);
const char *ibv_get_sysfs_path(void);

/* Each place, and its place in the tree. */
static const struct {
    const char *place, *in_tree;
} PLACES[] = {
    {"/sys/class/infiniband", "/class/infiniband"},
    {"/sys/class/infiniband_verbs", "/class/infiniband_verbs"},
    {"/dev/infiniband", "/dev/infiniband"},
};

/* Writes the tree, which only processes need that look at it or open a device. */
static void tree_write(void)
{
    void **list = ibv_get_device_list(NULL);
    if (list != NULL)
        ibv_free_device_list(list);
}

/* The path to use in place of `path`, which may be written to `room`. */
static const char *moved(const char *path, char room[PATH_MAX])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (path == NULL || path[0] != '/' || (path[1] != 's' && path[1] != 'd'))
        return path;
    for (size_t i = 0; i < sizeof PLACES / sizeof *PLACES; i++) {
        size_t length = strlen(PLACES[i].place);
        const char *rest = path + length;
        if (strncmp(path, PLACES[i].place, length) != 0 || (*rest != '/' && *rest != 0))
            continue;
        int saved = errno;
        pthread_once(&once, tree_write);
        const char *root = ibv_get_sysfs_path();
        int n = root == NULL
                    ? -1
                    : snprintf(room, PATH_MAX, "%s%s%s", root, PLACES[i].in_tree, rest);
        errno = saved;
        return n > 0 && n < PATH_MAX ? room : path;
    }
    return path;
}

/* The next definition of a function, which is glibc's as a rule. Races write the same value. */
static void *next_of(void **known, const char *name)
{
    void *found = __atomic_load_n(known, __ATOMIC_RELAXED);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, name);
        __atomic_store_n(known, found, __ATOMIC_RELAXED);
    }
    if (found == NULL)
        errno = ENOSYS;
    return found;
}

/* A function whose only path is `path`: its type, name, parameters, arguments to pass on, and
 * result if this C library does not have it. */
#define WRAP(type, name, parameters, arguments, failed)                                            \
    __attribute__((visibility("default"))) type name parameters                                    \
    {                                                                                              \
        static void *known;                                                                        \
        char room[PATH_MAX];                                                                       \
        type(*next) parameters = (type(*) parameters)next_of(&known, #name);                       \
        if (next == NULL)                                                                          \
            return failed;                                                                         \
        path = moved(path, room);                                                                  \
        return next arguments;                                                                     \
    }

/* As WRAP for the functions that take a mode after the flags when they create a file. */
#define WRAP_OPEN(name, parameters, type_of_next, last, arguments)                                 \
    __attribute__((visibility("default"))) int name parameters                                     \
    {                                                                                              \
        static void *known;                                                                        \
        char room[PATH_MAX];                                                                       \
        mode_t mode = 0;                                                                           \
        int(*next) type_of_next = (int(*) type_of_next)next_of(&known, #name);                     \
        if (next == NULL)                                                                          \
            return -1;                                                                             \
        if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {                          \
            va_list rest;                                                                          \
            va_start(rest, last);                                                                  \
            mode = va_arg(rest, mode_t);                                                           \
            va_end(rest);                                                                          \
        }                                                                                          \
        path = moved(path, room);                                                                  \
        return next arguments;                                                                     \
    }

WRAP_OPEN(open, (const char *path, int flags, ...), (const char *, int, ...), flags,
          (path, flags, mode))
WRAP_OPEN(open64, (const char *path, int flags, ...), (const char *, int, ...), flags,
          (path, flags, mode))
WRAP_OPEN(openat, (int at, const char *path, int flags, ...), (int, const char *, int, ...), flags,
          (at, path, flags, mode))
WRAP_OPEN(openat64, (int at, const char *path, int flags, ...), (int, const char *, int, ...),
          flags, (at, path, flags, mode))

/* What the compiler makes of these when it checks lengths. */
WRAP(int, __open_2, (const char *path, int flags), (path, flags), -1)
WRAP(int, __open64_2, (const char *path, int flags), (path, flags), -1)
WRAP(int, __openat_2, (int at, const char *path, int flags), (at, path, flags), -1)
WRAP(int, __openat64_2, (int at, const char *path, int flags), (at, path, flags), -1)
WRAP(ssize_t, __readlink_chk, (const char *path, char *to, size_t size, size_t room_bytes),
     (path, to, size, room_bytes), -1)
WRAP(ssize_t, __readlinkat_chk,
     (int at, const char *path, char *to, size_t size, size_t room_bytes),
     (at, path, to, size, room_bytes), -1)
WRAP(char *, __realpath_chk, (const char *path, char *to, size_t room_bytes),
     (path, to, room_bytes), NULL)

WRAP(FILE *, fopen, (const char *path, const char *how), (path, how), NULL)
WRAP(FILE *, fopen64, (const char *path, const char *how), (path, how), NULL)
WRAP(DIR *, opendir, (const char *path), (path), NULL)
WRAP(int, scandir,
     (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
      int (*compare)(const struct dirent **, const struct dirent **)),
     (path, list, filter, compare), -1)
WRAP(int, scandir64,
     (const char *path, struct dirent64 ***list, int (*filter)(const struct dirent64 *),
      int (*compare)(const struct dirent64 **, const struct dirent64 **)),
     (path, list, filter, compare), -1)
WRAP(int, access, (const char *path, int how), (path, how), -1)
WRAP(int, eaccess, (const char *path, int how), (path, how), -1)
WRAP(int, euidaccess, (const char *path, int how), (path, how), -1)
WRAP(int, faccessat, (int at, const char *path, int how, int flags), (at, path, how, flags), -1)
WRAP(ssize_t, readlink, (const char *path, char *to, size_t size), (path, to, size), -1)
WRAP(ssize_t, readlinkat, (int at, const char *path, char *to, size_t size), (at, path, to, size),
     -1)
WRAP(char *, realpath, (const char *path, char *to), (path, to), NULL)
WRAP(char *, canonicalize_file_name, (const char *path), (path), NULL)

WRAP(ssize_t, getxattr, (const char *path, const char *name, void *to, size_t size),
     (path, name, to, size), -1)
WRAP(ssize_t, lgetxattr, (const char *path, const char *name, void *to, size_t size),
     (path, name, to, size), -1)
WRAP(ssize_t, listxattr, (const char *path, char *to, size_t size), (path, to, size), -1)
WRAP(ssize_t, llistxattr, (const char *path, char *to, size_t size), (path, to, size), -1)

WRAP(int, stat, (const char *path, struct stat *to), (path, to), -1)
WRAP(int, stat64, (const char *path, struct stat64 *to), (path, to), -1)
WRAP(int, lstat, (const char *path, struct stat *to), (path, to), -1)
WRAP(int, lstat64, (const char *path, struct stat64 *to), (path, to), -1)
WRAP(int, fstatat, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags),
     -1)
WRAP(int, fstatat64, (int at, const char *path, struct stat64 *to, int flags),
     (at, path, to, flags), -1)
WRAP(int, statx, (int at, const char *path, int flags, unsigned mask, struct statx *to),
     (at, path, flags, mask, to), -1)

/* The same for programs that were compiled for glibc before 2.33. */
WRAP(int, __xstat, (int version, const char *path, struct stat *to), (version, path, to), -1)
WRAP(int, __xstat64, (int version, const char *path, struct stat64 *to), (version, path, to), -1)
WRAP(int, __lxstat, (int version, const char *path, struct stat *to), (version, path, to), -1)
WRAP(int, __lxstat64, (int version, const char *path, struct stat64 *to), (version, path, to), -1)
WRAP(int, __fxstatat, (int version, int at, const char *path, struct stat *to, int flags),
     (version, at, path, to, flags), -1)
WRAP(int, __fxstatat64, (int version, int at, const char *path, struct stat64 *to, int flags),
     (version, at, path, to, flags), -1)

/* Libraries that ask the kernel about RDMA devices by netlink use sysfs if that is not supported,
 * as on a kernel without RDMA. */
__attribute__((visibility("default"))) int socket(int domain, int type, int protocol)
{
    static void *known;
    int (*next)(int, int, int) = (int (*)(int, int, int))next_of(&known, "socket");
    if (next == NULL)
        return -1;
    if (domain == AF_NETLINK && protocol == NETLINK_PROTOCOL_RDMA) {
        errno = EPROTONOSUPPORT;
        return -1;
    }
    return next(domain, type, protocol);
}
