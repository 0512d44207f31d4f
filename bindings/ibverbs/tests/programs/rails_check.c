/* Checks two devices in one process (two rails), through verbs: each rail has a queue pair of the
 * same number, and exchanges messages with that rail of a process on another host. Completions must
 * name the sender by the address handle of their own rail, places in queues must be counted per
 * rail, and each rail must get the event of its own queue pair.
 *
 * usage: rails_check DEVICE DEVICE [SERVER]     for example: rails_check srd0 srd1 10.1.0.10
 * Without SERVER it waits for the other side (TCP, only to meet and to keep step).
 * Ends with a line "rails_check: N checks, 0 wrong"; exit code 1 if anything was wrong. */
#include <fcntl.h>
#include <infiniband/efadv.h>
#include <infiniband/verbs.h>
#include <string.h>

#define PROGRAM "rails_check"
#include "meeting.h"

enum {
    PORT = 18591,     /* TCP, where both sides meet */
    RAILS = 2,
    ROUNDS = 500,     /* messages to and fro on each rail */
    DEPTH = 16,       /* of each queue */
    MESSAGE = 1024,   /* bytes */
    QKEY = 0x5244,
    NUMBERS = 256,    /* queue pairs of a device at most */
    LIMIT_S = 20,     /* for each wait */
};

/* What each side tells the other of a rail. */
struct hello {
    union ibv_gid gid;
    uint32_t qpn;
};

struct rail {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    struct ibv_ah *unused, *peer; /* handles whose numbers differ from rail to rail */
    uint16_t peer_number;
    struct hello other;
    unsigned char out[MESSAGE], in[MESSAGE];
    int sent, received;
};

static struct rail rails[RAILS];

static struct ibv_context *device_open(const char *name)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    for (int i = 0; i < n; i++)
        if (!strcmp(ibv_get_device_name(list[i]), name)) {
            struct ibv_context *context = ibv_open_device(list[i]);
            ibv_free_device_list(list);
            return context;
        }
    return NULL;
}

static struct ibv_qp *qp_make(struct rail *r)
{
    struct ibv_qp_init_attr init = {.send_cq = r->cq, .recv_cq = r->cq, .sq_sig_all = 1};
    init.cap.max_send_wr = init.cap.max_recv_wr = DEPTH;
    init.cap.max_send_sge = init.cap.max_recv_sge = 1;
    init.qp_type = IBV_QPT_DRIVER;
    return efadv_create_driver_qp(r->pd, &init, EFADV_QP_DRIVER_TYPE_SRD);
}

static void qp_move(struct rail *r, enum ibv_qp_state state, int mask)
{
    struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = QKEY};
    attr.en_sqd_async_notify = 1;
    must(!ibv_modify_qp(r->qp, &attr, mask | IBV_QP_STATE), "ibv_modify_qp");
}

static void rail_open(struct rail *r, const char *name, const struct rail *like)
{
    static struct ibv_qp *spare[NUMBERS];
    int spares = 0;
    must((r->context = device_open(name)) != NULL, name);
    must((r->pd = ibv_alloc_pd(r->context)) != NULL, "ibv_alloc_pd");
    must((r->cq = ibv_create_cq(r->context, 4 * DEPTH, NULL, NULL, 0)) != NULL, "ibv_create_cq");
    must((r->qp = qp_make(r)) != NULL, "a queue pair");
    /* The same number on both rails: what is kept by number alone would be mixed up. */
    while (like && r->qp->qp_num != like->qp->qp_num && spares < NUMBERS) {
        spare[spares++] = r->qp;
        must((r->qp = qp_make(r)) != NULL, "a queue pair of the other rail's number");
    }
    while (spares > 0)
        ibv_destroy_qp(spare[--spares]);
    r->mr = ibv_reg_mr(r->pd, r, sizeof *r, IBV_ACCESS_LOCAL_WRITE);
    must(r->mr != NULL, "ibv_reg_mr");
    qp_move(r, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    qp_move(r, IBV_QPS_RTR, 0);
    qp_move(r, IBV_QPS_RTS, IBV_QP_SQ_PSN);
    fcntl(r->context->async_fd, F_SETFL, O_NONBLOCK);
}

static struct ibv_ah *ah_make(struct rail *r, union ibv_gid gid)
{
    struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh.dgid = gid};
    struct ibv_ah *ah = ibv_create_ah(r->pd, &attr);
    must(ah != NULL, "ibv_create_ah");
    return ah;
}

