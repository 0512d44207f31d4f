/* Checks a fabric of libfabric's efa provider between two hosts, through libfabric's public calls
 * alone: messages of every size that one packet carries, inline and gathered ones, batches, a
 * receiver that is late, a receiver that sleeps, RDMA writes (with data, too) and reads, and a read
 * that must be refused. Both sides do the same to each other; every byte is compared. A counter
 * must have counted all that was sent, written and read.
 *
 * usage: fabric_check FABRIC [SERVER]     FABRIC: efa-direct or efa
 * Without SERVER it waits for the other side (TCP, only to meet and to keep step). It goes with the
 * libfabric that the loader finds; headers of 1.17 will do.
 * Ends with a line "fabric_check: N checks, 0 wrong"; exit code 1 if anything was wrong. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    PORT = 18590,            /* TCP, where both sides meet */
    SLOTS = 32,              /* messages on the way at once, in each direction */
    MESSAGE_LARGEST = 16384, /* more than one packet carries */
    RMA_LARGEST = 1 << 20,
    LATE_MS = 50,  /* how long the late receiver waits */
    LIMIT_S = 20,  /* for each wait */
    SLEEPS = 100,  /* messages to and fro with sleeping receivers */
};

/* A request on its way. The first part is libfabric's while it is. */
struct slot {
    struct fi_context2 context;
    unsigned char *bytes;
    int done, error;
    size_t len;
    uint64_t data;
    fi_addr_t from;
};

/* What each side tells the other about itself. */
struct hello {
    uint64_t key, window;
    uint32_t address_len;
    unsigned char address[64];
};

static int server, meeting, sleeping, can_sleep;
static long checks, wrong;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_cntr *counter; /* of sends, writes and reads that have ended; may be NULL */
static uint64_t posted;          /* what it has to count */
static struct fid_ep *ep;
static struct fid_mr *mr;
static void *desc;
static fi_addr_t peer;
static struct hello other;
static size_t message_max;
static struct slot out[SLOTS], in[SLOTS];
static unsigned char *mine, *window; /* RMA_LARGEST bytes each: ours, and open to the peer */
static long arrived;                 /* writes with data that came */
static uint64_t arrived_data;

static void check(int good, const char *what, long detail)
{
    checks++;
    if (!good) {
        wrong++;
        fprintf(stderr, "fabric_check: %s: %s (%ld) is wrong\n", server ? "server" : "client",
                what, detail);
    }
}

static void must(long ret, const char *what)
{
    if (ret < 0) {
        fprintf(stderr, "fabric_check: %s: %s\n", what, fi_strerror((int)-ret));
        exit(2);
    }
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* The byte at place i of what is numbered `seed` and sent by the server, or the client. */
static unsigned char pattern(size_t i, uint64_t seed, int by_server)
{
    uint64_t x = i * 2654435761u + seed * 40503u + (by_server ? 977u : 0u);
    return (unsigned char)(x >> 16 ^ x >> 5);
}

static void fill(unsigned char *bytes, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = pattern(i, seed, server);
}

static int same(const unsigned char *bytes, size_t n, uint64_t seed, int by_server)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != pattern(i, seed, by_server))
            return 0;
    return 1;
}

/* Takes what has completed; whether there was something. */
static int progress(void)
{
    struct fi_cq_data_entry entry = {0};
    fi_addr_t from = FI_ADDR_NOTAVAIL;
    ssize_t n = sleeping ? fi_cq_sreadfrom(cq, &entry, 1, &from, NULL, 1000)
                         : fi_cq_readfrom(cq, &entry, 1, &from);
    if (n == -FI_EAGAIN)
        return 0;
    if (n == -FI_EAVAIL) {
        struct fi_cq_err_entry error = {0};
        must(fi_cq_readerr(cq, &error, 0), "fi_cq_readerr");
        if (!error.op_context)
            must(-error.err, "a completion without a context");
        struct slot *slot = error.op_context;
        slot->done = 1;
        slot->error = error.err;
        return 1;
    }
    must(n, "fi_cq_readfrom");
    struct slot *slot = entry.op_context;
    if (entry.flags & FI_REMOTE_WRITE) {
        arrived++;
        arrived_data += entry.data;
        if (!slot)
            return 1;
    }
    slot->done = 1;
    slot->error = 0;
    slot->len = entry.len;
    slot->data = entry.flags & FI_REMOTE_CQ_DATA ? entry.data : UINT64_MAX;
    slot->from = from;
    return 1;
}

static void late(double began, const char *what)
{
    if (now_s() - began > LIMIT_S) {
        fprintf(stderr, "fabric_check: %s: nothing for %d s\n", what, LIMIT_S);
        exit(2);
    }
}

static void await(struct slot *slots, int n, const char *what)
{
    double began = now_s();
    for (int i = 0; i < n;)
        if (slots[i].done)
            i++;
        else if (!progress())
            late(began, what);
}

