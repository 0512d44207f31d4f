/* Checks completion counters and 64-bit request numbers between two hosts, through verbs: counters
 * of each operation reach their numbers although no completion is polled, numbers lie in the
 * program's own memory if it wants that, failures are counted apart, a counter in use cannot be
 * destroyed, and completions carry all 64 bits of the numbers of their requests.
 *
 * usage: cntr_check [SERVER]
 * Without SERVER it waits for the other side (TCP, only to meet and to keep step). Both sides do
 * the same.
 * The declarations of counters are its own, and it asks for the functions by name and version: the
 * headers of an older rdma-core do.
 * Ends with a line "cntr_check: N checks, 0 wrong"; exit code 1 if anything was wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <string.h>

#define PROGRAM "cntr_check"
#include "meeting.h"

enum {
    PORT = 18592,   /* TCP, where both sides meet */
    N = 64,         /* requests of each kind */
    MESSAGE = 700,  /* bytes of a message */
    BLOCK = 20000,  /* bytes of a write or read: several packets */
    QKEY = 0x434e,
    LIMIT_S = 20,   /* for each wait */
};

/* ibv_create_comp_cntr(3), ibv_qp_attach_comp_cntr(3), ibv_query_comp_cntr_caps(3) and
 * efadv_create_comp_cntr(3) of rdma-core 65. */
struct cntr {
    struct ibv_context *context;
    uint32_t handle;
};
struct cntr_init {
    uint32_t comp_mask;
    int type; /* 0: requests, 1: bytes */
    uint32_t flags;
};
struct cntr_caps {
    uint64_t max_value;
    uint32_t max_counters, ops;
};
struct attach {
    uint32_t comp_mask, op_mask;
};
struct location {
    uint8_t *ptr;
    struct {
        uint64_t offset;
        int32_t fd;
        uint32_t reserved;
    } dmabuf;
    uint8_t type;
    uint8_t reserved[7];
};
struct efa_cntr_init {
    uint64_t comp_mask;
    uint32_t flags, reserved;
    struct location completions, errors;
};
_Static_assert(sizeof(struct cntr) == 16 && sizeof(struct cntr_init) == 12, "sizes");
_Static_assert(sizeof(struct cntr_caps) == 16 && sizeof(struct attach) == 8, "sizes");
_Static_assert(sizeof(struct location) == 32 && sizeof(struct efa_cntr_init) == 80, "sizes");

enum { SEND = 1, RECV = 2, READ = 4, REMOTE_READ = 8, WRITE = 16, REMOTE_WRITE = 32 };
enum { KINDS = 4 }; /* counters: of SEND, RECV, READ, WRITE */
static const uint32_t kinds[KINDS] = {SEND, RECV, READ, WRITE};

static struct cntr *(*create)(struct ibv_context *, struct cntr_init *);
static struct cntr *(*efa_create)(struct ibv_context *, struct cntr_init *, struct efa_cntr_init *,
                                  uint32_t);
static int (*destroy)(struct cntr *);
static int (*set)(struct cntr *, uint64_t), (*set_err)(struct cntr *, uint64_t);
static int (*inc)(struct cntr *, uint64_t), (*inc_err)(struct cntr *, uint64_t);
static int (*get)(struct cntr *, uint64_t *), (*get_err)(struct cntr *, uint64_t *);
static int (*attach)(struct ibv_qp *, struct cntr *, struct attach *);
static int (*query)(struct ibv_context *, struct cntr_caps *, size_t);

/* What each side tells the other. */
struct hello {
    union ibv_gid gid;
    uint32_t qpn, rkey;
    uint64_t window;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq_ex *cq;
static struct ibv_qp *qp;
static struct ibv_qp_ex *qpx;
static struct ibv_mr *mr;
static struct ibv_ah *peer;
static struct hello other;
static struct cntr *counters[KINDS];
static struct {
    uint64_t completions, errors;           /* numbers of the counter of writes */
    unsigned char in[N][MESSAGE], out[N][MESSAGE];
    unsigned char window[BLOCK], block[BLOCK];
} memory;

static void *function(const char *name, const char *version)
{
    void *found = dlvsym(RTLD_DEFAULT, name, version);
    if (!found) {
        fprintf(stderr, "cntr_check: there is no %s@%s\n", name, version);
        exit(2);
    }
    return found;
}

static void functions(void)
{
    const char *v = "IBVERBS_1.18";
    create = function("ibv_create_comp_cntr", v);
    destroy = function("ibv_destroy_comp_cntr", v);
    set = function("ibv_set_comp_cntr", v);
    set_err = function("ibv_set_err_comp_cntr", v);
    inc = function("ibv_inc_comp_cntr", v);
    inc_err = function("ibv_inc_err_comp_cntr", v);
    get = function("ibv_read_comp_cntr", v);
    get_err = function("ibv_read_err_comp_cntr", v);
    attach = function("ibv_qp_attach_comp_cntr", v);
    query = function("_ibv_query_comp_cntr_caps", v);
    efa_create = function("efadv_create_comp_cntr", "EFA_1.7");
}

/* The number of request i: neither half alone tells it from the others. */
static uint64_t number(int kind, int i)
{
    return (uint64_t)(0x80000000u + 7 * i) << 32 | (uint32_t)(kind << 8 | (i & 3));
}

static void qp_move(enum ibv_qp_state state, int mask)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = QKEY};
    must(!ibv_modify_qp(qp, &attr, mask | IBV_QP_STATE), "ibv_modify_qp");
}

