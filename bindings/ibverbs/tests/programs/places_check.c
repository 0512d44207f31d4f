/* Looks for the device at the places where programs expect it, by every call that the library
 * libsrd_places.so.1 answers. Without that library, a kernel without RDMA has none of them. */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static unsigned checks, wrong;

static void check(int holds, const char *what)
{
    checks++;
    if (!holds) {
        wrong++;
        printf("wrong: %s (%s)\n", what, strerror(errno));
    }
}
#define CHECK(holds) check((holds) ? 1 : 0, #holds)

/* Whether the file has this text. */
static int has(int fd, const char *text)
{
    char found[64] = "";
    ssize_t n = fd < 0 ? -1 : read(fd, found, sizeof found - 1);
    if (fd >= 0)
        close(fd);
    return n > 0 && strncmp(found, text, strlen(text)) == 0;
}

static int lists(DIR *folder, const char *name)
{
    int found = 0;
    for (struct dirent *e; folder != NULL && (e = readdir(folder)) != NULL;)
        found |= strcmp(e->d_name, name) == 0;
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Functions without a declaration in today's headers, as old programs call them. */
typedef int old_stat(int, const char *, struct stat *);

int main(int count, char **names)
{
    const char *name = count > 1 ? names[1] : "srd0";
    char ib[128], file[192], link_at[192], text[PATH_MAX];
    snprintf(ib, sizeof ib, "/sys/class/infiniband/%s", name);
    snprintf(file, sizeof file, "%s/ports/1/state", ib);
    snprintf(link_at, sizeof link_at, "%s/device", ib);
    const char *dev = "/dev/infiniband/uverbs0";
    struct stat s;
    struct stat64 s64;
    struct statx sx;

    CHECK(has(open(file, O_RDONLY), "4: ACTIVE"));
    CHECK(has(open64(file, O_RDONLY), "4: ACTIVE"));
    CHECK(has(openat(AT_FDCWD, file, O_RDONLY), "4: ACTIVE"));
    CHECK(has(openat64(AT_FDCWD, file, O_RDONLY), "4: ACTIVE"));
    FILE *stream = fopen("/sys/class/infiniband_verbs/uverbs0/ibdev", "r");
    CHECK(stream != NULL && fgets(text, sizeof text, stream) != NULL &&
          strncmp(text, name, strlen(name)) == 0 && text[strlen(name)] == '\n');
    if (stream != NULL)
        fclose(stream);
    CHECK(stat(file, &s) == 0 && S_ISREG(s.st_mode));
    CHECK(stat64(file, &s64) == 0 && S_ISREG(s64.st_mode));
    CHECK(lstat(link_at, &s) == 0 && S_ISLNK(s.st_mode));
    CHECK(lstat64(link_at, &s64) == 0 && S_ISLNK(s64.st_mode));
    CHECK(fstatat(AT_FDCWD, ib, &s, 0) == 0 && S_ISDIR(s.st_mode));
    CHECK(statx(AT_FDCWD, ib, 0, STATX_TYPE, &sx) == 0 && S_ISDIR(sx.stx_mode));
    old_stat *old = (old_stat *)dlsym(RTLD_DEFAULT, "__xstat");
    CHECK(old != NULL && old(1, file, &s) == 0 && S_ISREG(s.st_mode));
    CHECK(access(file, R_OK) == 0 && faccessat(AT_FDCWD, file, R_OK, 0) == 0);
    CHECK(readlink(link_at, text, sizeof text) > 0);
    CHECK(realpath(ib, text) != NULL && strlen(text) > strlen(name));
    CHECK(lists(opendir("/sys/class/infiniband"), name));
    CHECK(lists(opendir("/sys/class/infiniband/"), name));
    CHECK(lists(opendir("/dev/infiniband"), "uverbs0"));
    struct dirent **all;
    CHECK(scandir("/sys/class/infiniband_verbs", &all, NULL, NULL) >= 4);
    CHECK(stat(dev, &s) == 0 && S_ISCHR(s.st_mode) && access(dev, R_OK | W_OK) == 0);
    errno = 0;
    CHECK(lgetxattr(ib, "user.none", text, sizeof text) == -1 && errno != ENOENT);

    /* What does not exist, and what is no place of a device. */
    CHECK(open("/sys/class/infiniband/none", O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open("/sys/class/infinibandx", O_RDONLY) == -1 && errno == ENOENT);
    const char *volatile null = NULL;
    CHECK(access(null, R_OK) == -1 && errno == EFAULT);
    char *long_path = malloc(2 * PATH_MAX);
    memset(long_path, '/', 2 * PATH_MAX);
    memcpy(long_path, ib, strlen(ib));
    long_path[2 * PATH_MAX - 1] = 0;
    CHECK(access(long_path, R_OK) == -1 && errno == ENAMETOOLONG);
    CHECK(has(open("/proc/self/comm", O_RDONLY), "places_check"));
    snprintf(text, sizeof text, "made-%d", (int)getpid());
    int fd = open(text, O_CREAT | O_WRONLY | O_EXCL, 0640);
    CHECK(fd >= 0 && fstat(fd, &s) == 0 && (s.st_mode & 0137) == 0 && unlink(text) == 0);
    CHECK(socket(AF_NETLINK, SOCK_RAW, 20) == -1 && errno == EPROTONOSUPPORT);
    fd = socket(AF_NETLINK, SOCK_RAW, 0);
    CHECK(fd >= 0);

    printf("places_check: %u checks, %u wrong\n", checks, wrong);
    return wrong != 0;
}