/* Posts until there is room; `post` is an expression that gives libfabric's answer. */
#define POST(slot, post)                                                                           \
    do {                                                                                           \
        double began_ = now_s();                                                                   \
        ssize_t ret_;                                                                              \
        (slot)->done = 0;                                                                          \
        posted += (slot) >= out && (slot) < out + SLOTS;                                           \
        while ((ret_ = (post)) == -FI_EAGAIN) {                                                    \
            progress();                                                                            \
            late(began_, #post);                                                                   \
        }                                                                                          \
        must(ret_, #post);                                                                         \
    } while (0)

static void say(const void *bytes, size_t n)
{
    if (send(meeting, bytes, n, MSG_NOSIGNAL) != (ssize_t)n)
        must(-errno, "telling the other side");
}

/* Hears the other side. Only a fabric that wants it is driven meanwhile. */
static void hear(void *bytes, size_t n)
{
    int drive = info->domain_attr->data_progress == FI_PROGRESS_MANUAL;
    double began = now_s();
    for (size_t got = 0; got < n;) {
        ssize_t more = recv(meeting, (char *)bytes + got, n - got, drive ? MSG_DONTWAIT : 0);
        if (more > 0) {
            got += more;
        } else if (more == 0) {
            must(-FI_ECONNRESET, "hearing the other side");
        } else if (errno == EAGAIN && drive) {
            progress();
            late(began, "hearing the other side");
        } else {
            must(-errno, "hearing the other side");
        }
    }
}

/* Both sides are here. */
static void step(void)
{
    char word = 'k';
    say(&word, 1);
    hear(&word, 1);
}

static void receives(int n)
{
    for (int i = 0; i < n; i++)
        POST(&in[i], fi_recv(ep, in[i].bytes, MESSAGE_LARGEST, desc, FI_ADDR_UNSPEC, &in[i]));
}

/* `n` messages of `len` bytes that carry their number came, each once, in any order. */
static void messages_compare(int n, size_t len, int with_data, const char *what)
{
    unsigned char seen[SLOTS] = {0};
    for (int i = 0; i < n; i++) {
        uint64_t number = with_data ? in[i].data : 0;
        int good = !in[i].error && in[i].len == len && in[i].from == peer &&
                   number < (uint64_t)n && !seen[number] &&
                   same(in[i].bytes, len, number, !server);
        if (good)
            seen[number] = 1;
        check(good, what, (long)len);
    }
    for (int i = 0; i < n; i++)
        check(!out[i].error, "the completion of a message", (long)len);
}

/* As many messages at once as there are slots, of one size. */
static void messages(size_t len)
{
    receives(SLOTS);
    step();
    for (int i = 0; i < SLOTS; i++) {
        fill(out[i].bytes, len, i);
        POST(&out[i], fi_senddata(ep, out[i].bytes, len, desc, i, peer, &out[i]));
    }
    await(in, SLOTS, "messages");
    await(out, SLOTS, "completions of messages");
    messages_compare(SLOTS, len, 1, "a message");
}

/* Of two pieces, handed over in batches. */
static void messages_gathered(size_t len)
{
    receives(SLOTS);
    step();
    for (int i = 0; i < SLOTS; i++) {
        size_t first = len / 3;
        struct iovec pieces[2] = {{out[i].bytes, first}, {out[i].bytes + first + 8, len - first}};
        void *descs[2] = {desc, desc};
        struct fi_msg msg = {pieces, descs, 2, peer, &out[i], i};
        uint64_t more = i % 8 == 7 ? 0 : FI_MORE;
        fill(out[i].bytes, len, i);
        memmove(out[i].bytes + first + 8, out[i].bytes + first, len - first);
        POST(&out[i], fi_sendmsg(ep, &msg, FI_REMOTE_CQ_DATA | FI_COMPLETION | more));
    }
    await(in, SLOTS, "gathered messages");
    await(out, SLOTS, "completions of gathered messages");
    messages_compare(SLOTS, len, 1, "a gathered message");
}

/* Without a completion; the bytes may be overwritten at once. */
static void message_injected(size_t len)
{
    receives(1);
    step();
    fill(out[0].bytes, len, 0);
    POST(&out[0], fi_inject(ep, out[0].bytes, len, peer));
    memset(out[0].bytes, 0xff, len);
    out[0].error = 0;
    await(in, 1, "an injected message");
    messages_compare(1, len, 0, "an injected message");
}

/* Messages that find no receive wait for one. */
static void receiver_late(size_t len)
{
    enum { N = 8 };
    step();
    for (int i = 0; i < N; i++) {
        fill(out[i].bytes, len, i);
        POST(&out[i], fi_senddata(ep, out[i].bytes, len, desc, i, peer, &out[i]));
    }
    usleep(LATE_MS * 1000);
    receives(N);
    await(in, N, "messages to a late receiver");
    await(out, N, "completions of messages to a late receiver");
    messages_compare(N, len, 1, "a message to a late receiver");
}

/* To and fro, each side asleep until something completes. */
static void receiver_asleep(size_t len)
{
    receives(1);
    step();
    sleeping = 1;
    for (int i = 0; i < 2 * SLEEPS; i++) {
        if ((i & 1) == server) {
            await(in, 1, "a message, asleep");
            messages_compare(1, len, 1, "a message, asleep");
            if (i + 2 < 2 * SLEEPS)
                receives(1);
        } else {
            fill(out[0].bytes, len, 0);
            POST(&out[0], fi_senddata(ep, out[0].bytes, len, desc, 0, peer, &out[0]));
            await(out, 1, "a completion, asleep");
        }
    }
    sleeping = 0;
    step();
}

/* Four writes that fill the peer's window; with data it hears of them, and else by `step`. Where
 * the provider wants that, each datum takes a receive. */
static void writes(size_t len, int with_data)
{
    enum { N = 4 };
    size_t each = len / N;
    arrived = 0;
    arrived_data = 0;
    memset(window, 0, len);
    fill(mine, len, len);
    if (with_data && info->rx_attr->mode & FI_RX_CQ_DATA)
        receives(N);
    step();
    for (int i = 0; i < N; i++) {
        unsigned char *from = mine + i * each;
        uint64_t to = other.window + i * each;
        size_t n = i == N - 1 ? len - i * each : each;
        if (with_data)
            POST(&out[i], fi_writedata(ep, from, n, desc, 100 + i, peer, to, other.key, &out[i]));
        else
            POST(&out[i], fi_write(ep, from, n, desc, peer, to, other.key, &out[i]));
    }
    await(out, N, "writes");
    for (int i = 0; i < N; i++)
        check(!out[i].error, "the completion of a write", (long)len);
    double began = now_s();
    while (with_data && arrived < N)
        if (!progress())
            late(began, "the data of writes");
    step();
    check(!with_data || arrived_data == 4 * 100 + 6, "the data of writes", (long)arrived_data);
    check(same(window, len, len, !server), "what was written", (long)len);
}

static void reads(size_t len)
{
    fill(window, len, len + 1);
    memset(mine, 0, len);
    step();
    POST(&out[0], fi_read(ep, mine, len, desc, peer, other.window, other.key, &out[0]));
    await(out, 1, "a read");
    check(!out[0].error && same(mine, len, len + 1, !server), "a read", (long)len);
    step();
}

/* Memory that the peer has not opened; what follows must work as before. */
static void read_refused(void)
{
    POST(&out[0], fi_read(ep, mine, 64, desc, peer, other.window, other.key + 77, &out[0]));
    await(out, 1, "a read with a wrong key");
    check(out[0].error, "that a read with a wrong key is refused", out[0].error);
    step();
}

/* Failed ones are counted apart. */
static void counted(void)
{
    if (!counter)
        return;
    double began = now_s();
    while (fi_cntr_read(counter) + fi_cntr_readerr(counter) < posted) {
        progress();
        late(began, "the counter of requests");
    }
    uint64_t good = fi_cntr_read(counter), bad = fi_cntr_readerr(counter);
    check(good + bad == posted && bad <= 1, "the counter of requests", (long)good);
}

static void meet(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (!address) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (struct sockaddr *)&to, sizeof to) || listen(fd, 1))
            must(-errno, "waiting for the other side");
        meeting = accept(fd, NULL, NULL);
        close(fd);
    } else {
        if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
            must(-FI_EINVAL, "the server's address");
        if (connect(fd, (struct sockaddr *)&to, sizeof to))
            must(-errno, "reaching the server");
        meeting = fd;
    }
    if (meeting < 0)
        must(-errno, "meeting the other side");
}