static uint64_t value(struct cntr *c)
{
    uint64_t n = 0;
    check(get(c, &n) == 0, "ibv_read_comp_cntr", 0);
    return n;
}

static uint64_t errors(struct cntr *c)
{
    uint64_t n = 0;
    check(get_err(c, &n) == 0, "ibv_read_err_comp_cntr", 0);
    return n;
}

static void objects(void)
{
    struct ibv_cq_init_attr_ex cq_init = {.cqe = 8 * N, .wc_flags = IBV_WC_STANDARD_FLAGS};
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_DRIVER, .sq_sig_all = 1};
    struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    must(n > 0 && (context = ibv_open_device(list[0])) != NULL, "ibv_open_device");
    must((pd = ibv_alloc_pd(context)) != NULL, "ibv_alloc_pd");
    must((cq = ibv_create_cq_ex(context, &cq_init)) != NULL, "ibv_create_cq_ex");
    init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
    init.cap.max_send_wr = init.cap.max_recv_wr = 4 * N;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = pd;
    init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ;
    init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
    must((qp = efadv_create_qp_ex(context, &init, &efa, sizeof efa)) != NULL, "efadv_create_qp_ex");
    must((qpx = ibv_qp_to_qp_ex(qp)) != NULL, "ibv_qp_to_qp_ex");
    mr = ibv_reg_mr(pd, &memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                                    IBV_ACCESS_REMOTE_WRITE);
    must(mr != NULL, "ibv_reg_mr");
}

/* What the device says of counters, and what it refuses. */
static void rules(void)
{
    struct cntr_caps caps = {0};
    struct efadv_device_attr device = {0};
    struct cntr_init init = {0}, bytes = {.type = 1}, flags = {.flags = 1};
    struct efa_cntr_init efa = {0};
    struct attach both = {.op_mask = SEND | RECV}, read_recv = {.op_mask = READ | RECV};
    struct attach remote = {.op_mask = REMOTE_WRITE}, none = {0}, mask = {1, SEND};
    check(query(context, &caps, sizeof caps) == 0, "ibv_query_comp_cntr_caps", 0);
    check(caps.max_value == UINT64_MAX, "largest value", 0);
    check(caps.max_counters >= 64, "number of counters", caps.max_counters);
    check(caps.ops == (SEND | RECV | READ | WRITE), "operations", caps.ops);
    check(!efadv_query_device(context, &device, sizeof device), "efadv_query_device", 0);
    check((device.device_caps & 64) != 0, "capabilities", device.device_caps);
    errno = 0;
    check(!create(context, &bytes) && errno == EOPNOTSUPP, "counter of bytes", errno);
    check(!create(context, &flags) && errno == EOPNOTSUPP, "unknown flag", errno);
    check(!efa_create(context, &init, &efa, 16) && errno == EINVAL, "length", errno);
    efa.flags = 1;
    check(!efa_create(context, &init, &efa, sizeof efa) && errno == EINVAL, "no memory", errno);
    efa.completions.type = 1;
    check(!efa_create(context, &init, &efa, sizeof efa) && errno == EOPNOTSUPP, "dmabuf", errno);
    struct cntr *one = create(context, &init), *two = create(context, &init);
    must(one && two, "ibv_create_comp_cntr");
    check(one->context == context, "context", 0);
    /* All of it on a queue pair of its own, which ends here. */
    struct ibv_qp_init_attr plain = {.send_cq = ibv_cq_ex_to_cq(cq), .qp_type = IBV_QPT_DRIVER};
    plain.recv_cq = plain.send_cq;
    plain.cap.max_send_wr = plain.cap.max_recv_wr = 1;
    plain.cap.max_send_sge = plain.cap.max_recv_sge = 1;
    struct ibv_qp *short_one = efadv_create_driver_qp(pd, &plain, EFADV_QP_DRIVER_TYPE_SRD);
    must(short_one != NULL, "efadv_create_driver_qp");
    check(attach(short_one, one, &both) == 0, "attach", 0);
    check(attach(short_one, two, &read_recv) == EBUSY, "attach to what has a counter", 0);
    check(attach(short_one, two, &remote) == EOPNOTSUPP, "attach to remote operations", 0);
    check(attach(short_one, two, &none) == EINVAL, "attach to nothing", 0);
    check(attach(short_one, two, &mask) == EINVAL, "attach with a mask", 0);
    check(destroy(one) == EBUSY, "destroy while attached", 0);
    check(destroy(two) == 0, "destroy", 0);
    check(ibv_destroy_qp(short_one) == 0, "ibv_destroy_qp", 0);
    check(set(one, UINT64_MAX - 1) == 0 && inc(one, 5) == 0 && value(one) == 3, "wrap", 0);
    check(set_err(one, 7) == 0 && inc_err(one, 1) == 0 && errors(one) == 8, "errors", 0);
    check(destroy(one) == 0, "destroy after the queue pair", 0);
}

