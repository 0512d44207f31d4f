/* What checkers of two processes have in common: they meet by TCP, tell each other values, keep
 * step, and count their checks. A program defines PROGRAM, its name, before it includes this. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Seconds that the client waits for a server that is not there yet. */
enum { MEETING_LIMIT_S = 20 };

/* Whether this process is the server, and its connection to the other side. */
static int server, meeting;
static long checks, wrong;

static void check(int good, const char *what, long detail)
{
    checks++;
    if (!good) {
        wrong++;
        fprintf(stderr, PROGRAM ": %s: %s (%ld) is wrong\n", server ? "server" : "client", what,
                detail);
    }
}

/* Ends the program if a call failed, with what errno says. */
static void must(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(2);
    }
}

/* Waits for the other side at this TCP port if there is no host, else connects to it. */
static void meet(const char *host, uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    server = !host;
    if (host) {
        time_t end = time(NULL) + MEETING_LIMIT_S;
        must(inet_pton(AF_INET, host, &at.sin_addr) == 1, "the server's IPv4 address");
        while (connect(fd, (void *)&at, sizeof at) != 0) {
            must(time(NULL) < end, "connect");
            close(fd);
            usleep(50000);
            fd = socket(AF_INET, SOCK_STREAM, 0);
        }
        meeting = fd;
    } else {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        must(!bind(fd, (void *)&at, sizeof at) && !listen(fd, 1), "bind");
        must((meeting = accept(fd, NULL, NULL)) >= 0, "accept");
        close(fd);
    }
}

static void tell(const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t done = write(meeting, (const char *)bytes + at, n - at);
        must(done > 0, "telling the other side");
        at += done;
    }
}

static void hear(void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t done = read(meeting, (char *)bytes + at, n - at);
        must(done > 0, "hearing the other side");
        at += done;
    }
}

/* Returns when both sides have called it. */
static void step(void)
{
    char c = 0;
    tell(&c, 1);
    hear(&c, 1);
}

/* Says how it went; returns the exit code. */
static int verdict(void)
{
    printf(PROGRAM ": %ld checks, %ld wrong\n", checks, wrong);
    return wrong != 0;
}