static void fabric_open(char *name)
{
    struct fi_info *hints = fi_allocinfo();
    if (!hints)
        must(-FI_ENOMEM, "fi_allocinfo");
    hints->caps = FI_MSG | FI_RMA | FI_SOURCE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("efa");
    hints->fabric_attr->name = strdup(name);
    int ret = fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info);
    if (ret == -FI_ENODATA) {
        /* A provider that cannot take the data of a write without a receive. */
        hints->mode |= FI_RX_CQ_DATA;
        ret = fi_getinfo(fi_version(), NULL, NULL, 0, hints, &info);
    }
    must(ret, "fi_getinfo");
    fi_freeinfo(hints);
    if (strcmp(info->fabric_attr->name, name))
        must(-FI_ENODATA, "fi_getinfo gave another fabric");
    printf("fabric_check: %s of libfabric %u.%u, %s, messages of %zu bytes at most, %zu inline\n",
           name, FI_MAJOR(fi_version()), FI_MINOR(fi_version()), info->domain_attr->name,
           info->ep_attr->max_msg_size, info->tx_attr->inject_size);

    struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
    struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_UNSPEC};
    must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
    must(fi_domain(fabric, info, &domain, NULL), "fi_domain");
    must(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
    ret = fi_cq_open(domain, &cq_attr, &cq, NULL);
    can_sleep = ret != -FI_ENOSYS;
    if (!can_sleep) {
        printf("fabric_check: this fabric has no queues to sleep on; that part is left out\n");
        cq_attr.wait_obj = FI_WAIT_NONE;
        ret = fi_cq_open(domain, &cq_attr, &cq, NULL);
    }
    must(ret, "fi_cq_open");
    must(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
    must(fi_ep_bind(ep, &av->fid, 0), "binding the addresses");
    must(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "binding the queue");
    struct fi_cntr_attr counter_attr = {.events = FI_CNTR_EVENTS_COMP, .wait_obj = FI_WAIT_NONE};
    ret = fi_cntr_open(domain, &counter_attr, &counter, NULL);
    if (ret == -FI_ENOSYS || ret == -FI_EOPNOTSUPP) {
        printf("fabric_check: this fabric has no counters; that part is left out\n");
        counter = NULL;
    } else {
        must(ret, "fi_cntr_open");
        must(fi_ep_bind(ep, &counter->fid, FI_SEND | FI_WRITE | FI_READ), "binding the counter");
    }
    must(fi_enable(ep), "fi_enable");
}

static void memory_open(void)
{
    size_t room = MESSAGE_LARGEST + 64, all = 2 * SLOTS * room + 2 * RMA_LARGEST;
    unsigned char *memory = aligned_alloc(4096, (all + 4095) / 4096 * 4096);
    if (!memory)
        must(-FI_ENOMEM, "memory");
    uint64_t access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    must(fi_mr_reg(domain, memory, all, access, 0, 0, 0, &mr, NULL), "fi_mr_reg");
    desc = fi_mr_desc(mr);
    for (int i = 0; i < SLOTS; i++) {
        out[i].bytes = memory + (2 * i) * room;
        in[i].bytes = memory + (2 * i + 1) * room;
    }
    mine = memory + 2 * SLOTS * room;
    window = mine + RMA_LARGEST;
}

static void introduce(void)
{
    struct hello self = {.key = fi_mr_key(mr), .window = (uintptr_t)window};
    size_t n = sizeof self.address;
    must(fi_getname(&ep->fid, self.address, &n), "fi_getname");
    self.address_len = (uint32_t)n;
    say(&self, sizeof self);
    hear(&other, sizeof other);
    if (fi_av_insert(av, other.address, 1, &peer, 0, NULL) != 1)
        must(-FI_EINVAL, "fi_av_insert");
    /* One packet's worth where the fabric carries no more: that is what the link reports. */
    message_max = info->ep_attr->max_msg_size;
    if (info->nic && info->nic->link_attr->mtu < message_max)
        message_max = info->nic->link_attr->mtu;
    if (message_max > MESSAGE_LARGEST)
        message_max = MESSAGE_LARGEST;
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: fabric_check FABRIC [SERVER]\n");
        return 2;
    }
    server = argc == 2;
    fabric_open(argv[1]);
    memory_open();
    meet(argv[2]);
    introduce();
    messages(0);
    for (size_t n = 1; n < message_max; n *= 2)
        messages(n);
    messages(message_max - 1);
    messages(message_max);
    for (size_t n = 24; n <= message_max; n = n * 5 / 2)
        messages_gathered(n);
    message_injected(1);
    message_injected(info->tx_attr->inject_size);
    receiver_late(2000);
    if (can_sleep)
        receiver_asleep(1000);
    for (size_t n = 4; n <= RMA_LARGEST; n *= 4) {
        writes(n, 0);
        writes(n + n / 2 <= RMA_LARGEST ? n + n / 2 : n, 1);
        reads(n);
        reads(n - 1);
    }
    /* libfabric 1.17 answers reads by messages, and ends the process that is asked wrongly. */
    if (FI_VERSION_GE(fi_version(), FI_VERSION(2, 0)))
        read_refused();
    messages(message_max);
    counted();
    step();
    must(fi_close(&ep->fid), "closing the endpoint");
    if (counter)
        must(fi_close(&counter->fid), "closing the counter");
    must(fi_close(&mr->fid), "closing the memory");
    must(fi_close(&cq->fid), "closing the queue");
    must(fi_close(&av->fid), "closing the addresses");
    must(fi_close(&domain->fid), "closing the domain");
    must(fi_close(&fabric->fid), "closing the fabric");
    printf("fabric_check: %ld checks, %ld wrong\n", checks, wrong);
    return wrong ? 1 : 0;
}