static void peers_know(void)
{
    for (int i = 0; i < RAILS; i++) {
        struct rail *r = &rails[i];
        struct hello own = {.qpn = r->qp->qp_num};
        struct efadv_ah_attr attr = {0};
        ibv_query_gid(r->context, 1, 0, &own.gid);
        tell(&own, sizeof own);
        hear(&r->other, sizeof r->other);
        /* On one rail the peer is the first handle, on the other the second. */
        if (i == 1)
            r->unused = ah_make(r, own.gid);
        r->peer = ah_make(r, r->other.gid);
        must(!efadv_query_ah(r->peer, &attr, sizeof attr), "efadv_query_ah");
        r->peer_number = attr.ahn;
    }
    check(rails[0].peer_number != rails[1].peer_number, "numbers of handles", 0);
    check(rails[0].qp->qp_num == rails[1].qp->qp_num, "numbers of queue pairs", 0);
}

static void receive_post(struct rail *r)
{
    struct ibv_sge sge = {(uintptr_t)r->in, MESSAGE, r->mr->lkey};
    struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
    must(!ibv_post_recv(r->qp, &wr, &bad), "ibv_post_recv");
}

static int send_post(struct rail *r)
{
    struct ibv_sge sge = {(uintptr_t)r->out, MESSAGE, r->mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = r->peer;
    wr.wr.ud.remote_qpn = r->other.qpn;
    wr.wr.ud.remote_qkey = QKEY;
    return ibv_post_send(r->qp, &wr, &bad);
}

/* Takes what has completed on a rail. */
static void progress(struct rail *r)
{
    struct ibv_wc wc;
    while (ibv_poll_cq(r->cq, 1, &wc) > 0) {
        check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status), wc.vendor_err);
        check(wc.qp_num == r->qp->qp_num, "queue pair", wc.qp_num);
        if (wc.opcode == IBV_WC_RECV) {
            r->received++;
            check(wc.slid == r->peer_number && wc.src_qp == r->other.qpn, "sender", wc.slid);
        } else {
            r->sent++;
        }
    }
}

static void until(struct rail *r, int sent, int received)
{
    time_t end = time(NULL) + LIMIT_S;
    while (r->sent < sent || r->received < received) {
        progress(r);
        if (time(NULL) > end) {
            check(0, "time of messages", r->received);
            exit(1);
        }
    }
}

static void rounds(void)
{
    for (int n = 1; n <= ROUNDS; n++) {
        for (int i = 0; i < RAILS; i++) {
            memset(rails[i].out, n + 100 * i + server, MESSAGE);
            receive_post(&rails[i]);
        }
        step();
        for (int i = 0; i < RAILS; i++)
            check(send_post(&rails[i]) == 0, "ibv_post_send", n);
        for (int i = 0; i < RAILS; i++) {
            until(&rails[i], n, n);
            unsigned char expected = n + 100 * i + !server;
            int same = 1;
            for (int k = 0; k < MESSAGE; k++)
                same &= rails[i].in[k] == expected;
            check(same, "bytes of rail", i);
        }
    }
}

/* Each rail drains, and is told so; the first is asked after both have. */
static void events(void)
{
    for (int i = 0; i < RAILS; i++)
        qp_move(&rails[i], IBV_QPS_SQD, IBV_QP_EN_SQD_ASYNC_NOTIFY);
    for (int i = 0; i < RAILS; i++) {
        struct ibv_async_event event = {0};
        int got = ibv_get_async_event(rails[i].context, &event);
        check(got == 0 && event.event_type == IBV_EVENT_SQ_DRAINED, "event of rail", i);
        check(got != 0 || event.element.qp == rails[i].qp, "queue pair of event", i);
        if (got == 0)
            ibv_ack_async_event(&event);
    }
}

static void rail_close(struct rail *r)
{
    check(!ibv_destroy_qp(r->qp) && !ibv_destroy_ah(r->peer), "end", 0);
    check((!r->unused || !ibv_destroy_ah(r->unused)) && !ibv_dereg_mr(r->mr), "end", 1);
    check(!ibv_destroy_cq(r->cq) && !ibv_dealloc_pd(r->pd), "end", 2);
    check(!ibv_close_device(r->context), "end", 3);
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: rails_check DEVICE DEVICE [SERVER]\n");
        return 2;
    }
    for (int i = 0; i < RAILS; i++)
        rail_open(&rails[i], argv[1 + i], i ? &rails[0] : NULL);
    meet(argc > 3 ? argv[3] : NULL, PORT);
    peers_know();
    rounds();
    step();
    events();
    step();
    for (int i = 0; i < RAILS; i++)
        rail_close(&rails[i]);
    return verdict();
}