static void counters_make(void)
{
    struct cntr_init init = {0};
    struct efa_cntr_init efa = {.flags = 3};
    efa.completions.ptr = (void *)&memory.completions;
    efa.errors.ptr = (void *)&memory.errors;
    memory.completions = memory.errors = 5;
    for (int k = 0; k < KINDS; k++) {
        struct attach ops = {.op_mask = kinds[k]};
        counters[k] = kinds[k] == WRITE ? efa_create(context, &init, &efa, sizeof efa)
                                        : create(context, &init);
        must(counters[k] != NULL, "a counter");
        check(attach(qp, counters[k], &ops) == 0, "attach counter", k);
    }
}

static void connect_both(void)
{
    qp_move(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    qp_move(IBV_QPS_RTR, 0);
    struct attach late = {.op_mask = SEND};
    check(attach(qp, counters[0], &late) == EINVAL, "attach in RTR", 0);
    qp_move(IBV_QPS_RTS, IBV_QP_SQ_PSN);
    struct hello own = {.qpn = qp->qp_num, .rkey = mr->rkey};
    own.window = (uintptr_t)memory.window;
    ibv_query_gid(context, 1, 0, &own.gid);
    tell(&own, sizeof own);
    hear(&other, sizeof other);
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh.dgid = other.gid};
    must((peer = ibv_create_ah(pd, &attr)) != NULL, "ibv_create_ah");
}

static void receives_post(int n, int from)
{
    for (int i = from; i < from + n; i++) {
        struct ibv_sge sge = {(uintptr_t)memory.in[i % N], MESSAGE, mr->lkey};
        struct ibv_recv_wr wr = {.wr_id = number(RECV, i), .sg_list = &sge, .num_sge = 1}, *bad;
        must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
    }
}

/* A message by the older of the two interfaces. */
static void send_post(int i)
{
    struct ibv_sge sge = {(uintptr_t)memory.out[i], MESSAGE, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = number(SEND, i), .sg_list = &sge, .num_sge = 1}, *bad;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = peer;
    wr.wr.ud.remote_qpn = other.qpn;
    wr.wr.ud.remote_qkey = QKEY;
    must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
}

static void post(int kind, int i, uint32_t rkey)
{
    if (kind == SEND && i % 2) {
        send_post(i);
        return;
    }
    ibv_wr_start(qpx);
    qpx->wr_id = number(kind, i);
    qpx->wr_flags = IBV_SEND_SIGNALED;
    if (kind == SEND)
        ibv_wr_send(qpx);
    else if (kind == READ)
        ibv_wr_rdma_read(qpx, rkey, other.window);
    else
        ibv_wr_rdma_write(qpx, rkey, other.window);
    ibv_wr_set_ud_addr(qpx, peer, other.qpn, QKEY);
    if (kind == SEND)
        ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory.out[i], MESSAGE);
    else
        ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory.block, BLOCK);
    must(!ibv_wr_complete(qpx), "ibv_wr_complete");
}

static void reaches(int k, uint64_t n, const char *what)
{
    time_t end = time(NULL) + LIMIT_S;
    uint64_t now;
    while ((now = value(counters[k])) < n && time(NULL) < end)
        checks--; /* one check for each wait */
    check(now == n, what, now);
}

/* Takes a completion by one of the two interfaces; 0 if there is none. */
static int poll_one(int extended, uint64_t *id, int *status)
{
    struct ibv_poll_cq_attr none = {0};
    struct ibv_wc wc;
    if (!extended) {
        if (ibv_poll_cq(ibv_cq_ex_to_cq(cq), 1, &wc) != 1)
            return 0;
        *id = wc.wr_id;
        *status = wc.status;
        return 1;
    }
    if (ibv_start_poll(cq, &none) != 0)
        return 0;
    *id = cq->wr_id;
    *status = cq->status;
    ibv_end_poll(cq);
    return 1;
}

/* Polls so many completions; each must have a number that was given, once. */
static void polled(int n, int ok)
{
    static char seen[32][2 * N];
    time_t end = time(NULL) + LIMIT_S;
    for (int i = 0; i < n;) {
        uint64_t id;
        int status;
        if (!poll_one(i & 1, &id, &status)) {
            must(time(NULL) < end, "completions");
            continue;
        }
        int kind = id >> 8 & 0xff, which = ((uint32_t)(id >> 32) - 0x80000000u) / 7;
        int known = kind < 32 && which < 2 * N && id == number(kind, which);
        check(known && !seen[kind][which]++, "number of a request", id);
        check((status == IBV_WC_SUCCESS) == ok, "status", status);
        i++;
    }
}

/* SRD keeps no order: a message is in whichever receive was free when it arrived. Each must have
 * come once and whole. */
static void messages_arrived(void)
{
    char came[N] = {0};
    for (int i = 0; i < N; i++) {
        int message = memory.in[i][0] - 100 * !server;
        check(message >= 0 && message < N && !came[message]++, "message of receive", i);
        int whole = 1;
        for (int k = 1; k < MESSAGE; k++)
            whole &= memory.in[i][k] == memory.in[i][0];
        check(whole, "bytes of receive", i);
    }
}

static void traffic(void)
{
    for (int i = 0; i < N; i++)
        memset(memory.out[i], i + 100 * server, MESSAGE);
    memset(memory.block, 33 + server, BLOCK);
    receives_post(N, 0);
    step();
    for (int i = 0; i < N; i++)
        post(SEND, i, 0);
    for (int i = 0; i < N / 2; i++)
        post(WRITE, i, other.rkey);
    /* Nothing is polled: the counters alone tell the end. */
    reaches(0, N, "messages sent");
    reaches(3, N / 2, "writes");
    check(memory.completions == N / 2 && memory.errors == 0, "own memory", memory.completions);
    reaches(1, N, "messages received");
    step();
    messages_arrived();
    check(memory.window[0] == 33 + !server && memory.window[BLOCK - 1] == 33 + !server, "write", 0);
    step();
    memset(memory.block, 0, BLOCK);
    for (int i = 0; i < N / 4; i++)
        post(READ, i, other.rkey);
    reaches(2, N / 4, "reads");
    check(memory.block[0] == 33 + server && memory.block[BLOCK - 1] == 33 + server, "read", 0);
    step();
    polled(N + N / 2 + N + N / 4, 1);
    check(value(counters[0]) == N && value(counters[3]) == N / 2, "polls count nothing", 0);
}

/* A write to nowhere fails, receives are flushed: both count as errors. */
static void failures(void)
{
    step();
    post(WRITE, N, other.rkey ^ 0x5a5a);
    polled(1, 0);
    check(errors(counters[3]) == 1 && memory.errors == 1, "failed write", memory.errors);
    receives_post(3, N);
    qp_move(IBV_QPS_ERR, 0);
    polled(3, 0);
    check(errors(counters[1]) == 3 && value(counters[1]) == N, "flushed receives", 0);
    for (int k = 0; k < KINDS; k++) {
        uint64_t expected = kinds[k] == WRITE ? 1 : kinds[k] == RECV ? 3 : 0;
        check(errors(counters[k]) == expected, "errors", k);
    }
    step();
}

int main(int argc, char **argv)
{
    functions();
    objects();
    rules();
    counters_make();
    meet(argc > 1 ? argv[1] : NULL, PORT);
    connect_both();
    traffic();
    failures();
    check(destroy(counters[0]) == EBUSY, "destroy before its queue pair", 0);
    check(!ibv_destroy_qp(qp) && !ibv_destroy_ah(peer) && !ibv_dereg_mr(mr), "end", 0);
    for (int k = 0; k < KINDS; k++)
        check(destroy(counters[k]) == 0, "end of counter", k);
    check(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dealloc_pd(pd), "end", 1);
    check(!ibv_close_device(context), "end", 2);
    return verdict();
}
